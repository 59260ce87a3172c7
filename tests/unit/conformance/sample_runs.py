"""Runs for the tests of reports, made up from the data model: every outcome, every kind of byte, any size."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from nats_conformance.catalogue.case import (
    Case,
    Create,
    Delete,
    Difference,
    Expectation,
    ExpectedRefusal,
    Level,
    Message,
    MessagePattern,
    Publish,
    Settle,
    TransformCase,
    TransformPlace,
    Update,
)
from nats_conformance.catalogue.expansion import expanded_expectation, expanded_steps
from nats_conformance.history import History, HistoryWriter, Played, Unplayed
from nats_conformance.identity import Identity
from nats_conformance.observation import Decision, Observation, Stored
from nats_conformance.outcome import Outcome
from nats_conformance.reports.site import add_run
from nats_transforms.tested_versions import Version

VERSIONS = ("2.9.10", "2.10.27", "2.11.17", "2.12.15", "2.14.9", "2.15.1")
SUBJECTS = tuple(Identity(kind, version) for kind in ("native", "engine") for version in VERSIONS)
BRIDGE = Identity("bridge", "2.15.1", server="2.10.27")
START: Mapping[str, Any] = {
    "suite": "0.1.0",
    "time": "2026-11-21T12:00:00+00:00",
    "catalogue": "5f0c2ad3e1b94477aa",
}

_SINCE_2_10 = ((2, 10, 0),)


def lines(*texts: str) -> bytes:
    """A header block."""
    return b"".join([b"NATS/1.0\r\n", *(text.encode() + b"\r\n" for text in texts), b"\r\n"])


def _republished(number: int, last: int, *, has_time: bool = True) -> MessagePattern:
    times = ["Nats-Time-Stamp: <time>"] if has_time else []
    head = ["X-Trace:\tabc ", "Nats-Stream: S", "Nats-Subject: in.a", f"Nats-Sequence: {number}"]
    return MessagePattern(b"out.a", lines(*head, *times, f"Nats-Last-Sequence: {last}"), b"order %d" % number)


ORDER = Case(
    id="adr28/headers/order/1",
    title="The server's lines come in a fixed order, behind the publisher's own",
    level=Level.MUST,
    clause="ADR-28, RePublish Headers",
    quote="Each RePublished Message will have the following Message Headers.",
    expectation=Expectation(received=(_republished(1, 0), _republished(2, 1))),
    streams=({"name": "S", "subjects": ["in.>"], "republish": {"src": "in.>", "dest": "out.>"}},),
    steps=tuple(Publish(Message(b"in.a", lines("X-Trace:\tabc "), b"order %d" % number)) for number in (1, 2)),
    differences=(
        Difference(
            until=_SINCE_2_10,
            reason="Nats-Time-Stamp came with 2.10",
            expectation=Expectation(received=(_republished(1, 0, has_time=False), _republished(2, 1, has_time=False))),
        ),
    ),
)

_CYCLE = ExpectedRefusal(500, 10052, "stream configuration for republish destination forms a cycle")
CYCLE = Case(
    id="adr28/validation/cycle/1",
    title="A destination among the stream's own subjects is refused",
    level=Level.MUST,
    clause="ADR-28, RePublish Configuration Option",
    expectation=Expectation(refusal=_CYCLE),
    steps=(Create({"name": "S", "subjects": ["in.*", "out.*"], "republish": {"src": "in.*", "dest": "out.$1"}}),),
)

EDIT = Case(
    id="adr28/validation/edit/1",
    title="RePublish can be changed by an update",
    level=Level.SHOULD,
    clause="ADR-28, RePublish Configuration Option",
    expectation=Expectation(config={"republish": {"src": "in.>", "dest": "new.>"}}),
    steps=(
        Create({"name": "S", "subjects": ["in.>"]}),
        Update({"name": "S", "subjects": ["in.>"], "republish": {"src": "in.>", "dest": "new.>"}}),
    ),
    differences=(
        Difference(
            until=_SINCE_2_10,
            reason="RePublish can be edited since 2.10",
            expectation=Expectation(
                refusal=ExpectedRefusal(500, 10052, "stream configuration update can not change RePublish")
            ),
        ),
    ),
)

_PARTITION = TransformCase(
    b"in.*.*", b"out.{{partition(10,1,2)}}", TransformPlace.REPUBLISH, (b"in.a.bc", b"in.ab.c", b"in.a")
)
PARTITION = Case(
    id="adr30/partition/no-separator/1",
    title="Tokens are hashed one behind the other, without a separator",
    level=Level.OBSERVED,
    clause="ADR-30, Reference",
    transform=_PARTITION,
    steps=expanded_steps(_PARTITION),
    expectation=expanded_expectation(_PARTITION, {b"in.a.bc": b"out.1", b"in.ab.c": b"out.1", b"in.a": None}),
)

_BROKEN = b"\xc3\xa4\xff\x00<b>&amp;\x1b[31m"
BYTES = Case(
    id="adr36/ingress/bytes/1",
    title="Payloads | headers of <any> bytes are stored as they `came`",
    level=Level.OBSERVED,
    clause="ADR-36, Subject Mapping Transforms in Streams",
    expectation=Expectation(
        stored={
            "S": (
                MessagePattern("kä.eins".encode(), lines("Schlüssel: ä", "Empty:"), _BROKEN, 1),
                MessagePattern(b"k.zwei", b"", b"", 2),
            )
        },
        acks=({"stream": "S", "seq": 1}, {"stream": "S", "seq": 2}, None),
    ),
    streams=({"name": "S", "subjects": ["kä.*", "k.*"]},),
    steps=(
        Publish(Message("kä.eins".encode(), lines("Schlüssel: ä", "Empty:"), _BROKEN)),
        Publish(Message(b"k.zwei")),
        Publish(Message(b"elsewhere")),
        Settle("S", 2),
    ),
    since=_SINCE_2_10,
)

DELETED = Case(
    id="native/last-sequence/deleted/1",
    title="The last sequence after the deletion of the last message",
    level=Level.OBSERVED,
    clause="native, The store",
    expectation=Expectation(received=(MessagePattern(b"out.a", lines("Nats-Last-Sequence: 1")),)),
    streams=({"name": "S", "subjects": ["in.>"], "republish": {"src": "in.>", "dest": "out.>"}},),
    steps=(Publish(Message(b"in.a")), Publish(Message(b"in.a")), Delete("S", 2), Publish(Message(b"in.a"))),
    needs=frozenset({"store"}),
    kd=("kd/order/two-rules",),
    differences=(
        Difference(
            until=((2, 12, 5), (2, 14, 0)),
            reason="until 2.12.5 the store forgets older messages of the subject",
            expectation=Expectation(received=(MessagePattern(b"out.a", lines("Nats-Last-Sequence: 0")),)),
        ),
    ),
)

CRASH = Case(
    id="adr30/partition/zero/1",
    title="A modulus of 0 ends the server process before 2.12",
    level=Level.OBSERVED,
    clause="ADR-30, Reference",
    scenario="partition-of-zero",
    expectation=Expectation(facts={"server": "running", "subject": "out.0"}),
    differences=(
        Difference(
            until=((2, 12, 0),),
            reason="division by zero until 2.12",
            expectation=Expectation(facts={"server": "ended"}),
        ),
    ),
)

CASES = (ORDER, CYCLE, EDIT, PARTITION, CRASH, BYTES, DELETED)


def fulfilled(case: Case, version: Version) -> Observation:
    """The observation of a subject that does exactly what is expected of the version."""
    wanted = case.expected(version)
    asked = [step for step in case.steps if isinstance(step, Create | Update)]
    decisions = [Decision(config={"max_msgs": -1, **step.config}) for step in asked]
    if wanted.refusal is not None:
        decisions[-1] = Decision(refusal=wanted.refusal)
    elif wanted.config is not None:
        decisions[-1] = Decision(config={**(decisions[-1].config or {}), **wanted.config})
    return Observation(
        tuple(decisions),
        tuple(_message(each) for each in wanted.received or ()),
        {
            stream: tuple(Stored(_message(each), each.sequence or at) for at, each in enumerate(messages, 1))
            for stream, messages in (wanted.stored or {}).items()
        },
        tuple(wanted.acks or ()),
        dict(wanted.facts or {}),
    )


def _message(wanted: MessagePattern) -> Message:
    block = (wanted.header_block or b"").replace(b"<time>", b"2026-11-21T12:00:00.123456789Z")
    return Message(wanted.subject, block, wanted.payload or b"")


def run(
    cases: Sequence[Case] = CASES,
    subjects: Sequence[Identity] = (*SUBJECTS, BRIDGE),
    instead: Mapping[tuple[str, str], Observation | Unplayed] | None = None,
    missing: Mapping[str, str] = MappingProxyType({}),
    **start: Any,
) -> History:
    """A complete history in which everybody does what is expected, except for what is given by case and label."""
    records: list[Played | Unplayed] = []
    for subject in subjects:
        for case in cases:
            found = (instead or {}).get((case.id, subject.label))
            if isinstance(found, Unplayed):
                records.append(found)
            elif not case.applies(subject.version):
                records.append(
                    Unplayed(case.id, subject.label, Outcome.INAPPLICABLE, "the case is about other versions")
                )
            else:
                seen = found or fulfilled(case, subject.version)
                records.append(Played(case.id, subject.label, seen, 0.0042))
    labels = {each.label: each for each in subjects}
    return History({**START, **start}, labels, tuple(records), not missing, missing)


def mixed_run() -> History:
    """Every outcome is in it."""
    order = fulfilled(ORDER, (2, 11, 17))
    wrong = replace(
        order.received[1],
        header_block=order.received[1].header_block.replace(b"Nats-Last-Sequence: 1", b"Nats-Last-Sequence:  0"),
    )
    edit = Observation(
        (Decision(config={"name": "S"}), Decision(config={"republish": {"src": "in.>", "dest": "old.>"}}))
    )
    deleted = Observation(received=(Message(b"out.a", lines("Nats-Last-Sequence: 0")),))
    bytes_ = fulfilled(BYTES, (2, 12, 15))
    lost = replace(bytes_, stored={"S": bytes_.stored["S"][:1]}, acks=bytes_.acks[:1])
    cycle = Observation((Decision(config={"name": "S", "republish": {"src": "in.*", "dest": "out.$1"}}),))
    return run(
        instead={
            (ORDER.id, "engine 2.11.17"): replace(order, received=(order.received[0], wrong)),
            (ORDER.id, "engine 2.14.9"): replace(order, received=order.received[:1]),
            (EDIT.id, "engine 2.15.1"): edit,
            (CYCLE.id, "engine 2.9.10"): cycle,
            (BYTES.id, "engine 2.12.15"): lost,
            (DELETED.id, BRIDGE.label): deleted,
            (CRASH.id, BRIDGE.label): Unplayed(CRASH.id, BRIDGE.label, Outcome.SKIPPED, "it would harm the server"),
            (PARTITION.id, "native 2.14.9"): Unplayed(
                PARTITION.id,
                "native 2.14.9",
                Outcome.ERRORED,
                "the server ended the connection\x00; it said: \x1b[31mbye",
            ),
        }
    )


def large_run(number: int = 500, subjects: Sequence[Identity] = SUBJECTS) -> tuple[History, tuple[Case, ...]]:
    """Many cases, whose messages differ from one another as real ones do."""
    cases = tuple(_varied(CASES[at % len(CASES)], at) for at in range(number))
    return run(cases, subjects), cases


def add(site: Path, history: History, **start: Any) -> Path:
    """Record a history, with these members in its first line, and add it to a site."""
    file = site.parent / "history.jsonl"
    with HistoryWriter(file, history.subjects, **{**history.start, **start}) as writer:
        for record in history.records:
            writer.add(record)
    return add_run(file, CASES, site)


def page_contents(page: str) -> dict[str, Any]:
    """The data in an HTML page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    contents: dict[str, Any] = json.loads(found[1])
    return contents


def _varied(case: Case, at: int) -> Case:
    """The case under another id, with subjects of its own; in sixteen sections per document."""
    mark = b"v%d" % at

    def message(each: MessagePattern) -> MessagePattern:
        return replace(each, subject=each.subject + b"." + mark)

    def expectation(each: Expectation) -> Expectation:
        return replace(
            each,
            received=None if each.received is None else tuple(map(message, each.received)),
            stored=None
            if each.stored is None
            else {name: tuple(map(message, held)) for name, held in each.stored.items()},
        )

    return replace(
        case,
        id=re.sub(r"\d+$", str(at + 1), case.id),
        title=f"{case.title}, in variation {at + 1}",
        clause=f"{case.clause} {chr(65 + at // 35)}",
        expectation=expectation(case.expectation),
        differences=tuple(replace(each, expectation=expectation(each.expectation)) for each in case.differences),
        transform=None,
    )
