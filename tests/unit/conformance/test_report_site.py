"""The static site: one folder that is the archive of runs and the pages over them."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from nats_conformance.errors import HistoryError
from nats_conformance.identity import Identity
from nats_conformance.reports.site import write_site
from tests.unit.conformance import sample_runs
from tests.unit.conformance.sample_runs import CASES, add, page_contents

NEWEST = "runs/2026-11-20T12-00-00-bridge-engine-native/"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Two runs: a good one, and a newer one with every outcome."""
    made = tmp_path / "site"
    add(made, sample_runs.run(), time="2026-11-01T12:00:00+00:00")
    add(made, sample_runs.mixed_run(), time="2026-11-20T12:00:00+00:00")
    write_site(made, CASES)
    return made


def runs(site: Path) -> list[dict[str, Any]]:
    """The runs that the first page lists."""
    return page_contents((site / "index.html").read_text("utf-8"))["site"]["runs"]


def test_the_first_page_lists_all_runs_and_their_files_exist(site: Path) -> None:
    found = runs(site)
    assert [run["run"]["time"][:10] for run in found] == ["2026-11-20", "2026-11-01"]
    assert [run["passed"] for run in found] == [False, True]
    for run in found:
        assert {file.name for file in (site / run["folder"]).iterdir()} == {
            "history.jsonl",
            "report.json",
            "index.html",
        }
    assert page_contents((site / NEWEST / "index.html").read_text("utf-8"))["site"] == {"home": "../../index.html"}


def test_the_results_have_a_version_and_a_licence(site: Path) -> None:
    report = json.loads((site / "report.json").read_bytes())
    assert (report["version"], report["license"], report["complete"]) == ("2026.11.20", "Apache-2.0", True)
    assert report["verdicts"] == json.loads((site / NEWEST / "report.json").read_bytes())["verdicts"]


def test_the_newest_run_speaks_for_each_subject_of_test(tmp_path: Path) -> None:
    native = sample_runs.run(subjects=[Identity("native", "2.15.1"), Identity("native", "2.9.10")])
    add(tmp_path / "site", native, time="2026-11-01T12:00:00+00:00")
    new = sample_runs.run(cases=CASES[:3], subjects=[Identity("engine", "2.9.10"), Identity("native", "2.15.1")])
    add(tmp_path / "site", new, time="2026-11-02T12:00:00+00:00")
    write_site(tmp_path / "site", CASES[1:])
    report = json.loads((tmp_path / "site/report.json").read_bytes())
    assert [each["label"] for each in report["subjects"]] == ["native 2.9.10", "native 2.15.1", "engine 2.9.10"]
    # A case that the catalogue no longer has is left out.
    assert Counter(each["subject"] for each in report["verdicts"]) == {
        "native 2.9.10": 6,
        "native 2.15.1": 2,
        "engine 2.9.10": 2,
    }
    assert report["complete"]


def test_a_subject_of_test_that_no_run_could_open_is_missing(site: Path) -> None:
    add(
        site,
        sample_runs.run(),
        time="2026-11-24T12:00:00+00:00",
        missing={"2.13": "no such version", "native 2.9.10": "gone"},
    )
    write_site(site, CASES)
    assert json.loads((site / "report.json").read_bytes())["objections"] == ["2.13 is missing: no such version"]


def test_a_run_of_some_cases_does_not_take_the_place_of_a_whole_one(site: Path) -> None:
    before = (site / "report.json").read_bytes()
    add(site, sample_runs.run(), time="2026-11-24T12:00:00+00:00", selection=["adr28/headers"])
    write_site(site, CASES)
    assert (site / "report.json").read_bytes() == before
    assert [run["whole"] for run in runs(site)] == [False, True, True]
    assert json.loads((site / "badge.json").read_bytes())["color"] == "red"


def test_the_same_run_again_changes_nothing(site: Path) -> None:
    before = {file: file.read_bytes() for file in site.rglob("*") if file.is_file()}
    add(site, sample_runs.mixed_run(), time="2026-11-20T12:00:00+00:00")
    write_site(site, CASES)
    assert {file: file.read_bytes() for file in site.rglob("*") if file.is_file()} == before


def test_what_is_no_site(tmp_path: Path) -> None:
    site = tmp_path / "site"
    with pytest.raises(HistoryError, match="has no run yet"):
        write_site(site, CASES)
    with pytest.raises(HistoryError, match="has no time"):
        add(site, sample_runs.run(), time="")
    (site / "runs/old").mkdir(parents=True)
    (site / "runs/old/report.json").write_text('{"report": 0}')
    with pytest.raises(HistoryError, match="not a report of format 1"):
        write_site(site, CASES)
