"""JSON, JUnit XML, Markdown: what is in the files."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from nats_conformance.identity import Identity
from nats_conformance.reports import judged, write_reports
from nats_conformance.reports.json_report import as_report
from nats_conformance.reports.junit import junit
from nats_conformance.reports.links import divergences_link
from nats_conformance.reports.markdown import markdown, plain
from nats_conformance.reports.page_data import page_data
from nats_conformance.reports.reproduction import reproduction
from tests.unit.conformance import sample_runs
from tests.unit.conformance.sample_runs import CASES

MIXED = judged(sample_runs.mixed_run(), CASES)
PARTIAL = judged(replace(sample_runs.run(), is_complete=False), CASES)


def test_all_files_are_written(tmp_path) -> None:
    files = write_reports(MIXED, tmp_path / "new" / "folder")
    assert [file.name for file in files] == ["report.json", "junit.xml", "report.md", "badge.json", "index.html"]
    assert json.loads(files[0].read_bytes()) == as_report(MIXED)
    assert all(file.read_bytes() for file in files)
    badge = json.loads(files[-2].read_bytes())
    assert (badge["schemaVersion"], badge["color"]) == (1, "red")
    counts = MIXED.counts()
    assert badge["message"].endswith(f" of {int(badge['message'].split()[0]) + counts['fail'] + counts['errored']}")


def test_json_has_every_verdict() -> None:
    report = as_report(MIXED)
    assert (report["report"], report["passed"], report["complete"]) == (1, False, True)
    assert report["run"]["suite"] == "0.1.0"
    assert len(report["verdicts"]) == len(MIXED.cells)
    found = {(each["case"], each["subject"]): each for each in report["verdicts"]}
    wrong = found["adr28/validation/cycle/1", "engine 2.9.10"]
    assert wrong == {
        "case": "adr28/validation/cycle/1",
        "subject": "engine 2.9.10",
        "outcome": "fail",
        "reason": "decision is not as expected",
        "mismatches": [
            {
                "where": "decision",
                "expected": "500/10052 stream configuration for republish destination forms a cycle",
                "observed": "accepted",
            }
        ],
        "seconds": 0.0042,
    }
    assert found["native/last-sequence/deleted/1", "bridge 2.15.1 on 2.10.27"]["divergences"] == ["kd/order/two-rules"]
    assert found["adr28/headers/order/1", "native 2.15.1"] == {
        "case": "adr28/headers/order/1",
        "subject": "native 2.15.1",
        "outcome": "pass",
        "seconds": 0.0042,
    }
    assert report["subjects"][-1]["server"] == "2.10.27"
    assert report["subjects"][-1]["counts"]["skipped"] == 1


def test_junit_has_a_suite_per_subject() -> None:
    root = ElementTree.fromstring(junit(MIXED))
    suites = {suite.get("name"): suite for suite in root.iter("testsuite")}
    assert list(suites) == list(MIXED.subjects)
    old = suites["engine 2.9.10"]
    # One of the seven cases is not about 2.9, and is no test of its suite.
    assert (old.get("tests"), old.get("failures"), old.get("errors"), old.get("skipped")) == ("6", "1", "0", "0")
    failure = old.find(".//failure")
    assert failure is not None
    assert failure.get("message") == "decision is not as expected"
    assert failure.text is not None
    assert failure.text.splitlines()[2] == "  observed accepted"
    skipped = suites["bridge 2.15.1 on 2.10.27"].find(".//skipped")
    assert skipped is not None
    assert skipped.get("message") == "it would harm the server"


def test_junit_has_no_character_that_xml_does_not_know() -> None:
    root = ElementTree.fromstring(junit(MIXED))
    error = root.find(".//error")
    assert error is not None
    assert error.get("message") == "the server ended the connection\\x00; it said: \\x1b[31mbye"


def test_junit_of_a_partial_run_has_an_error() -> None:
    root = ElementTree.fromstring(junit(PARTIAL))
    suite = root.find("testsuite[@name='the run']")
    assert suite is not None
    error = suite.find(".//error")
    assert error is not None
    assert "cut short" in (error.get("message") or "")
    assert ElementTree.fromstring(junit(judged(sample_runs.run(), CASES))).find("testsuite[@name='the run']") is None


@pytest.mark.parametrize(
    ("start", "reported"),
    [
        ({}, "7 cases, suite 0.1.0"),
        ({"selection": [], "level": "observed"}, "7 cases, suite 0.1.0"),
        ({"selection": ["adr28/headers"], "level": "must"}, "7 cases, selected by adr28/headers, level must, suite"),
        ({"selection": ["a", "b", "c", "d"]}, "7 cases, selected by a, b, c, …, suite"),
    ],
)
def test_reports_say_that_a_part_of_the_cases_was_asked_for(start: dict[str, Any], reported: str) -> None:
    result = judged(sample_runs.run(**start), CASES)
    assert f"\n{reported}" in markdown(result)
    assert page_data(result)["choice"] == result.choice
    assert result.choice in reported


def test_markdown_shows_result_failures_and_divergences() -> None:
    text = markdown(MIXED)
    assert text.startswith("# Conformance: failed\n")
    assert "| native 2.9.10 | 2 | 4 | - | - | - | - | 1 |" in text
    assert "### ✗ adr28/validation/cycle/1, engine 2.9.10" in text
    assert (
        "| `decision` | `500/10052 stream configuration for republish destination forms a cycle` | `accepted` |" in text
    )
    assert "nats-conform run --versions 2.9.10 --subjects engine --select adr28/validation/cycle/1\n" in text
    assert "kd/order/two-rules" in text


def test_markdown_of_hostile_texts_stays_in_its_cells() -> None:
    text = markdown(judged(sample_runs.mixed_run(), CASES))
    (line,) = [line for line in text.splitlines() if line.startswith("### ✗ adr36/ingress/bytes/1")]
    at = text.index(line)
    assert "Payloads \\| headers of \\<any\\> bytes are stored as they \\`came\\`" in text[at : at + 300]


def test_markdown_says_that_it_is_partial() -> None:
    text = markdown(PARTIAL)
    assert text.startswith("# Conformance: not complete\n")
    assert "> **Partial.** the history was cut short" in text


def test_reports_within_the_project_link_to_the_known_divergences(tmp_path, monkeypatch) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "known-divergences.md").touch()
    monkeypatch.chdir(tmp_path)
    assert divergences_link(Path("build/conformance")) == "../../docs/known-divergences.md"
    assert "(../../docs/known-divergences.md)" in markdown(MIXED, "../../docs/known-divergences.md")


def test_reports_elsewhere_name_no_path_of_the_machine(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert divergences_link(tmp_path / "report") == ""
    assert "explained in docs/known-divergences.md." in markdown(MIXED)


def test_the_command_that_plays_a_case_again() -> None:
    case = "adr28/headers/order/1"
    assert reproduction(case, Identity("native", "2.10.27")) == (
        "nats-conform run --versions 2.10.27 --subjects native --select adr28/headers/order/1"
    )
    assert reproduction(case, sample_runs.BRIDGE) == (
        "nats-conform run --versions 2.10.27 --subjects bridge --bridge-dialect 2.15.1 --select adr28/headers/order/1"
    )
    assert reproduction(case, Identity("native", "2.15.1"), "nats://h:4222") == (
        f"nats-conform run --server nats://h:4222 --select {case}"
    )
    assert "--library COMMAND" in reproduction(case, Identity("library", "2.12.15", name="go-transform"))


def test_an_address_in_a_reason_is_a_link_and_everything_else_is_escaped() -> None:
    text = "known_bug: https://issues.example/a_b/12?c=1 [x]"
    assert plain(text) == "known\\_bug: https://issues.example/a_b/12?c=1 \\[x\\]"
