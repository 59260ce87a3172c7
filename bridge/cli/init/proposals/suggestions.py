"""What the streams of a cluster suggest: rules that somebody might want, each with the option that asks for it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from nats_bridge.bridge.cli.init.proposals.asked_for import HowToRepublish, dead_letters, republishing, side_effect_of
from nats_bridge.bridge.cli.init.proposals.landscape import Landscape, bucket_of
from nats_bridge.bridge.cli.init.proposals.obstacles import obstacle
from nats_bridge.bridge.cli.init.proposals.proposed_rule import ProposedRule
from nats_bridge.bridge.kinds.republish.side_effects import CONSUMER_RETENTIONS
from nats_bridge.bridge.rules.loops.subject_patterns import Pattern
from nats_bridge.bridge.settings.identity_destination import kept_subject
from nats_bridge.bridge.settings.leadership import LeadershipSettings

__all__ = ["Suggestion", "suggestions"]

_MOST = 20
"""As many as a person reads; each is looked at together with all streams, of which there may be thousands."""

_OWN_BUCKET = f"KV_{LeadershipSettings().bucket}"


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One rule that somebody might want.

    Attributes:
        words: the option that asks for it, with its values.
        note: why, in a few words.
        rule: the rule.
    """

    words: tuple[str, ...]
    note: str
    rule: ProposedRule

    @property
    def option(self) -> str:
        """The option as a shell takes it."""
        return shlex.join(self.words)


def suggestions(seen: Landscape) -> list[Suggestion]:
    """The first few rules for the streams as they are, each free of loops, on destinations that no stream has."""
    found: list[Suggestion] = []
    for stream in seen.streams:
        if len(found) >= _MOST:
            break
        if stream.startswith("$") or stream == _OWN_BUCKET:
            continue
        for suggestion in (*_republishing(seen, stream), *_dead_letters(seen, stream)):
            dest = str(Pattern.of_destination(suggestion.rule.data["republish"]["dest"]))
            if suggestion.rule.kind == "republish" and seen.takers(dest):
                continue  # whatever stands there would be stored among others
            if obstacle(suggestion.rule, (), seen) is None:
                found.append(suggestion)
    return found


def _republishing(seen: Landscape, stream: str) -> Iterator[Suggestion]:
    config = seen.streams[stream]["config"]
    if (config.get("republish") or {}).get("dest"):
        return
    kind, bucket = bucket_of(stream)
    subjects = config.get("subjects") or []
    if kind == "key-value bucket":
        src, dest, note = f"$KV.{bucket}.>", f"changed.{bucket}.>", "tell caches which keys have changed"
    elif kind:
        src, dest, note = f"$O.{bucket}.M.*", f"changed.{bucket}.{{{{wildcard(1)}}}}", "tell which objects have changed"
    else:
        alone = len(subjects) == 1 and subjects[0] != ">"
        src, dest = (subjects[0], f"monitor.{kept_subject(subjects[0])}") if alone else (">", f"monitor.{stream}.>")
        note = "for people who watch"
    side_effect = side_effect_of(seen, stream) if config.get("retention") in CONSUMER_RETENTIONS else ""
    rule = republishing(seen, stream, src, dest, HowToRepublish(side_effects=True))
    words: tuple[str, ...] = ("--republish", stream, src, dest)
    if side_effect:
        words, note = (*words, "--allow-side-effects"), f"{note}; but it {side_effect}"
    yield Suggestion(words, note, rule)


def _dead_letters(seen: Landscape, stream: str) -> Iterator[Suggestion]:
    giving_up = [
        str(consumer["name"])
        for consumer in seen.consumers.get(stream, ())
        if int(consumer["config"].get("max_deliver", -1)) > 0
    ]
    if giving_up:
        dest = f"dlq.{stream}.{{{{wildcard(1)}}}}"
        note = f"what consumer {' and '.join(giving_up[:3])} gives up, with the message"
        yield Suggestion(("--dead-letters", stream, dest), note, dead_letters(seen, stream, dest))
