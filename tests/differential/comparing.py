"""Compares what a server showed of a trial with the engine: one comparison per decision and per message."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nats_conformance.catalogue.case import ExpectedRefusal, Json, Message
from nats_conformance.judging import shown
from nats_conformance.observation import Decision, Observation, Stored
from nats_transforms.source_record import HEADER, SourceRecord
from nats_transforms.subject import tokens
from tests.differential.drawing import SOURCE, TARGET
from tests.differential.engine import Engine
from tests.differential.trial import Kind, Trial

_ABSENT = "(absent)"
_NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One decision or one message.

    Attributes:
        kind: what it counts as.
        key: equal for equal inputs.
        aspect: what was compared: ``decision``, ``config``, ``received``, ``stored`` or ``order``.
        counts: whether a difference could have been seen.
        where: the place of the difference; empty: there is none.
        native: what the server showed there.
        engine: the engine's.
    """

    kind: Kind
    key: tuple[object, ...]
    aspect: str
    counts: bool = True
    where: str = ""
    native: str = ""
    engine: str = ""

    @property
    def agrees(self) -> bool:
        """Whether server and engine agree."""
        return not self.where


def listening(trial: Trial, engine: Engine) -> tuple[bytes, ...]:
    """The subjects on which republished messages can arrive."""
    decided = engine.decide(trial).config
    rule = None if decided is None else engine.republish_of(decided)
    if decided is None or rule is None or not trial.messages:
        return ()
    heads: dict[bytes, None] = {}
    for message in trial.messages:
        for entry in engine.entries_of(decided) if trial.copies else [None]:
            subject = message.subject
            if entry is not None:
                subject = engine.sourcing_of(entry, mirrors=trial.kind is Kind.MIRROR).destination(subject) or subject
            result = rule.transform.apply(engine.ingressed(decided, subject))
            if result:
                head, *rest = tokens(result)
                heads[head + b".>" if rest else head] = None
    return (*heads,) or (b"d.>",)


def copies_expected(trial: Trial, engine: Engine, source: Sequence[Stored]) -> int:
    """How many messages the copying stream is to hold."""
    config = engine.decide(trial).config
    if config is None:
        return 0
    mirrors = trial.kind is Kind.MIRROR
    return sum(
        engine.copied(entry, stored, b"", mirrors=mirrors) is not None
        for entry in engine.entries_of(config)
        for stored in source
    )


def comparisons(trial: Trial, native: Observation, engine: Engine) -> Iterator[Comparison]:
    """Everything that can be compared, in the order in which it happened."""
    decided = engine.decide(trial)
    kind = Kind.UPDATE if trial.previous is not None else Kind.CREATE
    others = _text(list(trial.others))
    if trial.previous is not None:
        key = (_text(trial.previous), others)
        yield _decision(Kind.CREATE, key, native.decisions[0], engine.decide_before(trial))
    if trial.previous is None or native.decisions[0].refusal is None:
        yield _decision(kind, (_text(trial.config), _text(trial.previous), others), native.decisions[-1], decided)
    if decided.config is None or native.decisions[-1].config is None or not trial.messages:
        return
    if trial.copies:
        yield from _copies(trial, decided.config, native, engine)
    else:
        yield from _ingress(trial, decided.config, native, engine)
    if decided.config.get("republish") is not None:
        yield from _republished(trial, decided.config, native, engine)


def _text(value: Json) -> str:
    return json.dumps(value, sort_keys=True)


def _decision(kind: Kind, key: tuple[object, ...], native: Decision, engine: Decision) -> Comparison:
    if native.refusal is not None or engine.refusal is not None:
        if native.refusal == engine.refusal:
            return Comparison(kind, key, "decision")
        texts = _refusal_text(native.refusal), _refusal_text(engine.refusal)
        return Comparison(kind, key, "decision", True, "decision", *texts)
    one, other = native.config or {}, engine.config or {}
    different = [name for name in {**one, **other} if one.get(name, _ABSENT) != other.get(name, _ABSENT)]
    if not different:
        return Comparison(kind, key, "config")
    where = f"config.{different[0]}"
    return Comparison(kind, key, "config", True, where, _value(one, different[0]), _value(other, different[0]))


def _refusal_text(refusal: ExpectedRefusal | None) -> str:
    return "accepted" if refusal is None else f"{refusal.code}/{refusal.err_code} {refusal.description}"


def _value(config: Mapping[str, Json], name: str) -> str:
    return json.dumps(config[name], ensure_ascii=False) if name in config else _ABSENT


def _ingress(trial: Trial, config: Mapping[str, Json], native: Observation, engine: Engine) -> Iterator[Comparison]:
    if config.get("subject_transform") is None and trial.config.get("subject_transform") is None:
        return
    stored = {each.sequence: each for each in native.stored.get(TARGET, ())}
    rule = _text(config.get("subject_transform"))
    for at, (message, ack) in enumerate(zip(trial.messages, native.acks, strict=True)):
        if ack is None or "error" in ack or ack.get("duplicate"):
            continue
        expected, seen = engine.ingressed(config, message.subject), stored.get(ack["seq"])
        found = None if seen is None else seen.message.subject
        key = ("ingress", rule, message.subject)
        if found != expected:
            where = f"stored[{at}].subject"
            yield Comparison(Kind.INGRESS, key, "stored", True, where, _bytes(found), _bytes(expected))
        elif "subject_transform" in config:
            yield Comparison(Kind.INGRESS, key, "stored")
        # A version that does not know the member stores messages as they come: no transform was compared.


def _republished(trial: Trial, config: Mapping[str, Json], native: Observation, engine: Engine) -> Iterator[Comparison]:
    received: dict[int, list[Message]] = {}
    for message in native.received:
        received.setdefault(_sequence(message), []).append(message)
    last: dict[bytes, int] = {}
    rule = _text(config["republish"])
    for stored in native.stored.get(TARGET, ()):
        subject = stored.message.subject
        expected = engine.republished(config, stored, last.get(subject, 0))
        last[subject] = stored.sequence
        seen = received.pop(stored.sequence, [])
        key = ("republish", rule, subject, stored.message.header_block, stored.message.payload)
        counts = bool(seen) or not engine.cannot_be_received(config, subject)
        place = f"received of sequence {stored.sequence}"
        yield _message(Kind.REPUBLISH, key, "received", counts, place, seen, expected)
    for extra in received.values():
        yield Comparison(Kind.REPUBLISH, (), "received", True, "received", _bytes(extra[0].subject), _NOTHING)
    order = [_sequence(message) for message in native.received]
    if len(listening(trial, engine)) == 1 and order != sorted(order):
        yield Comparison(
            Kind.REPUBLISH, (), "order", True, "order of what was received", str(order), str(sorted(order))
        )


def _sequence(message: Message) -> int:
    """The sequence that the server wrote; 0: this is no republished message."""
    value = message.header_block.rpartition(b"Nats-Sequence: ")[2].partition(b"\r\n")[0]
    return int(value) if value.isdigit() else 0


def _copies(trial: Trial, config: Mapping[str, Json], native: Observation, engine: Engine) -> Iterator[Comparison]:
    mirrors = trial.kind is Kind.MIRROR
    target = native.stored.get(TARGET, ())
    left = list(target)
    for entry in engine.entries_of(config):
        sourcing = engine.sourcing_of(entry, mirrors=mirrors)
        texts = (b"\x0c".join(sourcing.record_filters), b"\x0c".join(sourcing.record_destinations))
        own = [each for each in target if mirrors or _texts_of(_record(each), texts) == texts]
        copies: dict[int, list[Stored]] = {}
        for each in own:
            record = _record(each)
            copies.setdefault(each.sequence if mirrors else record.sequence if record else 0, []).append(each)
        key = (_text(entry), _text(config.get("subject_transform")))
        for stored in native.stored[SOURCE]:
            seen = copies.pop(stored.sequence, [])
            record = _record(seen[0]) if seen else None
            made = engine.copied(entry, stored, record.identity if record else b"", mirrors=mirrors)
            if made is not None:
                made = Message(engine.ingressed(config, made.subject), made.header_block, made.payload)
            of_message = (*key, stored.message.subject, stored.message.header_block, stored.message.payload)
            place = f"copy of sequence {stored.sequence}"
            yield _message(trial.kind, of_message, "stored", True, place, [each.message for each in seen], made)
        left = [each for each in left if each not in own]
        left += [each for extra in copies.values() for each in extra]
        yield from _order(trial.kind, own, mirrors=mirrors)
    for extra in left:
        yield Comparison(trial.kind, (), "stored", True, "stored", _bytes(extra.message.subject), _NOTHING)


def _record(stored: Stored) -> SourceRecord | None:
    """The record that the server wrote: it is the last one, in an odd block not at the beginning of a line."""
    _, name, value = stored.message.header_block.rpartition(HEADER + b": ")
    return SourceRecord.parse(value.partition(b"\r\n")[0]) if name else None


def _texts_of(record: SourceRecord | None, whole: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    """Filters and destinations of a record; one that names none is any entry's."""
    if record is None or record.filters is None or record.destinations is None:
        return whole
    return b"\x0c".join(record.filters), b"\x0c".join(record.destinations)


def _order(kind: Kind, own: Sequence[Stored], *, mirrors: bool) -> Iterator[Comparison]:
    numbers = [each.sequence if mirrors else record.sequence if (record := _record(each)) else 0 for each in own]
    if numbers != sorted(numbers):
        yield Comparison(kind, (), "order", True, "order of the copies", str(numbers), str(sorted(numbers)))


def _message(
    kind: Kind,
    key: tuple[object, ...],
    aspect: str,
    counts: bool,
    place: str,
    seen: Sequence[Message],
    expected: Message | None,
) -> Comparison:
    if not seen and expected is None:
        return Comparison(kind, key, aspect, counts)
    if len(seen) == 1 and expected is not None:
        if seen[0] == expected:
            return Comparison(kind, key, aspect, counts)
        for member in ("subject", "header_block", "payload"):
            found, wanted = getattr(seen[0], member), getattr(expected, member)
            if found != wanted:
                return Comparison(kind, key, aspect, True, f"{place}: {member}", _bytes(found), _bytes(wanted))
    native = " and ".join(_bytes(message.subject) for message in seen) or _NOTHING
    return Comparison(
        kind, key, aspect, True, place, native, _NOTHING if expected is None else _bytes(expected.subject)
    )


def _bytes(raw: bytes | None) -> str:
    return _NOTHING if raw is None else shown(raw)
