"""The static site: one folder that is the archive of runs and the pages over them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from nats_conformance.errors import HistoryError
from nats_conformance.history import History
from nats_conformance.reports import judged
from nats_conformance.reports.site import add_run, write_site
from tests.unit.conformance import sample_runs
from tests.unit.conformance.sample_runs import CASES, ORDER


def at(history: History, time: str, **more: object) -> History:
    return replace(history, start={**history.start, "time": time, **more})


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Two runs: a good one, and a newer one with every outcome."""
    add_run(judged(at(sample_runs.run(), "2026-11-01T12:00:00+00:00"), CASES), tmp_path)
    add_run(judged(at(sample_runs.mixed_run(), "2026-11-20T12:00:00+00:00"), CASES), tmp_path)
    write_site(tmp_path)
    return tmp_path


def text(page: Path) -> str:
    return page.read_text("utf-8")


def test_every_link_leads_somewhere_within_the_site(site: Path) -> None:
    found = re.findall(r'href="([^"]+)"', text(site / "index.html"))
    links = [link for link in found if not link.startswith(("https:", "data:"))]
    assert links
    for link in links:
        target = (site / link.partition("#")[0]).resolve()
        assert target.is_file(), link
        assert target.is_relative_to(site.resolve())


def test_the_overview_has_the_newest_matrix_and_all_runs(site: Path) -> None:
    index = text(site / "index.html")
    for label in ("native 2.9.10", "engine 2.15.1", "bridge 2.15.1 on 2.10.27"):
        assert f">{label}</a>" in index
    assert 'href="runs/2026-11-20T12-00-00-bridge-engine-native/index.html#doc=ADR-28"' in index
    rows = index.partition("History</h2>")[2]
    assert rows.index("2026-11-20T12:00:00") < rows.index("2026-11-01T12:00:00")
    assert "<td>failed</td>" in rows


def test_what_a_run_says_cannot_be_markup(tmp_path: Path) -> None:
    case = replace(ORDER, title='<script>alert("title")</script>')
    history = at(sample_runs.mixed_run(), "2026-11-01T12:00:00+00:00", suite="<b>")
    add_run(judged(history, [case if each is ORDER else each for each in CASES]), tmp_path)
    for page in write_site(tmp_path):
        assert "<script>alert" not in text(page)
        assert "<b>" not in text(page)


def test_a_run_of_some_cases_does_not_take_the_place_of_a_whole_one(site: Path) -> None:
    part = at(sample_runs.run(), "2026-11-24T12:00:00+00:00", selection=["adr28/headers"])
    add_run(judged(part, CASES), site)
    write_site(site)
    index = text(site / "index.html")
    assert "runs/2026-11-24" not in index.partition("History</h2>")[0]
    assert "7 selected" in index.partition("History</h2>")[2]
    assert json.loads(text(site / "badge.json"))["color"] == "red"


def test_the_same_run_again_changes_nothing(site: Path) -> None:
    before = {file: file.read_bytes() for file in site.rglob("*") if file.is_file()}
    add_run(judged(at(sample_runs.mixed_run(), "2026-11-20T12:00:00+00:00"), CASES), site)
    write_site(site)
    assert {file: file.read_bytes() for file in site.rglob("*") if file.is_file()} == before


def test_what_is_no_site(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="has no run yet"):
        write_site(tmp_path)
    with pytest.raises(HistoryError, match="has no time"):
        add_run(judged(at(sample_runs.run(), ""), CASES), tmp_path)
    (tmp_path / "runs/old").mkdir(parents=True)
    (tmp_path / "runs/old/report.json").write_text('{"report": 0}')
    with pytest.raises(HistoryError, match="not a report of format 1"):
        write_site(tmp_path)
