"""The summary for a terminal."""

import io
import re
from dataclasses import replace

import pytest

from nats_conformance.reports import judged
from nats_conformance.reports.markdown import markdown
from nats_conformance.reports.terminal import summary, wants_colour
from tests.unit.conformance import sample_runs
from tests.unit.conformance.sample_runs import CASES

MIXED = judged(sample_runs.mixed_run(), CASES)
GOOD = judged(sample_runs.run(), CASES)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_one_line_per_subject_with_its_counts() -> None:
    lines = summary(MIXED, 120, colour=False).splitlines()
    assert lines[0].split() == ["pass", "difference", "divergence", "skipped", "errored", "fail", "n/a"]
    (line,) = [line for line in lines if line.startswith("engine 2.9.10")]
    assert re.sub(" +", " ", line) == "engine 2.9.10 1 4 - - - 1 1"


def test_outcomes_that_were_not_met_have_no_column() -> None:
    assert summary(GOOD, 120, colour=False).splitlines()[0].split() == ["pass", "difference", "n/a"]


def test_the_result_is_the_last_line() -> None:
    assert summary(MIXED, 120, colour=False).splitlines()[-1] == (
        "FAILED  7 cases, 13 subjects of test: "
        "65 pass, 16 difference, 1 divergence, 1 skipped, 1 errored, 5 fail, 2 n/a"
    )
    assert summary(GOOD, 120, colour=False).splitlines()[-1].startswith("PASSED  7 cases")
    one = judged(sample_runs.run((sample_runs.ORDER,)), (sample_runs.ORDER,))
    assert summary(one, 120, colour=False).splitlines()[-1].startswith("PASSED  1 case, ")
    assert "\n1 case, suite" in markdown(one)


def test_failures_have_their_mismatches_and_a_command() -> None:
    text = summary(MIXED, 120, colour=False)
    assert "✗ adr28/validation/cycle/1  engine 2.9.10\n" in text
    assert "      expected 500/10052 stream configuration for republish destination forms a cycle\n" in text
    assert "      observed accepted\n" in text
    assert "nats-conform run --versions 2.9.10 --subjects engine --select adr28/validation/cycle/1" in text


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_shortened_mismatch_shows_where_it_differs(width: int) -> None:
    lines = summary(MIXED, width, colour=False).splitlines()
    at = lines.index("    received[1].headers")
    assert "Nats-Last-Sequence: 1" in lines[at + 1]
    assert "Nats-Last-Sequence:  0" in lines[at + 2]
    assert max(map(len, lines[at : at + 3])) <= width


def test_a_narrow_terminal_gets_counts_in_words() -> None:
    assert "engine 2.9.10: 1 pass, 4 difference, 1 fail, 1 n/a" in summary(MIXED, 60, colour=False)


def test_a_partial_run_says_so_loudly() -> None:
    partial = judged(replace(sample_runs.run(missing={"2.13": "no such version"}), is_complete=False), CASES)
    lines = summary(partial, 100, colour=False).splitlines()
    assert lines[-2] == "PARTIAL: 2.13 is missing: no such version"
    assert lines[-1].startswith("NOT COMPLETE")


def test_what_servers_say_cannot_steer_the_terminal() -> None:
    text = summary(MIXED, 120, colour=False)
    assert "the server ended the connection\\x00; it said: \\x1b[31mbye" in text
    assert "\x1b" not in text


def test_colour_is_only_for_terminals_that_want_it() -> None:
    assert "\x1b[1;31m" in summary(MIXED, 120, colour=True)
    assert wants_colour(_Terminal(), {})
    assert not wants_colour(_Terminal(), {"NO_COLOR": "1"})
    assert not wants_colour(io.StringIO(), {})


def test_many_failures_are_cut() -> None:
    history, cases = sample_runs.large_run(60)
    empty = {
        (record.case, record.subject): replace(record, observation=type(record.observation)())
        for record in history.records
        if hasattr(record, "observation")
    }
    records = tuple(empty.get((record.case, record.subject), record) for record in history.records)
    text = summary(judged(replace(history, records=records), cases), 100, colour=False)
    assert text.count("✗ ") == 20
    assert "\n… and " in text
