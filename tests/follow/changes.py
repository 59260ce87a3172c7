"""Compares two test subjects in a few words: the expectations in force for one case, side by side.

Theory of operation. A known difference is a separate expectation, which the judge has compared with the server's
behaviour. So two good cells with the same expectation behave alike, and two with different ones differ exactly where
the expectations do. Codes and texts of refusals are taken from the observation, because expectations may leave them
out. Times differ from run to run and are placeholders in expectations, so the words are the same for every run. A cell
that failed is shown as the expectation that it would meet.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import starmap, zip_longest

from nats_conformance.catalogue.case import (
    Case,
    Expectation,
    ExpectedRefusal,
    Json,
    Message,
    MessagePattern,
    TransformPlace,
)
from nats_conformance.judging import in_order_of, matches_message, shown
from nats_conformance.observation import Observation, Stored
from nats_conformance.outcome import Outcome
from nats_conformance.reports.judgement import Cell

NOTHING = "nothing"
_ABSENT = "absent"
_EXPECTED = "as expected"
_TIME = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z")


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between two cells. `what` names it; the other fields are as short as possible."""

    what: str
    before: str
    after: str


def changes(case: Case, before: Cell, after: Cell) -> tuple[Change, ...]:
    """Return the differences of a case in two cells; none if one of them did not run, or both are equal."""
    if before.observation is None or after.observation is None:
        return ()
    found = tuple(_changes(case, before, after))
    if not found and before.verdict.mismatches != after.verdict.mismatches:
        # For example a time that is not the stored one, which no expectation contains.
        sides = [{each.where: each.observed for each in cell.verdict.mismatches} for cell in (before, after)]
        wheres = dict.fromkeys(where for side in sides for where in side)
        found = tuple(Change(where, *(side.get(where, _EXPECTED) for side in sides)) for where in wheres)
    return found


def _shown(cell: Cell) -> Expectation | None:
    """Return the expectation that a cell meets; None if the case does not apply."""
    wanted, seen = cell.expectation, cell.observation
    if wanted is None or seen is None or cell.verdict.outcome is not Outcome.FAIL:
        return wanted
    stored = {
        stream: tuple(_as_expected(each.message, messages, each.sequence) for each in _ordered(wanted, stream, seen))
        for stream, messages in (wanted.stored or {}).items()
    }
    return replace(
        wanted,
        refusal=seen.decisions[-1].refusal if seen.decisions else None,
        received=wanted.received and tuple(_as_expected(each, wanted.received) for each in seen.received),
        stored=stored if wanted.stored else None,
        acks=wanted.acks and tuple(starmap(_in_the_members_of, zip_longest(wanted.acks, seen.acks))),
        facts={name: seen.facts.get(name, _ABSENT) for name in wanted.facts or ()},
    )


def _ordered(wanted: Expectation, stream: str, seen: Observation) -> Sequence[Stored]:
    stored = seen.stored.get(stream, ())
    return in_order_of((wanted.stored or {})[stream], stored) if stream in wanted.any_order else stored


def _as_expected(message: Message, wanted: Sequence[MessagePattern], sequence: int | None = None) -> MessagePattern:
    """Return the expectation that a message meets, or one that only this message meets, but for its times."""
    for each in wanted:
        if matches_message(each, message) and each.sequence in (None, sequence):
            return each
    numbered = any(each.sequence is not None for each in wanted)
    block = _TIME.sub(b"<time>", message.header_block)
    return MessagePattern(message.subject, block, message.payload, sequence if numbered else None)


def _in_the_members_of(wanted: Mapping[str, Json] | None, ack: Mapping[str, Json] | None) -> Mapping[str, Json] | None:
    return ack if wanted is None or ack is None else {name: ack.get(name) for name in wanted}


def _changes(case: Case, before: Cell, after: Cell) -> Iterator[Change]:
    old, new = _refusals(before), _refusals(after)
    for at, (first, second) in enumerate(zip_longest(old, new)):
        if first != second:
            what = "decision" if len(max(old, new, key=len)) == 1 else f"decision {at + 1}"
            yield Change(what, _refusal(first), _refusal(second))
    was, now = _shown(before), _shown(after)
    if was is None or now is None or was == now or (was.refusal is None) != (now.refusal is None):
        return
    yield from _config_changes(before, after)
    if case.transform is not None:
        yield from _result_changes(case, was, now)
    else:
        if was.received is not None and now.received is not None:
            yield from _message_changes("received", was.received, now.received)
        for stream in was.stored or ():
            if stream in (now.stored or {}):
                yield from _message_changes(
                    f"stored in {stream}", (was.stored or {})[stream], (now.stored or {})[stream]
                )
    if was.acks is not None and now.acks is not None:
        yield from _ack_changes(was.acks, now.acks)
    yield from _member_changes("", was.facts or {}, now.facts or {})


def _refusals(cell: Cell) -> list[ExpectedRefusal | None]:
    return [] if cell.observation is None else [each.refusal for each in cell.observation.decisions]


def _refusal(refusal: ExpectedRefusal | None) -> str:
    if refusal is None:
        return "accepted"
    parts = ("refused", str(refusal.err_code or ""), refusal.description or "")
    return " ".join(part for part in parts if part)


def _config_changes(before: Cell, after: Cell) -> Iterator[Change]:
    """Members of the returned configuration that one of the two expects something of."""
    names = dict.fromkeys(
        name for cell in (before, after) if cell.expectation for name in cell.expectation.config or ()
    )
    old, new = _returned(before), _returned(after)
    pairs = ({name: each[name] for name in names if name in each} for each in (old, new))
    yield from _member_changes("config.", *pairs)


def _returned(cell: Cell) -> Mapping[str, Json]:
    decisions = cell.observation.decisions if cell.observation else ()
    return (decisions[-1].config or {}) if decisions else {}


def _member_changes(prefix: str, old: Mapping[str, Json], new: Mapping[str, Json]) -> Iterator[Change]:
    for name in dict.fromkeys([*old, *new]):
        first, second = (_json(each[name]) if name in each else _ABSENT for each in (old, new))
        if first != second:
            yield Change(f"{prefix}{name}", first, second)


def _result_changes(case: Case, was: Expectation, now: Expectation) -> Iterator[Change]:
    """Yield the changed results of a transform by subject."""
    assert case.transform is not None
    place = case.transform.place
    old, new = _results(was, place), _results(now, place)
    for number, subject in enumerate(case.transform.subjects):
        payload = b"%d" % number
        if old.get(payload, NOTHING) != new.get(payload, NOTHING):
            yield Change(shown(subject), old.get(payload, NOTHING), new.get(payload, NOTHING))


def _results(expectation: Expectation, place: TransformPlace) -> dict[bytes, str]:
    if place is TransformPlace.REPUBLISH:
        messages = expectation.received or ()
    else:
        messages = tuple(each for stored in (expectation.stored or {}).values() for each in stored)
    return {each.payload: shown(each.subject) for each in messages if each.payload is not None}


def _message_changes(place: str, was: Sequence[MessagePattern], now: Sequence[MessagePattern]) -> Iterator[Change]:
    if len(was) != len(now):
        yield Change(place, _listed(was), _listed(now))
        return
    found: dict[tuple[str, str, str], list[int]] = {}
    for at, (old, new) in enumerate(zip(was, now, strict=True)):
        for change in _within(old, new):
            found.setdefault(change, []).append(at)
    for (part, first, second), places in found.items():
        which = _which(list(dict.fromkeys(places)), len(was))
        yield Change(f"{place}, {part}{which}", first, second)


def _within(old: MessagePattern, new: MessagePattern) -> Iterator[tuple[str, str, str]]:
    if old.subject != new.subject:
        yield "subject", shown(old.subject), shown(new.subject)
    if old.header_block is not None and new.header_block is not None:
        for first, second in _line_changes(old.header_block, new.header_block):
            yield "headers", first, second
    if old.payload is not None and new.payload is not None and old.payload != new.payload:
        yield "payload", shown(old.payload) or "empty", shown(new.payload) or "empty"
    if old.sequence is not None and new.sequence is not None and old.sequence != new.sequence:
        yield "sequence", str(old.sequence), str(new.sequence)


def _line_changes(old: bytes, new: bytes) -> Iterator[tuple[str, str]]:
    """Yield the differences of header blocks by lines."""
    if not old or not new:
        if old != new:
            yield shown(old) or "no headers", shown(new) or "no headers"
        return
    first, second = old.split(b"\r\n"), new.split(b"\r\n")
    for kind, a, b, c, d in SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        if kind != "equal":
            yield _lines(first[a:b]), _lines(second[c:d])


def _lines(lines: Iterable[bytes]) -> str:
    return "; ".join(map(shown, lines)) or "no such line"


def _which(places: Sequence[int], of: int) -> str:
    if len(places) == of:
        return ""
    return f" of message{'s' if len(places) > 1 else ''} {', '.join(str(at + 1) for at in places)}"


def _listed(messages: Sequence[MessagePattern]) -> str:
    if not messages:
        return NOTHING
    subjects = ", ".join(shown(each.subject) for each in messages)
    return f"{len(messages)} message{'s' if len(messages) > 1 else ''}: {subjects}"


def _ack_changes(
    was: Sequence[Mapping[str, Json] | None], now: Sequence[Mapping[str, Json] | None]
) -> Iterator[Change]:
    for at, (old, new) in enumerate(zip_longest(was, now)):
        if old != new:
            yield Change(f"answer to message {at + 1}", _ack(old), _ack(new))


def _ack(ack: Mapping[str, Json] | None) -> str:
    return "none" if ack is None else _json(dict(ack))


def _json(value: Json) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
