"""The judge: compares an observation with the expectation for the version, offline.

Theory of operation. The case defines the expected result of a version, including known differences. Mismatches are
listed member by member. For the bridge, differences that an outside process cannot avoid are removed from both sides,
which are then compared again (`divergences`). The verdict names the removed ones.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nats_conformance.catalogue.case import Case, Create, Expectation, ExpectedRefusal, Message, MessagePattern, Update
from nats_conformance.divergences import reconciled
from nats_conformance.expected_text import matches_text
from nats_conformance.identity import Identity
from nats_conformance.observation import Decision, Observation, Stored
from nats_conformance.outcome import Mismatch, Outcome, Verdict
from nats_transforms.timestamp import rfc3339_nano

_ABSENT = "(absent)"
_LINES_OF_A_STREAM = re.compile(
    rb"\r\nNats-Stream: ([^\r]*)\r\n(?:Nats-Subject: [^\r]*\r\n)?"
    rb"Nats-Sequence: ([0-9]+)\r\nNats-Time-Stamp: ([^\r]*)(?=\r\n)"
)


def judge(case: Case, subject: Identity, observation: Observation) -> Verdict:
    """Return the verdict on this observation."""
    expectation = case.expected(subject.version)

    def compare(expectation: Expectation, observation: Observation) -> Iterator[Mismatch]:
        yield from _missing_decisions(case, expectation, observation)
        yield from mismatches(expectation, observation)

    found = tuple(compare(expectation, observation))
    difference = case.difference(subject.version)
    if not found:
        if difference is None:
            return Verdict(Outcome.PASS)
        return Verdict(Outcome.DIFFERENCE, difference.reason)
    if subject.kind == "bridge":
        ids, remaining = reconciled(case, subject, expectation, observation, compare)
        if ids and not remaining:
            return Verdict(Outcome.DIVERGENCE, ", ".join(ids), found, ids)
        found = tuple(remaining)
    reason = f"{found[0].where} is not as expected"
    if difference is not None and not tuple(compare(case.expectation, observation)):
        reason = f"the known difference is not there any more: {difference.reason}"
    return Verdict(Outcome.FAIL, reason, found)


def mismatches(expectation: Expectation, observation: Observation) -> Iterator[Mismatch]:
    """Yield all mismatches, the most significant first."""
    yield from _decision_mismatches(expectation, observation.decisions)
    if expectation.acks is not None:
        yield from _ack_mismatches(expectation.acks, observation.acks)
    if expectation.received is not None:
        yield from _message_mismatches("received", expectation.received, observation.received)
        yield from _time_mismatches(observation)
    for stream, expected in (expectation.stored or {}).items():
        stored: Sequence[Stored] = observation.stored.get(stream, ())
        where = f"stored.{stream}"
        if stream in expectation.any_order:
            stored = in_order_of(expected, stored)
        yield from _message_mismatches(where, expected, [each.message for each in stored])
        if len(expected) == len(stored):
            for at, (wanted, each) in enumerate(zip(expected, stored, strict=True)):
                if wanted.sequence is not None and wanted.sequence != each.sequence:
                    yield Mismatch(f"{where}[{at}].sequence", str(wanted.sequence), str(each.sequence))
    for name, fact in (expectation.facts or {}).items():
        seen = observation.facts.get(name, _ABSENT)
        if seen != fact:
            yield Mismatch(f"facts.{name}", repr(fact), repr(seen))


def _missing_decisions(case: Case, expectation: Expectation, observation: Observation) -> Iterator[Mismatch]:
    """Every create and update must have an answer. If the server ended, only facts are left."""
    asked = sum(isinstance(step, Create | Update) for step in case.steps)
    seen = len(observation.decisions)
    if expectation.facts is None and seen < asked:
        yield Mismatch("decision", f"{asked} answer{'s' if asked > 1 else ''} to create and update", f"{seen} of them")


def _decision_mismatches(expectation: Expectation, decisions: Sequence[Decision]) -> Iterator[Mismatch]:
    for at, decision in enumerate(decisions):
        last = at == len(decisions) - 1
        wanted = expectation.refusal if last else None
        if not _is_refused_like(wanted, decision.refusal):
            where = "decision" if last else f"decision[{at}]"
            yield Mismatch(where, _refusal_text(wanted), _refusal_text(decision.refusal))
    if expectation.config is not None:
        config = decisions[-1].config if decisions else None
        if config is not None:
            yield from _config_mismatches(expectation.config, config)
    if expectation.refusal is not None and not decisions:
        yield Mismatch("decision", _refusal_text(expectation.refusal), "no decision was asked for")


def _is_refused_like(wanted: ExpectedRefusal | None, seen: ExpectedRefusal | None) -> bool:
    if wanted is None or seen is None:
        return wanted is seen
    # A library that only reports a refusal gives no codes: missing codes are not compared.
    pairs = (
        (wanted.code, seen.code),
        (wanted.err_code, seen.err_code),
        (wanted.description, seen.description),
    )
    return all(expected is None or found is None or expected == found for expected, found in pairs)


def _refusal_text(refusal: ExpectedRefusal | None) -> str:
    if refusal is None:
        return "accepted"
    numbers = "/".join(str(number) for number in (refusal.code, refusal.err_code) if number is not None)
    return " ".join(part for part in (numbers or "refused", refusal.description) if part)


def _config_mismatches(expected: Mapping[str, Any], seen: Mapping[str, Any]) -> Iterator[Mismatch]:
    for name, value in expected.items():
        found = seen.get(name)
        if found != value:
            yield Mismatch(
                f"config.{name}", _ABSENT if value is None else repr(value), _ABSENT if found is None else repr(found)
            )


def _ack_mismatches(
    expected: Sequence[Mapping[str, Any] | None], seen: Sequence[Mapping[str, Any] | None]
) -> Iterator[Mismatch]:
    if len(expected) != len(seen):
        yield Mismatch("acks", f"{len(expected)} answers", f"{len(seen)} answers")
        return
    for at, (wanted, ack) in enumerate(zip(expected, seen, strict=True)):
        has_all = ack is not None and all(ack.get(name) == value for name, value in (wanted or {}).items())
        if (wanted is None) != (ack is None) or (wanted is not None and not has_all):
            texts = ("no answer" if each is None else repr(dict(each)) for each in (wanted, ack))
            yield Mismatch(f"acks[{at}]", *texts)


def _message_mismatches(where: str, expected: Sequence[MessagePattern], seen: Sequence[Message]) -> Iterator[Mismatch]:
    for at in range(max(len(expected), len(seen))):
        place = f"{where}[{at}]"
        if at >= len(seen):
            yield Mismatch(place, shown(expected[at].subject), "nothing")
        elif at >= len(expected):
            yield Mismatch(place, "nothing", shown(seen[at].subject))
        else:
            pairs = (
                ("subject", expected[at].subject, seen[at].subject),
                ("headers", expected[at].header_block, seen[at].header_block),
                ("payload", expected[at].payload, seen[at].payload),
            )
            for name, wanted, found in pairs:
                if wanted is not None and not matches_text(wanted, found):
                    yield Mismatch(f"{place}.{name}", shown(wanted), shown(found))


def _time_mismatches(observation: Observation) -> Iterator[Mismatch]:
    """The time stamp of a republished message must be the stored one, if that is known.

    A recreated stream uses the same sequences again, so only the last messages with a sequence are compared.
    """
    reported: dict[tuple[bytes, int], tuple[int, bytes]] = {}
    for at, message in enumerate(observation.received):
        for found in _LINES_OF_A_STREAM.finditer(message.header_block):
            reported[found[1], int(found[2])] = at, found[3]
    for stream, messages in observation.stored.items():
        for each in messages:
            at, time = reported.get((stream.encode(), each.sequence), (-1, b""))
            wanted = rfc3339_nano(each.time_ns)
            if time and each.time_ns and time != wanted:
                yield Mismatch(f"received[{at}].Nats-Time-Stamp", shown(wanted), shown(time))


def in_order_of(expected: Sequence[MessagePattern], stored: Sequence[Stored]) -> list[Stored]:
    """Return the stored messages in the order of the matching expected ones, and the rest at the end."""
    left = list(stored)
    ordered: list[Stored] = []
    for wanted in expected:
        at = next((at for at, each in enumerate(left) if matches_message(wanted, each.message)), None)
        if at is not None:
            ordered.append(left.pop(at))
    return ordered + left


def matches_message(wanted: MessagePattern, seen: Message) -> bool:
    """Return whether a message is as expected, without its sequence."""
    return not any(_message_mismatches("", [wanted], [seen]))


def shown(raw: bytes) -> str:
    """Return bytes as a string in which every byte is distinct, with line ends as \\r\\n."""
    text = raw.decode("utf-8", "surrogateescape")
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "surrogatepass").decode() for each in text
    )
