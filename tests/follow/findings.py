"""What a new version does differently, and where the engine or the sidecar does not follow it yet: plain values."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from nats_conformance.catalogue.case import Case, Json
from nats_conformance.catalogue.reading import CATALOGUE
from nats_conformance.errors import HistoryError
from nats_conformance.history import read_history
from nats_conformance.outcome import Outcome
from nats_conformance.reports import Cell, Judged, judged
from tests.differential import Disagreement, report
from tests.differential.whole_observation import is_determined, whole
from tests.follow.changes import Change, changes
from tests.follow.newer import Step
from tests.follow.playing import SEEDS, TEST_SERVER, Progress, catalogue_part, history_of

_PYTHON = ".venv/bin/python"
_NO_CASE = "which no case expects anything of"
_LONGEST = 400
_LONGEST_FAILURE = 4000
_MOST_INPUTS = 5
"""Shrunk inputs of one seed in the report; the JSON files hold all of them."""
_UNTESTED = "connection.untested_server"
"""The event that a sidecar logs about a server that is newer than the table: tests that compare its log fail then."""


@dataclass(frozen=True, slots=True)
class DifferentCase:
    """A case of the catalogue that two subjects of test show differently.

    Attributes:
        again: the command that plays it.
        is_doubtful: whether the previous version, which is known, did not do as the case expects of it.
    """

    id: str
    title: str
    clause: str
    place: str
    changes: tuple[Change, ...]
    again: str
    is_doubtful: bool = False


@dataclass(frozen=True, slots=True)
class Different:
    """A random comparison or a live test: its result, and the command that plays it again; or ``count`` of them."""

    name: str
    text: str
    again: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Findings:
    """All of one version.

    Attributes:
        changed: cases, on the previous version and on this one.
        unfollowed: cases, on this version and in the engine.
        disagreements: of the random comparisons, each small input once.
        failed: live tests.
        untested: live tests whose failure names the event about a server that is newer than the table.
        broken: parts that have no result, and why.
        waiting: parts that have not ended.
        seconds: all parts took.
    """

    step: Step
    changed: tuple[DifferentCase, ...] = ()
    unfollowed: tuple[DifferentCase, ...] = ()
    disagreements: tuple[Different, ...] = ()
    failed: tuple[Different, ...] = ()
    untested: tuple[Different, ...] = ()
    broken: Mapping[str, str] = field(default_factory=dict)
    waiting: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def is_same(self) -> bool:
        """Whether the version does as the previous one, and the engine and the sidecar follow it."""
        return not (self.changed or self.left)

    @property
    def left(self) -> dict[str, int]:
        """How much of what remains to be done is there, by its name; empty if the version is followed."""
        counts = {
            "cases that the engine does not follow": len(self.unfollowed),
            "random comparisons that disagree": sum(each.count for each in self.disagreements),
            "live tests that fail": len(self.failed),
            f"live tests that fail and name {_UNTESTED}": len(self.untested),
            "parts without a result": len(self.broken),
            "parts that have not ended": len(self.waiting),
        }
        return {name: count for name, count in counts.items() if count}


def findings(step: Step, folder: Path, cases: Sequence[Case], progress: Progress, seconds: float) -> Findings:
    """Read what the parts of a step have written, so far as they have ended."""
    broken, own = dict(progress.broken), folder / step.version
    runs: list[Judged] = []
    for version in (step.previous, step.version):
        if catalogue_part(version) in progress.waiting:
            continue
        try:
            runs.append(judged(read_history(history_of(folder, version)), cases))
        except HistoryError as error:
            broken.setdefault(catalogue_part(version), str(error))
        else:
            broken |= {catalogue_part(version): text for text in runs[-1].objections()}
    changed, unfollowed = compared(step, *runs) if len(runs) == 2 else ((), ())
    files = [own / f"seed-{seed}.json" for seed in SEEDS]
    results = [json.loads(file.read_text("utf-8")) for file in files if file.exists()]
    live = own / "live.xml"
    failed = list(failing(step, live.read_text("utf-8"))) if live.exists() else []
    return Findings(
        step,
        changed,
        unfollowed,
        tuple(disagreements(step, results)),
        tuple(each for each in failed if _UNTESTED not in each.text),
        tuple(each for each in failed if _UNTESTED in each.text),
        broken,
        progress.waiting,
        seconds,
    )


def compared(step: Step, before: Judged, after: Judged) -> tuple[tuple[DifferentCase, ...], tuple[DifferentCase, ...]]:
    """The cases that changed, and those in which the engine shows something else than the new version."""
    changed: list[DifferentCase] = []
    unfollowed: list[DifferentCase] = []
    for case in after.cases:
        old = before.cell(case, f"native {step.previous}")
        new, engine = (after.cell(case, f"{kind} {step.version}") for kind in ("native", "engine"))
        is_modelled = engine is not None and engine.observation is not None and is_determined(case)
        for found, cells in ((changed, (old, new)), (unfollowed, (new, engine))):
            if different := tuple(_different(case, *cells, is_whole=is_modelled)):
                is_doubtful = cells[0] is old and old is not None and not old.verdict.outcome.is_good
                found.append(_case(step, case, different, is_doubtful))
    return tuple(changed), tuple(unfollowed)


def _different(case: Case, before: Cell | None, after: Cell | None, *, is_whole: bool) -> Iterator[Change]:
    if before is None or after is None:
        return
    if Outcome.ERRORED in (before.verdict.outcome, after.verdict.outcome):
        sides = [cell.verdict.reason if cell.observation is None else "it was played" for cell in (before, after)]
        yield Change("the case", sides[0], sides[1])
    elif found := changes(case, before, after):
        yield from found
    elif is_whole and before.observation is not None and after.observation is not None and after.expectation:
        # Only those that the engine models: the others depend on times and on the store.
        streams = frozenset(before.observation.stored) - after.expectation.any_order
        streams &= frozenset(after.observation.stored)
        yield from first_difference("", whole(before.observation, streams), whole(after.observation, streams))


def first_difference(path: str, before: Json, after: Json) -> Iterator[Change]:
    """The first place in which two values differ; nothing if they are equal."""
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        name = next(name for name in {**before, **after} if before.get(name) != after.get(name))
        yield from first_difference(f"{path}.{name}".lstrip("."), before.get(name), after.get(name))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        at = next(at for at, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1])
        yield from first_difference(f"{path}[{at}]", before[at], after[at])
    else:
        sides = (json.dumps(each, ensure_ascii=False)[:_LONGEST] for each in (before, after))
        yield Change(f"{path}, {_NO_CASE}", *sides)


def _case(step: Step, case: Case, different: tuple[Change, ...], is_doubtful: bool) -> DifferentCase:
    place = f"{case.file.relative_to(CATALOGUE.parents[1])}:{case.line}" if case.file else ""
    asked = ("--versions", f"{step.previous},{step.version}", "--subjects", "native,engine", "--select", case.id)
    again = shlex.join([".venv/bin/nats-conform", "run", *asked])
    return DifferentCase(case.id, case.title, case.clause, place, different, again, is_doubtful)


def disagreements(step: Step, results: Sequence[Sequence[Mapping[str, Any]]]) -> Iterator[Different]:
    """Of the results of all seeds: some shrunk inputs, each once, as printed; and the numbers of the others."""
    seen: set[str] = set()
    for result in (each for one in results for each in one):
        again = shlex.join(
            [_PYTHON, "-m", "tests.differential", "--versions", step.version, "--seed", str(result["seed"])]
        )
        others: list[str] = []
        shown = 0
        for each in (Disagreement(**one) for one in result["disagreements"]):
            if each.input in seen and each.entry:
                continue
            if not each.entry or shown == _MOST_INPUTS:
                others.append(str(each.number))
            else:
                seen.add(each.input)
                shown += 1
                name = f"seed {result['seed']}, trial {each.number}, {each.kind}: {each.where}"
                yield Different(name, "\n".join([*report.lines(each)][1:]), again)
        if others:
            name = f"seed {result['seed']}, {len(others)} more"
            yield Different(name, f"trials {', '.join(others)}", again, len(others))


def failing(step: Step, junit: str) -> Iterator[Different]:
    """The live tests that failed, by their name, and the whole assertion."""
    for test in ElementTree.fromstring(junit).iter("testcase"):
        for failure in (each for each in test if each.tag in ("failure", "error")):
            name = f"{test.get('classname', '').replace('.', '/')}.py::{test.get('name')}"
            said = (failure.get("message") or failure.tag).strip()[:_LONGEST_FAILURE]
            again = f"{TEST_SERVER}={step.version} " + shlex.join([_PYTHON, "-m", "pytest", name])
            yield Different(name, said, again)
