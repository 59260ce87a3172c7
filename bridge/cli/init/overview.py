"""Prints what `nats-bridge init` finds on a cluster, and about a native configuration."""

from __future__ import annotations

import click

from nats_bridge.bridge.cli.init.landscape import Landscape, bucket_of
from nats_bridge.bridge.cli.init.native_wish import Comparison
from nats_bridge.bridge.observability.printable import printable
from nats_bridge.transforms.dialect import Dialect

_MOST_SHOWN = 30  # streams
_MARKS = {
    "native": ("ok ", "green"),
    "possible": ("can", "yellow"),
    "rule": ("rule", "cyan"),
    "impossible": ("no ", "red"),
}


def overview(seen: Landscape, where: str) -> list[str]:
    """Summarise a cluster: the server's native features, and the streams.

    Args:
        seen: the cluster.
        where: its address, or the context.
    """
    lines = [f"nats-server {seen.server_version} at {where}; what it does without the bridge:"]
    lines += [f"  {'yes' if native else 'no':3}  {feature}: {how}" for feature, native, how in abilities(seen.server)]
    lines.append("streams" if seen.streams else "no streams in this account")
    width = max(map(len, list(seen.streams)[:_MOST_SHOWN]), default=0)
    for name, info in list(seen.streams.items())[:_MOST_SHOWN]:
        config = info["config"]
        kind, _ = bucket_of(name)
        retention = config.get("retention", "limits")
        extra = [kind or ("" if retention == "limits" else retention)]
        extra += [f"mirror of {config['mirror']['name']}"] if config.get("mirror") else []
        if config.get("sources"):
            extra.append("sources " + ", ".join(entry["name"] for entry in config["sources"]))
        if (config.get("republish") or {}).get("dest"):
            extra.append(f"republishes to {config['republish']['dest']}")
        if (config.get("subject_transform") or {}).get("dest"):
            extra.append(f"transforms to {config['subject_transform']['dest']}")
        reported = [printable(each) for each in (", ".join(config.get("subjects") or ()), *extra)]
        lines.append(
            f"  {name:{width}}  {info['state']['messages']:>9} messages  {'; '.join(filter(None, reported))}".rstrip()
        )
    if len(seen.streams) > _MOST_SHOWN:
        lines.append(f"  … and {len(seen.streams) - _MOST_SHOWN} more")
    return [*lines, *(f"but {reason}" for reason in seen.unseen)]


def verdict_lines(comparison: Comparison) -> list[str]:
    """Print who provides each feature of a native configuration, one line each."""
    lines = [f"{comparison.stream}, as it is wanted"]
    if not comparison.verdicts:
        lines.append("  nothing that a rule has to do with")
    for verdict in comparison.verdicts:
        mark, colour = _MARKS[verdict.answer]
        lines.append(f"  {click.style(f'{mark:4}', fg=colour)} {printable(f'{verdict.feature}: {verdict.text}')}")
    return lines


def abilities(server: Dialect) -> tuple[tuple[str, bool, str], ...]:
    """List the features of a server version: the feature, whether it exists, and its limit or the bridge's rule."""
    republish = (
        "natively"
        if server.republish_can_be_edited
        else "natively, where the stream was created with it (10052 afterwards); kind: republish for the others"
    )
    copying = "silently ignores them; kind: sources, mirror or kv_sources"
    if server.stream_fields_of_2_10:
        copying = "natively" if server.overlapping_source_filters_work else "natively, filters that overlap excepted"
    ingress = "natively" if server.stream_fields_of_2_10 else "silently ignores it; kind: subject_transform"
    several = "several republish rules per stream, at least once, to other clusters"
    return (
        ("republish", True, republish),
        ("subject_transforms of sources", server.stream_fields_of_2_10, copying),
        ("subject_transform at the ingress", server.stream_fields_of_2_10, ingress),
        (several, False, "no server does; kind: republish"),
        ("dead letters with their message", False, "no server does; kind: advisories"),
    )
