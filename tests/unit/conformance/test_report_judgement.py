"""The record that renderers are given."""

from dataclasses import replace

import pytest

from nats_conformance.errors import HistoryError
from nats_conformance.history import HistoryWriter, Played, Unplayed, read_history
from nats_conformance.identity import Identity
from nats_conformance.observation import Observation
from nats_conformance.outcome import Outcome
from nats_conformance.reports import judged
from tests.unit.conformance import sample_runs
from tests.unit.conformance.sample_runs import BRIDGE, CASES, CRASH, EDIT, ORDER, PARTITION


def test_every_record_becomes_a_verdict() -> None:
    result = judged(sample_runs.mixed_run(), CASES)
    assert result.counts() == {
        "pass": 65,
        "fail": 5,
        "observed difference": 16,
        "known divergence": 1,
        "skipped": 1,
        "errored": 1,
        "not applicable": 2,
    }
    assert result.counts("native 2.9.10")["observed difference"] == 4
    skipped = result.cell(CRASH, BRIDGE.label)
    assert skipped is not None
    assert skipped.verdict.outcome is Outcome.SKIPPED
    errored = result.cell(PARTITION, "native 2.14.9")
    assert errored is not None
    assert errored.observation is None
    assert errored.verdict.reason.startswith("the server ended the connection")


def test_a_cell_holds_what_was_expected_and_what_was_seen() -> None:
    result = judged(sample_runs.mixed_run(), CASES)
    cell = result.cell(ORDER, "engine 2.11.17")
    assert cell is not None
    assert cell.expectation is ORDER.expectation
    assert cell.observation is not None
    assert b"Nats-Last-Sequence:  0" in cell.observation.received[1].header_block
    assert [each.where for each in cell.verdict.mismatches] == ["received[1].headers"]
    assert cell.seconds == 0.0042
    old = result.cell(ORDER, "native 2.9.10")
    assert old is not None
    assert old.expectation is ORDER.differences[0].expectation


def test_failures_are_in_the_order_of_the_cases() -> None:
    result = judged(sample_runs.mixed_run(), CASES)
    assert [(case.id, label) for case, label, _ in result.failures][:3] == [
        ("adr28/headers/order/1", "engine 2.11.17"),
        ("adr28/headers/order/1", "engine 2.14.9"),
        ("adr28/validation/cycle/1", "engine 2.9.10"),
    ]
    assert not result.passed


def test_a_good_run_passes_with_known_differences() -> None:
    result = judged(sample_runs.run(), CASES)
    assert result.passed
    assert result.is_complete
    assert result.objections() == []


def test_a_history_without_an_end_does_not_pass() -> None:
    history = replace(sample_runs.run(), is_complete=False)
    result = judged(history, CASES)
    assert not result.passed
    assert result.objections() == [f"the history was cut short: it has {len(history.records)} records and no end"]


def test_a_missing_server_does_not_pass() -> None:
    result = judged(sample_runs.run(missing={"2.13": "no such version"}), CASES)
    assert not result.passed
    assert result.objections() == ["2.13 is missing: no such version"]


def test_cases_that_the_catalogue_does_not_know_are_named_and_do_not_pass() -> None:
    result = judged(sample_runs.run(), [case for case in CASES if case is not EDIT])
    assert result.unknown == (EDIT.id,)
    assert EDIT.id not in {case.id for case in result.cases}
    assert result.objections() == ["1 case is unknown to this catalogue: adr28/validation/edit/1"]
    assert not result.passed


def test_cases_that_were_not_selected_are_not_named() -> None:
    result = judged(sample_runs.run([ORDER]), CASES)
    assert result.cases == (ORDER,)
    assert result.passed


def test_a_record_without_an_owner_is_an_error() -> None:
    history = sample_runs.run([ORDER])
    stray = Played(ORDER.id, "native 2.8.0", Observation(), 0.1)
    with pytest.raises(HistoryError, match=r"'native 2\.8\.0' is not named"):
        judged(replace(history, records=(*history.records, stray)), CASES)


def test_a_cut_history_on_disk_is_judged_up_to_the_cut(tmp_path) -> None:
    history, file = sample_runs.mixed_run(), tmp_path / "history.jsonl"
    with HistoryWriter(file, history.subjects) as writer:
        for record in history.records:
            writer.add(record)
    assert judged(read_history(file), CASES).counts() == judged(history, CASES).counts()
    text = file.read_text("utf-8")
    file.write_text(text[: len(text) // 2], "utf-8")
    half = judged(read_history(file), CASES)
    assert not half.is_complete
    assert 0 < sum(half.counts().values()) < len(history.records)
    last = history.records[-1]
    assert isinstance(last, Played | Unplayed)
    assert (last.case, last.subject) not in half.cells


def test_a_subject_of_test_of_which_records_are_missing_does_not_pass() -> None:
    history = sample_runs.run()
    history = replace(history, start={**history.start, "cases": len(CASES)})
    assert judged(history, CASES).passed
    fewer = [each for each in history.records if (each.case, each.subject) != (ORDER.id, "engine 2.15.1")]
    result = judged(replace(history, records=tuple(fewer)), CASES)
    number = len(CASES)
    assert result.objections() == [f"engine 2.15.1 has records of {number - 1} cases, of {number} that were asked for"]
    assert not result.passed


def test_a_run_that_played_nothing_does_not_pass() -> None:
    label = "native 2.15.1"
    skipped = Unplayed(ORDER.id, label, Outcome.SKIPPED, "it would harm the server")
    result = judged(sample_runs.run([ORDER], [Identity("native", "2.15.1")], {(ORDER.id, label): skipped}), CASES)
    assert result.objections() == ["no case was played"]
    assert not result.passed


def test_two_records_of_a_case_are_an_error() -> None:
    history = sample_runs.run([ORDER])
    with pytest.raises(HistoryError, match="two records"):
        judged(replace(history, records=(*history.records, history.records[0])), CASES)
