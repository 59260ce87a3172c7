"""Known divergences: what is taken out of both sides, which ids a verdict names, and what stays a failure."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nats_conformance.catalogue.case import (
    Case,
    Create,
    Delete,
    Expectation,
    ExpectedRefusal,
    Level,
    Message,
    MessagePattern,
    Publish,
    Step,
    Update,
)
from nats_conformance.catalogue.reading import read_catalogue
from nats_conformance.divergences import NORMALISERS
from nats_conformance.identity import Identity
from nats_conformance.judging import judge
from nats_conformance.observation import Decision, Observation, Stored
from nats_conformance.outcome import Outcome

DOCS = Path(__file__).parents[3] / "docs" / "known-divergences.md"
BRIDGE = Identity("bridge", "2.15.1", server="2.15.1")
ID = b"Nats-Msg-Id: bridge-0123456789ab-1-1700000000000000000\r\n"
RECORD = b"O 1 in.* out.$1 in.a"
SOURCES: Mapping[str, Any] = {"name": "S", "sources": [{"name": "O"}]}
MIRROR: Mapping[str, Any] = {"name": "S", "mirror": {"name": "O"}}
INGRESS: Mapping[str, Any] = {"name": "S", "subjects": ["in.*"], "subject_transform": {"src": "in.*", "dest": "x.$1"}}
ACCEPTED = Decision()
REFUSED = Decision(refusal=ExpectedRefusal(None, 10049))


def case(config: Mapping[str, Any], expectation: Expectation, *steps: Step, kd: tuple[str, ...] = ()) -> Case:
    return Case(
        id="adr36/example/1",
        title="an example",
        level=Level.MUST,
        clause="ADR-36",
        expectation=expectation,
        steps=(Create(config), *steps),
        kd=kd,
    )


def block(*lines: bytes) -> bytes:
    return b"NATS/1.0\r\n" + b"".join(line if line.endswith(b"\r\n") else line + b"\r\n" for line in lines) + b"\r\n"


def one(header_block: bytes, subject: bytes = b"out.a") -> Expectation:
    return Expectation(stored={"S": (MessagePattern(subject, header_block, b"1"),)})


def stored(*header_blocks: bytes, subject: bytes = b"out.a", **more: Any) -> Observation:
    messages = tuple(
        Stored(Message(subject, each, b"1"), sequence) for sequence, each in enumerate(header_blocks, start=1)
    )
    return Observation((ACCEPTED,), stored={"S": messages}, **more)


def test_every_id_stands_in_the_documentation() -> None:
    heads = re.findall(r"^- (`kd/[^:]+):", DOCS.read_text("utf-8"), re.MULTILINE)
    listed = [each for head in heads for each in re.findall(r"`(kd/[^`]+)`", head)]
    documented = set(listed)
    assert len(listed) == len(documented), "an id has two explanations"
    named = {each for case in read_catalogue() for each in case.kd}
    assert NORMALISERS.keys() <= documented
    assert named <= documented


def test_a_verdict_names_the_ids_that_are_needed_and_no_others() -> None:
    expected = one(block(b"A: 1", b"Nats-Stream-Source: " + RECORD + b" <identity>"))
    seen = stored(block(b"A: 1", ID, b"Nats-Bridge-Source: " + RECORD))
    verdict = judge(case(SOURCES, expected), BRIDGE, seen)
    assert verdict.outcome is Outcome.DIVERGENCE
    assert verdict.divergences == ("kd/copy/message-id", "kd/copy/record-name", "kd/copy/identity")
    # The raw mismatch is kept for a reader who wants it.
    assert [each.where for each in verdict.mismatches] == ["stored.S[0].headers"]


def test_what_no_divergence_explains_fails() -> None:
    expected = one(block(b"A: 1", b"Nats-Stream-Source: " + RECORD + b" <identity>"))
    seen = stored(block(b"A: 2", ID, b"Nats-Bridge-Source: " + RECORD))
    verdict = judge(case(SOURCES, expected), BRIDGE, seen)
    assert (verdict.outcome, verdict.divergences) == (Outcome.FAIL, ())


def test_only_the_bridge_may_diverge() -> None:
    expected = one(b"")
    seen = stored(block(ID))
    assert judge(case(SOURCES, expected), BRIDGE, seen).divergences == ("kd/copy/message-id",)
    assert judge(case(SOURCES, expected), Identity("native", "2.15.1"), seen).outcome is Outcome.FAIL


def test_a_servers_record_is_none_of_the_bridges_where_the_target_is_older() -> None:
    expected = one(block(b"Nats-Stream-Source: " + RECORD))
    seen = stored(block(b"Nats-Bridge-Source: " + RECORD))
    assert judge(case(SOURCES, expected), BRIDGE, seen).divergences == ("kd/copy/record-name",)
    older = Identity("bridge", "2.15.1", server="2.10.27")
    assert judge(case(SOURCES, expected), older, seen).outcome is Outcome.FAIL


def test_copies_of_a_mirror_carry_a_record() -> None:
    seen = stored(block(ID, b"Nats-Bridge-Source: " + RECORD))
    verdict = judge(case(MIRROR, one(b"")), BRIDGE, seen)
    assert verdict.divergences == ("kd/copy/message-id", "kd/copy/mirror-is-a-stream")
    assert judge(case(SOURCES, one(b"")), BRIDGE, seen).outcome is Outcome.FAIL


def test_a_header_that_the_target_would_refuse_is_missing() -> None:
    expected = one(block(b"A: 1", b"Nats-Rollup: sub"))
    assert judge(case(SOURCES, expected), BRIDGE, stored(block(b"A: 1"))).divergences == ("kd/copy/withheld",)
    plain = {"name": "S", "subjects": ["out.*"], "republish": {"src": ">", "dest": "else.>"}}
    assert judge(case(plain, expected), BRIDGE, stored(block(b"A: 1"))).outcome is Outcome.FAIL


def test_an_unpublishable_copy_is_missing_if_the_bridge_rejected_it() -> None:
    expected = Expectation(stored={"S": (MessagePattern(b"out..a"), MessagePattern(b"out.a", sequence=2))})
    seen = stored(b"", facts={"rejected": ["NATS/1.0"]})
    assert judge(case(SOURCES, expected), BRIDGE, seen).divergences == ("kd/copy/unpublishable",)
    assert judge(case(SOURCES, expected), BRIDGE, stored(b"")).outcome is Outcome.FAIL


def test_a_message_that_an_ingress_rule_refuses_is_not_stored() -> None:
    expected = Expectation(
        stored={"S": (MessagePattern(b"x."), MessagePattern(b"out.a", sequence=2))},
        acks=({"stream": "S", "seq": 1}, {"stream": "S", "seq": 2}),
    )
    refusal = {"err_code": 10156, "description": "stream transform: nats-bridge: 'in.-' becomes no subject"}
    seen = stored(b"", acks=(refusal, {"stream": "S", "seq": 1}))
    assert judge(case(INGRESS, expected), BRIDGE, seen).divergences == ("kd/ingress/unpublishable",)
    lost = stored(b"", acks=(refusal, {"stream": "S", "seq": 7}))
    assert judge(case(INGRESS, expected), BRIDGE, lost).outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("text", "version", "step", "wanted"),
    [
        (
            "rules[0].republish.dest: must not be empty, because nothing would be republished",
            "2.15.1",
            None,
            "kd/refused/idle",
        ),
        ("rule 'a': loop: stream S on 'x'", "2.15.1", None, "kd/refused/loop"),
        ("rules[0].sources[0].zzz: unknown key; known: name", "2.9.10", None, "kd/refused/unknown-key"),
        ("filter 'a..b': invalid subject (10049)", "2.9.10", None, "kd/refused/before-2.10"),
        ("filter 'a..b': invalid subject (10049)", "2.15.1", Update(SOURCES), "kd/refused/update"),
        ("filter 'a..b': invalid subject (10049)", "2.15.1", None, ""),
        ("something else", "2.15.1", None, ""),
    ],
)
def test_a_rule_that_is_refused_for_a_reason_of_ours(text: str, version: str, step: Step | None, wanted: str) -> None:
    decisions = (REFUSED,) if step is None else (ACCEPTED, REFUSED)
    seen = Observation(decisions, facts={"refused sources of S": text})
    verdict = judge(
        case(SOURCES, Expectation(stored={"S": (MessagePattern(b"a"),)}), *([step] if step else [])),
        Identity("bridge", version, server="2.15.1"),
        seen,
    )
    assert verdict.divergences == ((wanted,) if wanted else ())
    assert verdict.outcome is (Outcome.DIVERGENCE if wanted else Outcome.FAIL)


@pytest.mark.parametrize(("version", "is_known"), [("2.12.4", True), ("2.12.5", False)])
def test_the_last_sequence_after_a_delete(version: str, is_known: bool) -> None:
    def lines(last: int) -> bytes:
        return block(b"Nats-Stream: S", b"Nats-Sequence: 3", b"Nats-Last-Sequence: %d" % last)

    republishing = {"name": "S", "subjects": ["in.*"], "republish": {"src": "in.*", "dest": "out.$1"}}
    expected = Expectation(received=(MessagePattern(b"out.a", lines(0)),))
    seen = Observation((ACCEPTED,), (Message(b"out.a", lines(1)),))
    steps = (Publish(Message(b"in.a")), Delete("S", 2), Publish(Message(b"in.a")))
    verdict = judge(case(republishing, expected, *steps), Identity("bridge", version, server=version), seen)
    assert verdict.divergences == (("kd/last-sequence/native-defect",) if is_known else ())
    # Without a delete nothing explains it.
    assert judge(case(republishing, expected, steps[0]), BRIDGE, seen).outcome is Outcome.FAIL


def test_what_a_case_names_itself_counts_where_it_does_not_match() -> None:
    named = case(SOURCES, one(b""), kd=("kd/copy/stalls",))
    assert judge(named, BRIDGE, stored(b"", b"")).divergences == ("kd/copy/stalls",)
    assert judge(named, BRIDGE, stored(b"")).outcome is Outcome.PASS
    # A normaliser that explains it is reported instead.
    assert judge(named, BRIDGE, stored(block(ID))).divergences == ("kd/copy/message-id",)


def two_rules(seen: tuple[bytes, ...]) -> Any:
    """Stream A republishes 1 and 2, stream B 3 and 4; natively in that order."""
    configs = [{"name": name, "republish": {"src": ">", "dest": "out.>"}} for name in "AB"]
    senders = {b"1": b"A", b"2": b"A", b"3": b"B", b"4": b"B"}

    def message(payload: bytes) -> Message:
        return Message(b"out.x", block(b"Nats-Stream: " + senders[payload]), payload)

    expectation = Expectation(received=tuple(MessagePattern(b"out.x", None, payload) for payload in senders))
    made = case(configs[0], expectation, Create(configs[1]))
    return judge(made, BRIDGE, Observation((ACCEPTED, ACCEPTED), tuple(map(message, seen))))


def test_rules_keep_no_order_between_them() -> None:
    assert two_rules((b"1", b"2", b"3", b"4")).outcome is Outcome.PASS
    verdict = two_rules((b"3", b"1", b"4", b"2"))
    assert (verdict.outcome, verdict.divergences) == (Outcome.DIVERGENCE, ("kd/order/two-rules",))


@pytest.mark.parametrize("seen", [(b"2", b"1", b"3", b"4"), (b"3", b"1", b"4"), (b"3", b"1", b"4", b"2", b"2")])
def test_each_rule_keeps_its_order_and_loses_and_doubles_nothing(seen: tuple[bytes, ...]) -> None:
    assert two_rules(seen).outcome is Outcome.FAIL


def test_what_a_case_names_itself_excuses_no_bridge_that_does_nothing() -> None:
    named = case(SOURCES, one(b""), kd=("kd/copy/stalls",))
    assert judge(named, BRIDGE, stored()).outcome is Outcome.FAIL
    assert judge(named, BRIDGE, Observation()).outcome is Outcome.FAIL
    refused = Observation((REFUSED,), stored=stored(b"").stored)
    assert [each.where for each in judge(named, BRIDGE, refused).mismatches] == ["decision"]


def test_an_id_that_has_a_normaliser_explains_no_more_than_it() -> None:
    named = case(SOURCES, one(b""), kd=("kd/copy/unpublishable",))
    assert judge(named, BRIDGE, stored(b"", b"")).outcome is Outcome.FAIL


def test_headers_may_be_withheld_of_copies_alone() -> None:
    line = b"Nats-Expected-Last-Sequence: 0"
    republishing = {"name": "S", "subjects": ["in.*"], "republish": {"src": "in.*", "dest": "out.$1"}}
    expected = Expectation(received=(MessagePattern(b"out.a", block(line, b"A: 1")),))
    seen = Observation((ACCEPTED,), (Message(b"out.a", block(b"A: 1")),))
    assert judge(case(republishing, expected), BRIDGE, seen).outcome is Outcome.FAIL


def test_the_space_in_a_placeholder_is_none_in_a_subject() -> None:
    republishing = {"name": "S", "subjects": ["in.*"], "republish": {"src": "in.*", "dest": "out.{{random(9)}}"}}
    expected = Expectation(received=(MessagePattern(b"out.<int 0..8>"),))
    assert judge(case(republishing, expected), BRIDGE, Observation((ACCEPTED,))).outcome is Outcome.FAIL
