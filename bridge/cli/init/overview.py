"""Prints what `nats-bridge init` finds on a cluster, and about a native configuration."""

from __future__ import annotations

import click

from nats_bridge.bridge.cli.init.landscape import Landscape
from nats_bridge.bridge.cli.init.native_wish import Comparison
from nats_bridge.bridge.observability.printable import printable

_MOST_SHOWN = 30  # streams
_MARKS = {
    "native": ("ok ", "green"),
    "possible": ("can", "yellow"),
    "rule": ("rule", "cyan"),
    "impossible": ("no ", "red"),
}


def overview(seen: Landscape, where: str) -> list[str]:
    """Summarise a cluster: the server's version, and the streams.

    Args:
        seen: the cluster.
        where: its address, or the context.
    """
    lines = [f"nats-server {seen.server_version} at {where}"]
    lines.append("streams" if seen.streams else "no streams in this account")
    width = max((len(printable(name)) for name in list(seen.streams)[:_MOST_SHOWN]), default=0)
    for name, info in list(seen.streams.items())[:_MOST_SHOWN]:
        config = info["config"]
        retention = config.get("retention", "limits")
        extra = ["" if retention == "limits" else retention]
        extra += [f"mirror of {config['mirror']['name']}"] if config.get("mirror") else []
        if config.get("sources"):
            extra.append("sources " + ", ".join(entry["name"] for entry in config["sources"]))
        if (config.get("republish") or {}).get("dest"):
            extra.append(f"republishes to {config['republish']['dest']}")
        if (config.get("subject_transform") or {}).get("dest"):
            extra.append(f"transforms to {config['subject_transform']['dest']}")
        reported = [printable(each) for each in (", ".join(config.get("subjects") or ()), *extra)]
        messages = f"{info['state']['messages']:>9} messages"
        lines.append(f"  {printable(name):{width}}  {messages}  {'; '.join(filter(None, reported))}".rstrip())
    if len(seen.streams) > _MOST_SHOWN:
        lines.append(f"  … and {len(seen.streams) - _MOST_SHOWN} more")
    return [*lines, *(f"but stream '{printable(name)}' does not answer" for name in seen.silent)]


def verdict_lines(comparison: Comparison) -> list[str]:
    """Print who provides each feature of a native configuration, one line each."""
    lines = [f"{comparison.stream}, as it is wanted"]
    if not comparison.verdicts:
        lines.append("  nothing that a rule has to do with")
    for verdict in comparison.verdicts:
        mark, colour = _MARKS[verdict.answer]
        lines.append(f"  {click.style(f'{mark:4}', fg=colour)} {printable(f'{verdict.feature}: {verdict.text}')}")
    return lines
