"""A static site of runs: the matrix of the newest ones, and their history.

The folder is the archive. Every run has a folder below `runs` with its `report.json` and its page. The other pages are
generated from all existing `report.json`, so a published site is continued by adding a run to a copy of it. No page
needs a network, and only those of the runs have a script.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

from nats_conformance.errors import HistoryError
from nats_conformance.identity import KINDS
from nats_conformance.outcome import Outcome
from nats_conformance.reports.html import page
from nats_conformance.reports.json_report import FORMAT, as_report, badge
from nats_conformance.reports.judgement import Judged
from nats_conformance.reports.links import clause_link, document_of
from nats_conformance.reports.signs import SIGNS

_TITLE = "RePublish, transforms and sourcing, version by version"


@dataclass(frozen=True, slots=True)
class _Run:
    """A run on the site: its folder's name, and its report."""

    name: str
    report: Mapping[str, Any]

    @property
    def is_whole(self) -> bool:
        """Whether the run included all cases."""
        return not self.report["run"].get("selection") and self.report["run"].get("level", "observed") == "observed"

    @property
    def labels(self) -> list[str]:
        """The subjects of test."""
        return [each["label"] for each in self.report["subjects"]]

    def outcomes(self, label: str) -> Iterator[tuple[Mapping[str, Any], Outcome]]:
        """Yield the cases with a verdict on a subject of test, each with its outcome."""
        cases = {case["id"]: case for case in self.report["cases"]}
        for verdict in self.report["verdicts"]:
            if verdict["subject"] == label:
                yield cases[verdict["case"]], Outcome(verdict["outcome"])

    def link(self, document: str = "") -> str:
        """Return the address of its matrix, or of a document's part, as seen from the site's own folder."""
        return f"runs/{self.name}/index.html" + (f"#doc={quote_plus(document)}" if document else "")


def add_run(result: Judged, site: Path) -> Path:
    """Write a judged run into a site, replacing an earlier version of this run.

    Returns:
        the run's folder.

    Raises:
        HistoryError: the run has no time.
        OSError: the folder cannot be written to.
    """
    start = result.history.start
    time = str(start.get("time", ""))
    if not time:
        raise HistoryError("the history's first line has no time, by which a site orders its runs")
    subjects = {identity.kind for identity in result.subjects.values()}
    name = re.sub(r"[^0-9a-zA-Z]+", "-", f"{time.partition('+')[0]} {' '.join(sorted(subjects))}").strip("-")
    folder = site / "runs" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(as_report(result), separators=(",", ":")), "utf-8")
    (folder / "index.html").write_bytes(page(result).encode("utf-8", "backslashreplace"))
    return folder


def write_site(site: Path) -> list[Path]:
    """Write the page on all runs of a site, and the `badge.json` of the newest one.

    Returns:
        The files, `index.html` first.

    Raises:
        HistoryError: the site has no run, or a report in another format.
        OSError: the folder cannot be written to.
    """
    runs = _runs(site)
    contents = {
        "index.html": _overview(runs, _newest(runs)),
        "badge.json": json.dumps(badge(runs[0].report["counts"], is_passed=runs[0].report["passed"])),
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
        found.append(_Run(file.parent.name, report))
    if not found:
        raise HistoryError(f"{site} has no run yet: name a history.jsonl")
    return sorted(found, key=lambda run: (run.is_whole, run.report["run"]["time"], run.name), reverse=True)


def _newest(runs: Sequence[_Run]) -> dict[str, _Run]:
    """Return the run that speaks for each subject of test, by its label: natives by version first, then the others."""
    found: dict[str, _Run] = {}
    for run in runs:
        for label in run.labels:
            found.setdefault(label, run)
    return dict(sorted(found.items(), key=lambda each: (_kind_order(each[0]), _numbers(each[0]))))


def _kind_order(label: str) -> tuple[int, str]:
    kind = label.partition(" ")[0]
    return (next((at for at, each in enumerate(KINDS) if each == kind), len(KINDS)), kind)


def _numbers(text: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", text)]


def _overview(runs: Sequence[_Run], newest: Mapping[str, _Run]) -> str:
    documents = list(dict.fromkeys(document_of(case["clause"]) for run in runs for case in run.report["cases"]))
    counted = {label: _by_document(run, label) for label, run in newest.items()}
    matrix = [
        [
            _linked(clause_link(document), document),
            *(_cell(counted[label][document], run.link(document=document)) for label, run in newest.items()),
        ]
        for document in documents
    ]
    heads = [_linked(run.link(), label) for label, run in newest.items()]
    return _html(
        _section(
            "Matrix",
            "Cases that came out as they must, of those played. A cell leads to its cases, a head to its run.",
            _table(["Document", *heads], matrix),
        ),
        _section(
            "Outcomes", "", _table(["Subject of test", *_OUTCOMES, "Run"], [_counts(*each) for each in newest.items()])
        ),
        _section("History", "", _table(_RUN_HEADS, [_described(run) for run in _by_time(runs)])),
    )


def _by_document(run: _Run, label: str) -> dict[str, Counter[bool]]:
    found: dict[str, Counter[bool]] = {document_of(case["clause"]): Counter() for case in run.report["cases"]}
    for case, outcome in run.outcomes(label):
        if outcome not in (Outcome.INAPPLICABLE, Outcome.SKIPPED):
            found[document_of(case["clause"])][outcome.is_good] += 1
    return found


def _cell(counts: Counter[bool], link: str) -> str:
    played = counts.total()
    if not played:
        return ""
    kind = Outcome.FAIL if counts[False] else Outcome.PASS
    text = f"{counts[True]} of {played}" if counts[False] else str(played)
    return f'<span class="sign {kind.name.lower()}">{SIGNS[kind].sign}</span> {_linked(link, text)}'


_OUTCOMES = [f'<span title="{escape(sign.meaning)}">{sign.sign} {sign.word}</span>' for sign in SIGNS.values()]
_RUN_HEADS = ["Run", "Result", "Suite", "Catalogue", "Cases", "Subjects of test", "Report"]


def _counts(label: str, run: _Run) -> list[str]:
    counts = next(each["counts"] for each in run.report["subjects"] if each["label"] == label)
    return [escape(label), *(str(counts[outcome.value] or "-") for outcome in SIGNS), _linked(run.link(), _day(run))]


def _described(run: _Run) -> list[str]:
    about = run.report["run"]
    word = "passed" if run.report["passed"] else "failed" if _bad(run.report["counts"]) else "not complete"
    chosen = "" if run.is_whole else " selected"
    return [
        _linked(run.link(), str(about["time"])),
        word,
        escape(str(about.get("suite", ""))),
        f"<code>{escape(str(about.get('catalogue', ''))[:12])}</code>",
        f"{len(run.report['cases'])}{chosen}",
        escape(", ".join(run.labels)),
        _linked(f"runs/{run.name}/report.json", "report.json"),
    ]


def _by_time(runs: Iterable[_Run]) -> list[_Run]:
    return sorted(runs, key=lambda run: (run.report["run"]["time"], run.name), reverse=True)


def _bad(counts: Mapping[str, int]) -> int:
    return sum(counts[outcome.value] for outcome in Outcome if not outcome.is_good)


def _day(run: _Run) -> str:
    return str(run.report["run"]["time"])[:10]


def _text(text: str) -> str:
    """Escape a text for a page; texts of servers may contain any character."""
    return escape("".join(each if each.isprintable() else " " for each in text))


def _linked(address: str, text: str) -> str:
    return f'<a href="{escape(address)}">{_text(text)}</a>' if address else _text(text)


def _section(heading: str, about: str, content: str) -> str:
    note = f'<p class="about">{escape(about)}</p>' if about else ""
    return f"<section><h2>{escape(heading)}</h2>{note}{content}</section>"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{each}</th>' for each in heads)
    body = "".join(f"<tr>{''.join(f'<td>{each}</td>' for each in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table class="site"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _html(*sections: str) -> str:
    style = (files("nats_conformance.reports") / "page" / "page.css").read_text("utf-8")
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<link rel="icon" href="data:,">
<title>{_TITLE}</title>
<style>
{style}
</style>
</head>
<body>
<main>
<header class="top"><div><p class="eyebrow">nats-conform</p><h1>{_TITLE}</h1></div></header>
{"".join(sections)}
</main>
</body>
</html>
"""
