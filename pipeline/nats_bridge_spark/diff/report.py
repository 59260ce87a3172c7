"""A comparison's result as a run of the conformance suite, so that its reports can show it.

Every kind of finding is a case: `diff/missing/1`, `diff/header-value/1`, …. What a case expects is that there is none;
what was seen is how many there are, and the first of them. The subject of test is the right side, a history. With the
reports are the run's history and the cases, so that `nats-bridge conform judge DIR/history.jsonl --cases DIR/cases`
judges it again.
"""

from __future__ import annotations

import datetime
import json
import shlex
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from nats_bridge_spark.diff.findings import KINDS
from nats_bridge_spark.diff.run import Result
from nats_bridge_spark.diff.summary import as_json, example_line
from nats_bridge_spark.errors import PipelineError
from nats_conformance.catalogue.reading import read_catalogue
from nats_conformance.history import HistoryWriter, Played, Unplayed, read_history
from nats_conformance.identity import Identity
from nats_conformance.observation import Observation
from nats_conformance.outcome import Outcome
from nats_conformance.reports import judged, write_reports

CLAUSE = "nats-bridge diff, two histories agree"


def write_report(result: Result, folder: Path, arguments: Sequence[str]) -> list[Path]:
    """Write the history, the cases, and the suite's reports of them.

    Args:
        result: what came out.
        folder: where to; made where it is not there.
        arguments: those of the command, to be shown as what compares the two sides again.

    Returns:
        the reports' files.

    Raises:
        PipelineError: the folder cannot be written to.
    """
    try:
        return _written(result, folder, arguments)
    except OSError as error:
        raise PipelineError(f"--report {folder}: {error.strerror or error}") from None


def _written(result: Result, folder: Path, arguments: Sequence[str]) -> list[Path]:
    cases = folder / "cases"
    cases.mkdir(parents=True, exist_ok=True)
    (cases / "diff.yaml").write_text(_cases(), "utf-8")
    command = shlex.join(["nats-bridge", "diff", *arguments])
    subject = Identity(kind="history", dialect="", name=result.right.place.shown, command=command)
    file = folder / "history.jsonl"
    start: dict[str, Any] = {
        "suite": version("nats-bridge"),
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cases": len(KINDS),
        "diff": as_json(result),
    }
    with HistoryWriter(file, {subject.label: subject}, **start) as history:
        for kind in KINDS:
            history.add(_record(result, kind, subject.label))
    return write_reports(judged(read_history(file), read_catalogue(cases)), folder)


def _record(result: Result, kind: str, label: str) -> Played | Unplayed:
    case, number = f"diff/{kind}/1", result.kinds.get(kind, 0)
    if number and kind in result.allowed:
        return Unplayed(case, label, Outcome.SKIPPED, f"{number} found, and allowed")
    if kind == "order" and result.comparison.by in ("sequence", "subject"):
        return Unplayed(case, label, Outcome.INAPPLICABLE, "messages of equal sequences are in the same order")
    facts = {"messages": number, "examples": [example_line(each) for each in result.examples.get(kind, ())]}
    return Played(case, label, Observation(facts=facts), 0.0)


def _cases() -> str:
    """The cases as a file of the catalogue; JSON is YAML."""
    found = [
        {
            "id": f"diff/{kind}/1",
            "title": f"No message of this kind: {meaning}",
            "level": "must",
            "scenario": "nats-bridge-diff",
            "expect": {"facts": {"messages": 0, "examples": []}},
        }
        for kind, meaning in KINDS.items()
    ]
    return json.dumps({"clause": CLAUSE, "cases": found}, indent=1) + "\n"
