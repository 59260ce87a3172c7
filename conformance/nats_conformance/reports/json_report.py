"""Renders the verdicts as JSON with a stable form, and as a badge. Observed bytes are in the history."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from nats_conformance.catalogue.exporting import about
from nats_conformance.outcome import Outcome, Verdict
from nats_conformance.reports.judgement import Judged

FORMAT = 1
"""Increased when a member changes its meaning or is removed. New members may be added at any time."""

_MEMBERS = ("suite", "catalogue", "catalogue_version", "time", "selection", "level", "server")


def as_report(judged: Judged) -> dict[str, Any]:
    """Return plain values for `json.dumps`.

    `report`: the format. `version`, `license`: the date of the results, and the terms on which others may use them.
    `passed`, `complete`, `objections`: the result, and the reasons if the run is not complete.
    `run`: the history's own description. `subjects`, `cases`: the names in `verdicts`. `counts`: numbers by outcome.
    `verdicts`: case, subject, outcome, and optionally `reason`, `mismatches`, `divergences`, `seconds`.
    """
    return {
        "report": FORMAT,
        "version": str(judged.history.start.get("time", ""))[:10].replace("-", "."),
        "license": about()["license"],
        "passed": judged.passed,
        "complete": judged.is_complete,
        "objections": judged.objections(),
        "run": {name: judged.history.start[name] for name in _MEMBERS if name in judged.history.start},
        "counts": judged.counts(),
        "subjects": [
            {"label": label, **identity.as_json(), "counts": judged.counts(label)}
            for label, identity in judged.subjects.items()
        ],
        "cases": [
            {"id": case.id, "title": case.title, "level": case.level.value, "clause": case.clause}
            for case in judged.cases
        ],
        "verdicts": [
            {"case": case.id, "subject": label, **_verdict(cell.verdict)}
            | ({} if cell.seconds is None else {"seconds": round(cell.seconds, 4)})
            for case, label, cell in judged.every_cell()
        ],
        "unknown_cases": list(judged.unknown),
        "missing": dict(judged.history.missing),
    }


def _verdict(verdict: Verdict) -> dict[str, Any]:
    found: dict[str, Any] = {"outcome": verdict.outcome.value, "reason": verdict.reason}
    found |= {"mismatches": [asdict(each) for each in verdict.mismatches], "divergences": list(verdict.divergences)}
    return {name: value for name, value in found.items() if value}


def badge(counts: Mapping[str, int], *, is_passed: bool) -> dict[str, object]:
    """Return the badge for services that draw them: the good cases among those that ran. `counts` are by outcome."""
    played = [each for each in Outcome if each not in (Outcome.SKIPPED, Outcome.INAPPLICABLE)]
    good = sum(counts[each.value] for each in played if each.is_good)
    bad = sum(counts[each.value] for each in played if not each.is_good)
    colour = "brightgreen" if is_passed else "red" if bad else "lightgrey"
    return {"schemaVersion": 1, "label": "NATS conformance", "message": f"{good} of {good + bad}", "color": colour}
