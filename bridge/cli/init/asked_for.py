"""Turns an option of `init` into a rule that fits the existing streams."""

from __future__ import annotations

from typing import Any

from nats_bridge.bridge.cli.init.landscape import Landscape
from nats_bridge.bridge.cli.init.proposed_rule import ProposedRule
from nats_bridge.bridge.errors import ConfigError
from nats_bridge.bridge.kinds.republish.side_effects import CONSUMER_RETENTIONS
from nats_bridge.bridge.rules.loops.subject_patterns import Pattern
from nats_bridge.bridge.settings.problems import did_you_mean

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


def republishing(seen: Landscape, stream: str, src: str, dest: str, *, headers_only: bool = False) -> ProposedRule:
    """A republish rule.

    Args:
        seen: the cluster.
        stream: whose messages; it need not be there.
        src: which subjects.
        dest: what they become.
        headers_only: without bodies.
    """
    data: dict[str, Any] = {
        "name": f"{stream}-monitor",
        "kind": "republish",
        "stream": stream,
        "republish": {"src": src, "dest": dest},
        "start": "new",
        "delivery": "at_most_once",
    }
    why = [f"What stream {stream} stores on {src} comes out again on {dest}."]
    retention = (seen.config(stream) or {}).get("retention")
    if retention in CONSUMER_RETENTIONS:
        what = "work queue" if retention == "workqueue" else "stream with interest retention"
        why.append(
            f"{stream} is a {what}: the rule reads next to its consumers and removes nothing. So it keeps no position"
            " on the server: that would be interest in the messages."
        )
        data["durable"] = False
    if headers_only:
        data["republish"]["headers_only"] = True
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
    takers = [name for name in seen.takers(pattern) if name != stream]
    kept = (
        f"Stream {takers[0]} takes them, and each is sent again until it has it."
        if takers
        else f"No stream takes {pattern} yet: until one does, they are not stored."
    )
    return ProposedRule(data, (f"Messages of {whose} that a consumer was given max_deliver times in vain.", kept))
