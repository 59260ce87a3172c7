"""Turns an option of `init` into a rule that fits the existing streams."""

from __future__ import annotations

from typing import Any

from nats_bridge.bridge.cli.init.landscape import Landscape, bucket_of
from nats_bridge.bridge.cli.init.proposed_rule import ProposedRule
from nats_bridge.bridge.client.jetstream_api import Json
from nats_bridge.bridge.errors import ConfigError
from nats_bridge.bridge.jobs.handoff.stream_body import body_of
from nats_bridge.bridge.kinds.republish.side_effects import CONSUMER_RETENTIONS
from nats_bridge.bridge.rules.loops.subject_patterns import Pattern
from nats_bridge.bridge.settings.problems import did_you_mean
from nats_bridge.transforms.errors import StreamConfigError
from nats_bridge.transforms.stream_config import examine

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


def republishing(
    seen: Landscape, stream: str, src: str, dest: str, *, headers_only: bool | None = None
) -> ProposedRule:
    """A republish rule.

    Args:
        seen: the cluster.
        stream: whose messages; it need not be there.
        src: which subjects.
        dest: what they become.
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
        "delivery": "at_most_once",
    }
    why = [f"What stream {stream} stores on {src} comes out again on {dest}."]
    if bucket:
        why = [f"What changes in {kind} {bucket} ({src}) is announced on {dest}."]
        if headers_only is None:
            why.append("Only headers are sent: subscribers that need the contents read them.")
            headers_only = True
        why.append("No position is kept: a cache that starts reads the bucket anyway.")
        data["durable"] = False
    elif config.get("retention") in CONSUMER_RETENTIONS:
        what = "work queue" if config["retention"] == "workqueue" else "stream with interest retention"
        why.append(
            f"{stream} is a {what}: the rule reads next to its consumers and removes nothing. So it keeps no position"
            " on the server: that would be interest in the messages."
        )
        data["durable"] = False
    if headers_only:
        data["republish"]["headers_only"] = True
    native = config.get("republish") or {}
    if native.get("dest"):
        why.append(f"In addition, the server natively republishes {native.get('src') or '>'} to {native['dest']}.")
    else:
        why += _natively(seen, stream, data["republish"])
    return ProposedRule(data, tuple(why))


def _natively(seen: Landscape, stream: str, republish: Json) -> list[str]:
    """A line, if the server would do the same."""
    config = seen.config(stream)
    if config is None:
        return []
    wanted = {**body_of(config), "republish": republish}
    try:
        accepted = examine(wanted, seen.server, previous=config, sources=seen.others(stream), strict=False)
    except StreamConfigError:
        return []
    if any(warning.member.partition(".")[0] == "republish" for warning in accepted.warnings):
        return []
    return [f"Server {seen.server_version} could do the same natively: republish of the stream."]


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
