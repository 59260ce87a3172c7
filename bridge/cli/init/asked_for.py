"""Turns an option of `init` into a rule that fits the existing streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from nats_bridge.bridge.cli.init.landscape import Landscape, bucket_of
from nats_bridge.bridge.cli.init.proposed_rule import ProposedRule
from nats_bridge.bridge.client.jetstream_api import Json
from nats_bridge.bridge.errors import ConfigError
from nats_bridge.bridge.jobs.handoff.stream_body import body_of
from nats_bridge.bridge.kinds.republish.side_effects import CONSUMER_RETENTIONS, reason_against_watching
from nats_bridge.bridge.rules.loops.subject_patterns import Pattern
from nats_bridge.bridge.settings.problems import did_you_mean
from nats_bridge.transforms.errors import StreamConfigError
from nats_bridge.transforms.stream_config import examine

__all__ = ["AS_USUAL", "HowToRepublish", "copying", "dead_letters", "ingress", "known_stream", "republishing"]

_GIVEN_UP = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES"


def known_stream(seen: Landscape, name: str) -> str:
    """The name, if there is such a stream.

    Raises:
        ConfigError: there is none.
    """
    if name not in seen.streams:
        hint = did_you_mean(name, list(seen.streams)) if seen.streams else "there is none in this account"
        raise ConfigError(f"no stream '{name}'; {hint}")
    return name


def _side_effect_of(seen: Landscape, stream: str) -> str:
    """The side effect of reading a stream, even in the most careful way; empty for none."""
    config = seen.config(stream) or {}
    reason = reason_against_watching(config, seen.consumers.get(stream, ()), None, durable=False, at_least_once=False)
    return reason or ""


@dataclass(frozen=True, slots=True)
class HowToRepublish:
    """The options that all requested republish rules share.

    Attributes:
        delivery: `at_most_once` or `at_least_once`.
        side_effects: whether it may be that watching changes what a stream holds.
    """

    delivery: str = "at_most_once"
    side_effects: bool = False


AS_USUAL: Final = HowToRepublish()


def republishing(
    seen: Landscape,
    stream: str,
    src: str,
    dest: str,
    how: HowToRepublish = AS_USUAL,
    *,
    headers_only: bool | None = None,
) -> ProposedRule:
    """A republish rule.

    Args:
        seen: the cluster.
        stream: whose messages; it need not be there.
        src: which subjects.
        dest: what they become.
        how: delivery, and whether side effects are accepted.
        headers_only: without bodies or with them; None: without them for buckets.
    """
    kind, bucket = bucket_of(stream)
    config = seen.config(stream) or {}
    data: dict[str, Any] = {
        "name": f"{bucket or stream}-{'changes' if bucket else 'monitor'}",
        "kind": "republish",
        "stream": stream,
        "republish": {"src": src, "dest": dest},
        "start": "new",
        "delivery": how.delivery,
    }
    why = [f"What stream {stream} stores on {src} comes out again on {dest}."]
    if bucket:
        why = [f"What changes in {kind} {bucket} ({src}) is announced on {dest}."]
        if headers_only is None:
            why.append("Only headers are sent: subscribers that need the contents read them.")
            headers_only = True
        if how.delivery == "at_most_once":
            why.append("No position is kept: a cache that starts reads the bucket anyway.")
            data["durable"] = False
    elif config.get("retention") in CONSUMER_RETENTIONS:
        what = "work queue" if config["retention"] == "workqueue" else "stream with interest retention"
        why.append(
            f"{stream} is a {what}: the rule reads next to its consumers and removes nothing. So it keeps no position"
            " on the server: that would be interest in the messages."
        )
        data["durable"] = False
        if how.side_effects and (effect := _side_effect_of(seen, stream)):
            data["allow_side_effects"] = True
            why.append(f"Accepted with allow_side_effects: it {effect}.")
    if headers_only:
        data["republish"]["headers_only"] = True
    native = config.get("republish") or {}
    if native.get("dest"):
        why.append(f"In addition, the server natively republishes {native.get('src') or '>'} to {native['dest']}.")
    elif how.delivery == "at_most_once":
        why += _natively(seen, stream, {"republish": data["republish"]})
    return ProposedRule(data, tuple(why))


def _natively(seen: Landscape, stream: str, members: Json) -> list[str]:
    """A remark, where the server does the same natively with these members."""
    config = seen.config(stream)
    if config is None:
        return []
    try:
        accepted = examine(
            {**body_of(config), **members}, seen.server, previous=config, sources=seen.others(stream), strict=False
        )
    except StreamConfigError:
        return []
    if any(warning.member.partition(".")[0].partition("[")[0] in members for warning in accepted.warnings):
        return []
    return [f"Server {seen.server_version} could do the same natively: {' and '.join(members)} of the stream."]


def copying(seen: Landscape, target: str, entries: Sequence[tuple[str, str, str]]) -> ProposedRule:
    """A sources rule.

    Args:
        seen: the cluster.
        target: the stream that receives.
        entries: source, pattern and destination of each transform; those of one source become one entry.
    """
    transforms: dict[str, list[dict[str, str]]] = {}
    for source, src, dest in entries:
        transforms.setdefault(source, []).append({"src": src, "dest": dest})
    sources = [{"name": source, "subject_transforms": each} for source, each in transforms.items()]
    data = {"name": f"{target}-sources", "kind": "sources", "stream": target, "sources": sources}
    why = [f"Stream {target} gets copies from {' and '.join(transforms)}, each message once."]
    there = list((seen.config(target) or {}).get("sources") or ())
    why += _natively(seen, target, {"sources": [*there, *sources]})
    return ProposedRule(data, tuple(why))


def ingress(seen: Landscape, stream: str, src: str, dest: str) -> ProposedRule:
    """A rule that transforms at a stream's ingress."""
    data = {
        "name": f"{stream}-ingress",
        "kind": "subject_transform",
        "stream": stream,
        "subject_transform": {"src": src, "dest": dest},
    }
    why = [f"What is published on {src} is stored by {stream}, on {dest}."]
    subjects = (seen.config(stream) or {}).get("subjects") or []
    why += _natively(seen, stream, {"subjects": [*subjects, src], "subject_transform": {"src": src, "dest": dest}})
    return ProposedRule(data, tuple(why))


def dead_letters(seen: Landscape, stream: str, dest: str) -> ProposedRule:
    """A rule that publishes the messages that consumers of a stream, or `*` for all, gave up.

    Args:
        seen: the cluster.
        stream: the stream, or `*`.
        dest: the destination; wildcard 1 is the consumer, for all streams the stream, and wildcard 2 the consumer.
    """
    whose = "every stream" if stream == "*" else stream
    data = {
        "name": "dead-letters" if stream == "*" else f"{stream}-dead-letters",
        "kind": "advisories",
        "republish": {"src": f"{_GIVEN_UP}.{stream}.*", "dest": dest},
        "attach_message": True,
    }
    pattern = str(Pattern.of_destination(dest))
    takers = [name for name in seen.takers(pattern) if name != stream and not bucket_of(name)[0]]
    kept = (
        f"Stream {takers[0]} takes them, and each is sent again until it has it."
        if takers
        else f"No stream takes {pattern} yet: until one does, they are not stored."
    )
    return ProposedRule(data, (f"Messages of {whose} that a consumer was given max_deliver times in vain.", kept))
