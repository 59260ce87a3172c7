"""What an outside process cannot know or do: taken out of both sides before they are compared again.

Theory of operation: a table of normalisers, by the id under which ``docs/known-divergences.md`` explains what they take
out. Each gets what is expected and what was seen, and gives both back without it. A verdict names the fewest that leave
nothing to explain. What no normaliser can express, a case may name itself; an id that has one explains no more than it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from conformance.catalogue.case import Case, Create, Delete, Expectation, ExpectedMessage, Message, Refusal, Update
from conformance.expected_text import matches_text, without_placeholders
from conformance.observation import Observation, Stored
from conformance.outcome import Mismatch
from conformance.subjects.identity import Identity
from transforms.dialect import dialect
from transforms.subject import WHITE_SPACE, collide, is_valid_publish

__all__ = ["NORMALISERS", "reconciled"]

Compare: TypeAlias = Callable[[Expectation, Observation], Iterable[Mismatch]]


@dataclass(frozen=True, slots=True)
class Pair:
    """What is expected and what was seen, of a case and a subject of test."""

    case: Case
    subject: Identity
    expectation: Expectation
    observation: Observation

    @property
    def refusals(self) -> tuple[str, ...]:
        """The bridge's own words on the rules that it refuses."""
        return tuple(str(text) for fact, text in self.observation.facts.items() if fact.startswith("refused "))

    @property
    def configs(self) -> tuple[Mapping[str, Any], ...]:
        """All configurations of the case."""
        steps = (step.config for step in self.case.steps if isinstance(step, Create | Update))
        return (*self.case.streams, *steps)

    def streams(self, member: str) -> frozenset[str]:
        """The streams of the case that have a member in some configuration."""
        return frozenset(str(config.get("name")) for config in self.configs if config.get(member))

    @property
    def copies(self) -> frozenset[str]:
        """The streams of the case that copy from others."""
        return self.streams("sources") | self.streams("mirror")


Normaliser: TypeAlias = Callable[[Pair], Pair]


def reconciled(
    case: Case, subject: Identity, expectation: Expectation, observation: Observation, compare: Compare
) -> tuple[tuple[str, ...], tuple[Mismatch, ...]]:
    """The ids of the known divergences that were met, and what is left that none explains."""
    raw = Pair(case, subject, expectation, observation)
    before = tuple(compare(expectation, observation))
    if not before:
        return (), ()
    possible = [name for name, normalise in NORMALISERS.items() if normalise(raw) != raw]
    for count in range(1, len(possible) + 1):
        for names in combinations(possible, count):
            pair = raw
            for name in names:
                pair = NORMALISERS[name](pair)
            if not any(compare(pair.expectation, pair.observation)):
                return names, ()
    named = tuple(name for name in case.kd if name not in NORMALISERS or name in _NAMED_TOO)
    return (named, ()) if named and _may_be_named(before, expectation, observation) else ((), before)


def _may_be_named(found: Iterable[Mismatch], expectation: Expectation, observation: Observation) -> bool:
    """Whether a case's own word can explain what was found.

    It is about messages that are other ones. A wrong or missing answer to a configuration is none of that, and a bridge
    of which no message at all was seen did nothing.
    """
    is_about_messages = all(mismatch.where.startswith(("received", "stored", "acks")) for mismatch in found)
    expects = bool(expectation.received) or any((expectation.stored or {}).values())
    shows = bool(observation.received) or any(observation.stored.values())
    return is_about_messages and (shows or not expects)


# -- rules that are refused ------------------------------------------------------------------------------------------


_ERROR_NUMBER: Final = re.compile(r"\(10[0-9]{3}\)")


def _refused_with(*words: str) -> Normaliser:
    """A rule that servers take and the bridge refuses, saying one of these words."""

    def normalise(pair: Pair) -> Pair:
        if pair.expectation.refusal is None and any(word in text for text in pair.refusals for word in words):
            return _as_refused(pair)
        return pair

    return normalise


def _refused_before_2_10(pair: Pair) -> Pair:
    """What 2.9 does not know or does not check is checked as 2.10 does it, which is said with an error's number."""
    is_old = pair.subject.version < _FIRST_WITH_TRANSFORMS
    told = any(_ERROR_NUMBER.search(text) or "a dialect before 2.10" in text for text in pair.refusals)
    return _as_refused(pair) if is_old and told and pair.expectation.refusal is None else pair


_NOT_UPDATED: Final = 10069
_INVALID: Final = 10052
_FIRST_WITH_TRANSFORMS: Final = (2, 10, 0)


def _refused_update(pair: Pair) -> Pair:
    last = next((step for step in reversed(pair.case.steps) if isinstance(step, Create | Update)), None)
    if not pair.refusals or not isinstance(last, Update):
        return pair
    wanted = pair.expectation.refusal
    if wanted is None:
        return _as_refused(pair)
    if wanted.err_code == _NOT_UPDATED:
        return replace(pair, expectation=replace(pair.expectation, refusal=Refusal()))
    return pair


def _as_refused(pair: Pair) -> Pair:
    return replace(pair, expectation=Expectation(refusal=Refusal()))


# -- old servers --------------------------------------------------------------------------


def _transforms_act(pair: Pair) -> Pair:
    """A dialect before 2.10 shows what 2.10 does with transforms."""
    entries = [entry for config in pair.configs for entry in (config.get("mirror"), *(config.get("sources") or ()))]
    has_transforms = any(isinstance(entry, Mapping) and entry.get("subject_transforms") for entry in entries)
    if pair.subject.version >= _FIRST_WITH_TRANSFORMS or not (has_transforms or pair.streams("subject_transform")):
        return pair
    return replace(pair, expectation=pair.case.expected(_FIRST_WITH_TRANSFORMS))


def _accepted_source(pair: Pair) -> Pair:
    """Before 2.10 a republish source had to overlap a subject of the stream."""
    refusal = pair.expectation.refusal
    if pair.subject.version >= _FIRST_WITH_TRANSFORMS or refusal is None or refusal.err_code != _INVALID:
        return pair
    for config in pair.configs:
        wanted = config.get("republish") or {}
        source = str(wanted.get("src") or ">").encode()
        if wanted and not any(collide(source, subject.encode()) for subject in config.get("subjects") or ()):
            return replace(pair, expectation=replace(pair.expectation, refusal=None))
    return pair


_STATUS: Final = re.compile(rb"\ANATS/1\.0[^\r]+\r\n")
_REQUEST_INFO: Final = re.compile(rb"(?<=\r\n)Nats-Request-Info: [^\r]*\r\n")


def _stored_by_older(pair: Pair) -> Pair:
    """A server that is older than the dialect stores what newer ones take out."""
    if dialect(pair.subject.server or pair.subject.dialect).version >= pair.subject.version:
        return pair
    return _seen_blocks(pair, lambda block: _REQUEST_INFO.sub(b"", _STATUS.sub(b"NATS/1.0\r\n", block)))


# -- copies ----------------------------------------------------------------------------------------------------------

_OWN_ID: Final = re.compile(rb"(?<=\r\n)Nats-Msg-Id: bridge-[0-9a-f]{12}-[0-9]+-[0-9]+\r\n")
_RECORD: Final = re.compile(rb"(?<=\r\n)Nats-(?:Stream|Bridge)-Source: [^\r]*\r\n")
_IDENTITY: Final = re.compile(rb"(\r\nNats-(?:Stream|Bridge)-Source: [^\r]*) (?:<identity>|[0-9A-Za-z]{8})\r\n")
_WITHHELD: Final = re.compile(rb"(?<=\r\n)Nats-(?:Rollup|TTL|Expected-[^:]*|Batch-[^:]*): ?[^\r]*\r\n")
_EARLIER_RECORD: Final = re.compile(
    rb"(?<=\r\n)Nats-Stream-Source: [^\r]*\r\n(?=(?:.*\r\n)?Nats-Stream-Source: )", re.DOTALL
)
_FIRST_WITHOUT_EARLIER_RECORDS: Final = (2, 11, 0)
_NO_LINES: Final = b"NATS/1.0\r\n\r\n"


def _message_id(pair: Pair) -> Pair:
    return _seen_blocks(pair, lambda block: _OWN_ID.sub(b"", block))


def _record_name(pair: Pair) -> Pair:
    if dialect(pair.subject.server or pair.subject.dialect).version < (2, 15, 0):
        return pair
    return _seen_blocks(pair, lambda block: block.replace(b"\r\nNats-Bridge-Source: ", b"\r\nNats-Stream-Source: "))


def _identity(pair: Pair) -> Pair:
    if not pair.copies:
        return pair
    return _expected_blocks(pair, lambda block: _IDENTITY.sub(rb"\1\r\n", block))


def _mirror_record(pair: Pair) -> Pair:
    mirrors = pair.streams("mirror")

    def cut(block: bytes) -> bytes:
        return _RECORD.sub(b"", block)

    stored = {
        stream: tuple(_with_block(each, cut) for each in messages) if stream in mirrors else messages
        for stream, messages in pair.observation.stored.items()
    }
    of_mirrors = tuple(b"Nats-Stream: %b\r\n" % name.encode() for name in mirrors)
    received = tuple(
        _cut(message, cut) if any(line in message.header_block for line in of_mirrors) else message
        for message in pair.observation.received
    )
    return replace(pair, observation=replace(pair.observation, stored=stored, received=received))


def _earlier_records(pair: Pair) -> Pair:
    """Before 2.11 servers leave in all records of earlier copies but the first."""
    if pair.subject.version >= _FIRST_WITHOUT_EARLIER_RECORDS or not pair.copies:
        return pair
    return _expected_blocks(pair, lambda block: _EARLIER_RECORD.sub(b"", block))


def _withheld(pair: Pair) -> Pair:
    if not pair.copies:
        return pair
    return _expected_blocks(pair, lambda block: _WITHHELD.sub(b"", block), pair.copies)


def _mirror_sequence(pair: Pair) -> Pair:
    mirrors = pair.streams("mirror")
    stored = {
        stream: tuple(replace(each, sequence=None) for each in messages) if stream in mirrors else messages
        for stream, messages in (pair.expectation.stored or {}).items()
    }
    return replace(pair, expectation=replace(pair.expectation, stored=stored)) if stored else pair


def _copy_unpublishable(pair: Pair) -> Pair:
    rejected = pair.observation.facts.get("rejected")
    if not rejected:
        return pair
    return _without_unpublishable(pair, pair.copies)


_PROBE: Final = b"\r\nNats-Expected-Last-Sequence: 9223372036854775807\r\n"


def _probe(pair: Pair) -> Pair:
    kept = tuple(each for each in pair.observation.received if _PROBE not in each.header_block)
    return replace(pair, observation=replace(pair.observation, received=kept))


def _heard(*members: str) -> Normaliser:
    """Rules publish what natively is only stored: subscribers of the stored subjects get it."""

    def normalise(pair: Pair) -> Pair:
        streams = frozenset[str]().union(*(pair.streams(member) for member in members))
        stored = {
            each.message
            for stream, messages in pair.observation.stored.items()
            if stream in streams
            for each in messages
        }
        kept = tuple(each for each in pair.observation.received if each not in stored)
        return replace(pair, observation=replace(pair.observation, received=kept))

    return normalise


# -- ingress ---------------------------------------------------------------------------------------------------------

_INGRESS_REFUSAL: Final = "stream transform: nats-bridge: "


def _ingress_refused(*words: str) -> Normaliser:
    """A message that the server stores and an ingress rule refuses, with one of these words in the answer."""

    def is_refused(ack: Mapping[str, Any] | None) -> bool:
        said = str((ack or {}).get("description", ""))
        return said.startswith(_INGRESS_REFUSAL) and any(word in said for word in words)

    def normalise(pair: Pair) -> Pair:
        seen = pair.observation.acks
        if not any(map(is_refused, seen)):
            return pair
        found = pair.expectation
        if found.acks is not None and len(found.acks) == len(seen):
            acks: list[Mapping[str, Any] | None] = []
            for wanted, ack in zip(found.acks, seen, strict=True):
                before = sum(map(is_refused, seen[: len(acks)]))
                if is_refused(ack):
                    acks.append({})
                elif wanted is not None and "seq" in wanted:
                    acks.append({**wanted, "seq": wanted["seq"] - before})
                else:
                    acks.append(wanted)
            found = replace(found, acks=tuple(acks))
        return _without_unpublishable(replace(pair, expectation=found), pair.streams("subject_transform"))

    return normalise


# -- republished messages --------------------------------------------------------------------------------------------

_LAST: Final = re.compile(rb"(?<=\r\n)Nats-Last-Sequence: [0-9]+\r\n")
_FIRST_WITHOUT_DEFECT: Final = (2, 12, 5)


def _white_space(pair: Pair) -> Pair:
    received = pair.expectation.received
    if received is None:
        return pair
    kept = tuple(each for each in received if not set(without_placeholders(each.subject)) & set(WHITE_SPACE))
    return replace(pair, expectation=replace(pair.expectation, received=kept))


_DEL: Final = b"\x7f"


def _unfound(pair: Pair) -> Pair:
    """A subject with the byte 7f is one that a consumer's filter does not find."""
    filled = pair.copies
    found = pair.expectation
    received = None if found.received is None else tuple(each for each in found.received if _DEL not in each.subject)
    stored = {
        stream: tuple(each for each in messages if stream not in filled or _DEL not in each.subject)
        for stream, messages in (found.stored or {}).items()
    }
    return replace(pair, expectation=replace(found, received=received, stored=stored or found.stored))


def _drained(pair: Pair) -> Pair:
    """A work queue gives to the rule what it holds, where nobody else is there."""
    queues = {str(config.get("name")) for config in pair.configs if config.get("retention") == "workqueue"}
    stored = {
        stream: () if stream in queues and not pair.observation.stored.get(stream) else messages
        for stream, messages in (pair.expectation.stored or {}).items()
    }
    return replace(pair, expectation=replace(pair.expectation, stored=stored)) if stored else pair


def _last_sequence_where(holds: Callable[[Pair], bool], mistaken: bytes = b"[0-9]+") -> Normaliser:
    """Where something holds of a case, the last sequences that the server wrote are not looked at."""
    expected_line = re.compile(rb"(?<=\r\n)Nats-Last-Sequence: " + mistaken + rb"\r\n")

    def normalise(pair: Pair) -> Pair:
        received, seen = pair.expectation.received, pair.observation.received
        if received is None or len(seen) != len(received) or not holds(pair):
            return pair
        expected: list[ExpectedMessage] = []
        for wanted, message in zip(received, seen, strict=True):
            line = _LAST.search(message.header_block)
            if wanted.header_block is not None and line is not None:
                # The last line of a message's lines is the one that the republished message got last.
                block = expected_line.sub(line[0], wanted.header_block)
                wanted = replace(wanted, header_block=block)
            expected.append(wanted)
        return replace(pair, expectation=replace(pair.expectation, received=tuple(expected)))

    return normalise


def _has_the_defect(pair: Pair) -> bool:
    deletes = any(isinstance(step, Delete) for step in pair.case.steps)
    return deletes and pair.subject.version < _FIRST_WITHOUT_DEFECT


def _may_expire(pair: Pair) -> bool:
    return bool(pair.streams("max_age") | pair.streams("max_bytes") | pair.streams("allow_msg_ttl"))


def _is_consumed(pair: Pair) -> bool:
    return any(config.get("retention") in ("interest", "workqueue") for config in pair.configs)


# -- what they are made of -------------------------------------------------------------------------------------------


def _without_unpublishable(pair: Pair, streams: frozenset[str]) -> Pair:
    """Without expected messages that no client could publish; later ones have the sequences that are left."""
    stored: dict[str, tuple[ExpectedMessage, ...]] = {}
    for stream, messages in (pair.expectation.stored or {}).items():
        kept: list[ExpectedMessage] = []
        for at, each in enumerate(messages):
            if stream not in streams or is_valid_publish(each.subject):
                gone = at - len(kept)
                kept.append(each if each.sequence is None else replace(each, sequence=each.sequence - gone))
        stored[stream] = tuple(kept)
    return replace(pair, expectation=replace(pair.expectation, stored=stored)) if stored else pair


def _expected_blocks(pair: Pair, change: Callable[[bytes], bytes], streams: frozenset[str] | None = None) -> Pair:
    def changed(each: ExpectedMessage) -> ExpectedMessage:
        if each.header_block is None:
            return each
        return replace(each, header_block=_tidy(change(each.header_block)))

    found = pair.expectation
    stored = None
    if found.stored is not None:
        stored = {
            stream: tuple(map(changed, messages)) if streams is None or stream in streams else messages
            for stream, messages in found.stored.items()
        }
    received = None if found.received is None else tuple(map(changed, found.received))
    return replace(pair, expectation=replace(found, stored=stored, received=received))


def _seen_blocks(pair: Pair, change: Callable[[bytes], bytes]) -> Pair:
    seen = pair.observation
    stored = {stream: tuple(_with_block(each, change) for each in messages) for stream, messages in seen.stored.items()}
    received = tuple(_cut(message, change) for message in seen.received)
    return replace(pair, observation=replace(seen, stored=stored, received=received))


def _with_block(stored: Stored, change: Callable[[bytes], bytes]) -> Stored:
    return replace(stored, message=_cut(stored.message, change))


def _cut(message: Message, change: Callable[[bytes], bytes]) -> Message:
    return replace(message, header_block=_tidy(change(message.header_block)))


def _tidy(block: bytes) -> bytes:
    """A block whose last line was taken out is none."""
    return b"" if block == _NO_LINES else block


def _order_of_rules(pair: Pair) -> Pair:
    """Several republish rules: each in its own order, and put together as servers do it."""
    expected, seen = pair.expectation.received, pair.observation.received
    if expected is None or len(pair.streams("republish")) < 2:
        return pair
    queues: dict[bytes, list[Message]] = {}
    for message in seen:
        senders = _SENDER.findall(message.header_block)
        queues.setdefault(senders[-1] if senders else b"", []).append(message)
    ordered: list[Message] = []
    for wanted in expected:
        fitting = next((queue for queue in queues.values() if queue and _is_meant(wanted, queue[0])), None)
        if fitting is None:
            break
        ordered.append(fitting.pop(0))
    left = [message for queue in queues.values() for message in queue]
    return replace(pair, observation=replace(pair.observation, received=(*ordered, *left)))


_SENDER: Final = re.compile(rb"(?<=\r\nNats-Stream: )[^\r]*")


def _is_meant(wanted: ExpectedMessage, seen: Message) -> bool:
    pairs = ((wanted.subject, seen.subject), (wanted.payload, seen.payload))
    return all(expected is None or matches_text(expected, found) for expected, found in pairs)


_NAMED_TOO: Final = frozenset(
    {"kd/transforms/before-2.10", "kd/older-server/ingest", "kd/copy/record-name", "kd/order/two-rules"}
)
"""Ids that a case may name although they have a normaliser, as that sees a part of them only.

A case that is about servers before 2.10 alone says nothing of what 2.10 does. What newer servers cut out of a block
with odd line ends sticks its first line to the next one. The other name of a record also lets
copies into streams that a server keeps them out of. Of two messages of one id, that of the faster rule is stored.
"""

NORMALISERS: Final[Mapping[str, Normaliser]] = MappingProxyType(
    {
        "kd/refused/idle": _refused_with(
            "nothing would be republished",
            "nothing would be transformed",
            "no message can be published there",
            "no subject can match it",
        ),
        "kd/refused/loop": _refused_with("detected cycle", "loop:", "forms a cycle", "an endless loop"),
        "kd/refused/reserved": _refused_with("which belongs to servers and replies"),
        "kd/refused/star-token": _refused_with("stands for any token in a stream's transform"),
        "kd/refused/start-beyond-end": _refused_with("is beyond its end"),
        "kd/refused/side-effects": _refused_with("allow_side_effects: true"),
        "kd/refused/null": _refused_with("not nothing"),
        "kd/refused/crash": _refused_with("partition of 0 ends"),
        "kd/refused/name": _refused_with("cannot be a stream's name", "'name' is missing"),
        "kd/refused/unknown-key": _refused_with("unknown key"),
        "kd/refused/selects-nothing": _refused_with("overlaps none of its subjects"),
        "kd/copy/same-stream-twice-2.9": _refused_with("servers before 2.10 keep one position for both"),
        "kd/refused/before-2.10": _refused_before_2_10,
        "kd/refused/update": _refused_update,
        "kd/accepted/source": _accepted_source,
        "kd/transforms/before-2.10": _transforms_act,
        "kd/older-server/ingest": _stored_by_older,
        "kd/copy/message-id": _message_id,
        "kd/copy/record-name": _record_name,
        "kd/copy/identity": _identity,
        "kd/copy/mirror-is-a-stream": _mirror_record,
        "kd/copy/earlier-records": _earlier_records,
        "kd/copy/time-and-sequence": _mirror_sequence,
        "kd/copy/withheld": _withheld,
        "kd/copy/unpublishable": _copy_unpublishable,
        "kd/copy/heard": _heard("sources", "mirror"),
        "kd/copy/probe": _probe,
        "kd/ingress/heard": _heard("subject_transform"),
        "kd/ingress/unpublishable": _ingress_refused("becomes"),
        "kd/ingress/wildcard-tokens": _ingress_refused("holds a wildcard as a token"),
        "kd/messages/white-space": _white_space,
        "kd/messages/del": _unfound,
        "kd/stream/work-queue-drains": _drained,
        "kd/last-sequence/native-defect": _last_sequence_where(_has_the_defect, b"0"),
        "kd/last-sequence/expiry": _last_sequence_where(_may_expire),
        "kd/last-sequence/consumed": _last_sequence_where(_is_consumed),
        "kd/order/two-rules": _order_of_rules,
    }
)
"""Every normaliser by its id, in the order in which they are applied."""
