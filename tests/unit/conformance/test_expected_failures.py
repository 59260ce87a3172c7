"""A list of known failures: what fails beyond it shows, and so does what no longer fails."""

from pathlib import Path

import pytest

from nats_conformance.command.expected_failures import read_expected_failures, surprises
from nats_conformance.errors import ConformanceError
from nats_conformance.reports import judged
from tests.unit.conformance import sample_runs
from tests.unit.conformance.sample_runs import CASES

MIXED = judged(sample_runs.mixed_run(), CASES)
FAILED = sorted({case.id for case, _, _ in MIXED.failures})
GOOD = next(case.id for case in MIXED.cases if case.id not in FAILED)


def test_a_file_has_an_id_a_line_and_remarks(tmp_path: Path) -> None:
    file = tmp_path / "known.txt"
    file.write_text("# ours\n\nadr28/a/1  # issue 7\nadr30/b/2\n", "utf-8")
    assert read_expected_failures(file) == {"adr28/a/1", "adr30/b/2"}


def test_a_line_that_is_more_than_an_id(tmp_path: Path) -> None:
    file = tmp_path / "known.txt"
    file.write_text("adr28/a/1\nadr28/b/1 fails on 2.9\n", "utf-8")
    with pytest.raises(ConformanceError, match=r"known\.txt:2: one id a line"):
        read_expected_failures(file)


def test_exactly_the_expected_failures_are_no_surprise() -> None:
    assert surprises(MIXED, frozenset(FAILED)) == []
    assert surprises(MIXED, frozenset([*FAILED, "adr28/not/played/1"])) == []


def test_what_fails_beyond_them_and_what_no_longer_fails_is_reported() -> None:
    assert surprises(MIXED, frozenset([*FAILED[1:], GOOD])) == [
        f"{FAILED[0]}: fails, and is not expected to",
        f"{GOOD}: no longer fails; remove it from the expected failures",
    ]
