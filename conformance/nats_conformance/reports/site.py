"""A static site of runs: the newest results of every subject of test, and all runs.

The folder is the archive. Every run has a folder below `runs` with its `history.jsonl`, `report.json` and page, which
stay as they are. The first page is made again from them, so a published site is continued by adding a run to a copy of
it. It joins the newest history of every subject of test, and judges it by the present catalogue.
"""

import json
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nats_conformance.catalogue.case import Case
from nats_conformance.errors import HistoryError
from nats_conformance.history import History, read_history
from nats_conformance.identity import KINDS
from nats_conformance.reports.html import page
from nats_conformance.reports.json_report import FORMAT, as_report, badge
from nats_conformance.reports.judgement import judged


@dataclass(frozen=True, slots=True)
class _Run:
    """A run on the site: its folder, and its report."""

    folder: Path
    report: Mapping[str, Any]

    @property
    def is_whole(self) -> bool:
        """Whether the run included all cases."""
        return not self.report["run"].get("selection") and self.report["run"].get("level", "observed") == "observed"

    @property
    def labels(self) -> list[str]:
        return [each["label"] for each in self.report["subjects"]]

    @property
    def time(self) -> tuple[str, str]:
        """The time of the run, by which runs are sorted. Two runs may have the same one, but not the same folder."""
        return str(self.report["run"]["time"]), self.folder.name

    def as_row(self) -> dict[str, Any]:
        """Return the row of the first page about this run."""
        return {
            "folder": f"runs/{self.folder.name}/",
            "run": self.report["run"],
            "passed": self.report["passed"],
            "counts": self.report["counts"],
            "cases": len(self.report["cases"]),
            "whole": self.is_whole,
            "subjects": self.labels,
        }


def add_run(file: Path, cases: Sequence[Case], site: Path) -> Path:
    """Judge the history in a file, and write it into a site, replacing an earlier version of this run.

    Returns the run's folder.

    Raises:
        HistoryError: the file is not a history, or the run has no time.
        OSError: the folder cannot be written to.
    """
    content, result = file.read_bytes(), judged(read_history(file), cases)
    time = str(result.history.start.get("time", ""))
    if not time:
        raise HistoryError("the history's first line has no time, by which a site orders its runs")
    subjects = {identity.kind for identity in result.subjects.values()}
    name = re.sub(r"[^0-9a-zA-Z]+", "-", f"{time.partition('+')[0]} {' '.join(sorted(subjects))}").strip("-")
    folder = site / "runs" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "history.jsonl").write_bytes(content)
    (folder / "report.json").write_text(json.dumps(as_report(result), separators=(",", ":")), "utf-8")
    text = page(result, site={"home": "../../index.html"})
    (folder / "index.html").write_bytes(text.encode("utf-8", "backslashreplace"))
    return folder


def write_site(site: Path, cases: Sequence[Case]) -> list[Path]:
    """Write the first page of a site, `index.html`, with `report.json` and `badge.json`. Return these files.

    Raises:
        HistoryError: the site has no run, or a report in another format.
        OSError: the folder cannot be written to.
    """
    runs = _runs(site)
    result = judged(_newest(runs, {case.id for case in cases}), cases)
    report = as_report(result)
    rows = [run.as_row() for run in sorted(runs, key=lambda run: run.time, reverse=True)]
    about = {"runs": rows, "version": report["version"], "license": report["license"]}
    contents = {
        "index.html": page(result, site=about),
        "report.json": json.dumps(report, separators=(",", ":")),
        "badge.json": json.dumps(badge(result.counts(), is_passed=result.passed)),
    }
    for name, content in contents.items():
        (site / name).write_bytes(content.encode("utf-8", "backslashreplace"))
    return [site / name for name in contents]


def _runs(site: Path) -> list[_Run]:
    """Return all runs, whole ones and then newer ones first."""
    found = []
    for file in site.glob("runs/*/report.json"):
        report = json.loads(file.read_text("utf-8"))
        if report.get("report") != FORMAT:
            raise HistoryError(f"{file}: not a report of format {FORMAT}")
        found.append(_Run(file.parent, report))
    if not found:
        raise HistoryError(f"{site} has no run yet: name a history.jsonl")
    return sorted(found, key=lambda run: (run.is_whole, run.time), reverse=True)


def _newest(runs: Sequence[_Run], known: Container[str]) -> History:
    """Join the newest records of each subject of test on known cases: natives by version first, then the others."""
    folders: dict[str, Path] = {}
    for run in runs:
        for label in run.labels:
            folders.setdefault(label, run.folder)
    files = {folder: read_history(folder / "history.jsonl") for folder in dict.fromkeys(folders.values())}
    histories = {label: files[folders[label]] for label in sorted(folders, key=_order)}
    newest = max((history.start for history in files.values()), key=lambda start: str(start["time"]))
    missing = {name: why for history in files.values() for name, why in history.missing.items() if name not in folders}
    about = {name: newest[name] for name in ("suite", "catalogue", "catalogue_version", "time") if name in newest}
    return History(
        start=about | {"missing": missing},
        subjects={label: history.subjects[label] for label, history in histories.items()},
        records=tuple(
            record
            for label, history in histories.items()
            for record in history.records
            if record.subject == label and record.case in known
        ),
        is_complete=not missing and all(history.is_complete or history.missing for history in files.values()),
        missing=missing,
    )


def _order(label: str) -> tuple[int, str, list[int]]:
    kind = label.partition(" ")[0]
    place = next((at for at, each in enumerate(KINDS) if each == kind), len(KINDS))
    return place, kind, [int(part) for part in re.findall(r"\d+", label)]
