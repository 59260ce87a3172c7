"""A judged run as a plain record, the only input of every renderer."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from nats_conformance.catalogue.case import Case, Expectation, Level
from nats_conformance.errors import HistoryError
from nats_conformance.history import History, Played, Unplayed
from nats_conformance.identity import Identity
from nats_conformance.judging import judge
from nats_conformance.observation import Observation
from nats_conformance.outcome import Outcome, Verdict
from nats_conformance.reports.links import document_of


@dataclass(frozen=True, slots=True)
class Cell:
    """The outcome of one case on one subject of test.

    `expectation` is the one in force for its version, or None if the case does not apply. `observation` and `seconds`
    are None if the case did not run.
    """

    verdict: Verdict
    expectation: Expectation | None = None
    observation: Observation | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """A judged run.

    Attributes:
        history: the judged history; its `start` describes the run.
        subjects: of test, by label, in the order of the run.
        cases: the cases in the history, by document and clause, in the catalogue's order.
        cells: the cells by case id and label; a pair without a record is missing.
        unknown: ids that are in the history and not in the catalogue.
    """

    history: History
    subjects: Mapping[str, Identity]
    cases: tuple[Case, ...]
    cells: Mapping[tuple[str, str], Cell]
    unknown: tuple[str, ...] = ()

    def cell(self, case: Case, label: str) -> Cell | None:
        """Return the verdict on a case and a test subject; None if it is not in the history."""
        return self.cells.get((case.id, label))

    def counts(self, label: str | None = None) -> dict[str, int]:
        """Return the number of cases by outcome: on one test subject, or on all of them."""
        found = Counter(
            cell.verdict.outcome.value for (_, of), cell in self.cells.items() if label is None or of == label
        )
        return {outcome.value: found[outcome.value] for outcome in Outcome}

    @property
    def is_complete(self) -> bool:
        """Whether the history reaches its end, nothing requested is missing, and all of it could be judged.

        A run that skipped every case proves nothing, so it is not complete either.
        """
        return self.history.is_complete and not self.unknown and not self.gaps

    @property
    def gaps(self) -> tuple[str, ...]:
        """Sentences on missing records for each test subject, or on a run without any cases."""
        reported = Counter(record.subject for record in self.history.records)
        wanted = self.history.start.get("cases")
        found = [
            f"{label} has records of {reported[label]} cases, of {wanted} that were asked for"
            for label in self.subjects
            if isinstance(wanted, int) and reported[label] != wanted
        ]
        if not any(cell.observation is not None for cell in self.cells.values()):
            found.append("no case was played")
        return tuple(found)

    @property
    def passed(self) -> bool:
        """Whether nothing failed, nothing errored, and the run is complete."""
        return self.is_complete and not self.failures

    @property
    def failures(self) -> tuple[tuple[Case, str, Cell], ...]:
        """The failures and errors (case, label, cell), in the order of the cases."""
        return tuple(each for each in self.every_cell() if not each[2].verdict.outcome.is_good)

    @property
    def clauses(self) -> Mapping[str, tuple[Case, ...]]:
        """The cases by clause."""
        return {clause: tuple(cases) for clause, cases in groupby(self.cases, key=lambda case: case.clause)}

    def every_cell(self) -> Iterator[tuple[Case, str, Cell]]:
        """Yield every case on every subject of test in the history, case by case."""
        for case in self.cases:
            for label in self.subjects:
                cell = self.cell(case, label)
                if cell is not None:
                    yield case, label, cell

    @property
    def choice(self) -> str:
        """The selection of cases, such as `selected by adr28/headers, level must`; empty for all."""
        patterns = [str(pattern) for pattern in self.history.start.get("selection") or ()]
        level = self.history.start.get("level", Level.OBSERVED.value)
        reported = [f"selected by {', '.join(patterns[:3])}{', …' if len(patterns) > 3 else ''}"] if patterns else []
        reported += [f"level {level}"] if level != Level.OBSERVED.value else []
        return ", ".join(reported)

    def objections(self) -> list[str]:
        """Return the reasons why the run is not complete, a sentence each; none if it is."""
        found = []
        if not self.history.is_complete and not self.history.missing:
            found.append(f"the history was cut short: it has {len(self.history.records)} records and no end")
        found += [f"{name} is missing: {reason}" for name, reason in self.history.missing.items()]
        if self.history.is_complete:
            found += self.gaps
        if self.unknown:
            shown = ", ".join(self.unknown[:3]) + (", …" if len(self.unknown) > 3 else "")
            number = len(self.unknown)
            found.append(f"{number} case{'s are' if number > 1 else ' is'} unknown to this catalogue: {shown}")
        return found


def judged(history: History, cases: Sequence[Case]) -> Judged:
    """Judge a history by a catalogue, offline.

    Raises:
        HistoryError: a record is about a subject of test that the history's first line does not name, or there
            are two of one case.
    """
    known = {case.id: case for case in cases}
    cells: dict[tuple[str, str], Cell] = {}
    unknown: dict[str, None] = {}
    for record in history.records:
        if record.subject not in history.subjects:
            raise HistoryError(f"case {record.case}: subject of test '{record.subject}' is not named in the first line")
        case = known.get(record.case)
        if (record.case, record.subject) in cells:
            raise HistoryError(f"case {record.case}: two records of it on '{record.subject}'")
        if case is None:
            unknown[record.case] = None
        else:
            cells[record.case, record.subject] = _cell(case, history.subjects[record.subject], record)
    reported = {case_id for case_id, _ in cells}
    return Judged(
        history=history,
        subjects=history.subjects,
        cases=_ordered([case for case in cases if case.id in reported]),
        cells=cells,
        unknown=tuple(unknown),
    )


def _ordered(cases: Sequence[Case]) -> tuple[Case, ...]:
    """Sort cases by document and clause, each in the order of first appearance."""
    documents = list(dict.fromkeys(document_of(case.clause) for case in cases))
    clauses = list(dict.fromkeys(case.clause for case in cases))
    return tuple(
        sorted(cases, key=lambda case: (documents.index(document_of(case.clause)), clauses.index(case.clause)))
    )


def _cell(case: Case, subject: Identity, record: Played | Unplayed) -> Cell:
    expectation = case.expected(subject.version) if case.applies(subject.version) else None
    if isinstance(record, Unplayed):
        return Cell(Verdict(record.outcome, record.reason), expectation)
    return Cell(judge(case, subject, record.observation), expectation, record.observation, record.seconds)
