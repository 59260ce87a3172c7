"""The summary of a judged run for a terminal."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TextIO

from conformance.catalogue.case import Case
from conformance.outcome import Mismatch, Outcome
from conformance.reports.judgement import Cell, Judged
from conformance.reports.reproduction import reproduction
from conformance.reports.signs import SIGNS

__all__ = ["summary", "wants_colour"]

_MOST_FAILURES = 20
_MOST_MISMATCHES = 4
_SHORTEST_NAME = 16
_CODES = {
    Outcome.PASS: "32",
    Outcome.DIFFERENCE: "36",
    Outcome.DIVERGENCE: "35",
    Outcome.SKIPPED: "33",
    Outcome.ERRORED: "1;31",
    Outcome.FAIL: "1;31",
    Outcome.INAPPLICABLE: "2",
}


def wants_colour(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether a stream is a terminal whose user did not set ``NO_COLOR``."""
    return stream.isatty() and not environment.get("NO_COLOR")


def summary(judged: Judged, width: int, colour: bool) -> str:
    """A table of subjects and outcomes, one of clauses where it fits, what failed, and the result in the last line.

    Args:
        width: columns of the terminal.
        colour: whether escape sequences may be used.
    """
    paint = _Paint(colour)
    blocks = [
        "\n".join(_subjects(judged, paint)),
        "\n".join(_clauses(judged, width, paint)),
        "\n".join(_failures(judged, width, paint)),
        "\n".join(_result(judged, width, paint)),
    ]
    return "\n\n".join(block for block in blocks if block)


class _Paint:
    """Puts texts in colours, or leaves them."""

    def __init__(self, is_on: bool) -> None:
        self._is_on = is_on

    def __call__(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._is_on else text


def _subjects(judged: Judged, paint: _Paint) -> Iterator[str]:
    name = max(map(len, judged.subjects), default=0)
    yield paint(" " * name + "".join(f"{sign.word:>12}" for sign in SIGNS.values()), "2")
    for label in judged.subjects:
        counts = judged.counts(label)
        columns = (
            paint(f"{counts[outcome] or '-':>12}", _CODES[outcome] if counts[outcome] else "2") for outcome in SIGNS
        )
        yield f"{label:<{name}}" + "".join(columns)


def _clauses(judged: Judged, width: int, paint: _Paint) -> Iterator[str]:
    """Clauses × subjects: how many cases, and the worst sign; nothing where the terminal is too narrow."""
    heads = [label.split(" ", 1) for label in judged.subjects]
    columns = [max(6, *(len(part) for part in head)) for head in heads]
    clause_width = max(map(len, judged.clauses), default=0)
    room = width - sum(columns) - 2 * len(columns)
    if not judged.clauses or room < min(clause_width, _SHORTEST_NAME):
        return
    clause_width = min(clause_width, room)
    for line in (0, 1):
        cells = (
            f"  {(head[line] if line < len(head) else ''):>{column}}"
            for head, column in zip(heads, columns, strict=True)
        )
        yield paint((" " * clause_width + "".join(cells)).rstrip(), "2")
    for clause, cases in judged.clauses.items():
        marked = (
            _mark(judged, cases, label, column, paint) for label, column in zip(judged.subjects, columns, strict=True)
        )
        yield f"{_cut(clause, clause_width):<{clause_width}}" + "".join(f"  {cell}" for cell in marked)


def _mark(judged: Judged, cases: Sequence[Case], label: str, column: int, paint: _Paint) -> str:
    """How many cases of a clause apply, and the sign that matters most among them."""
    found = Counter(outcome for case in cases if (outcome := judged.outcome(case, label)) is not None)
    bad = found[Outcome.FAIL] + found[Outcome.ERRORED]
    if bad:
        worst = Outcome.FAIL if found[Outcome.FAIL] else Outcome.ERRORED
        return paint(f"{f'{bad} {SIGNS[worst].sign}':>{column}}", _CODES[worst])
    number = found.total() - found[Outcome.INAPPLICABLE]
    if not number:
        return paint(f"{SIGNS[Outcome.INAPPLICABLE].sign:>{column}}", "2")
    order = (Outcome.SKIPPED, Outcome.DIVERGENCE, Outcome.DIFFERENCE, Outcome.PASS)
    worst = next(outcome for outcome in order if found[outcome])
    return paint(f"{f'{number} {SIGNS[worst].sign}':>{column}}", _CODES[worst])


def _failures(judged: Judged, width: int, paint: _Paint) -> Iterator[str]:
    failures = judged.failures
    for case, label, cell in failures[:_MOST_FAILURES]:
        yield from _failure(judged, case, label, cell, width, paint)
    if len(failures) > _MOST_FAILURES:
        yield f"… and {len(failures) - _MOST_FAILURES} more"


def _failure(judged: Judged, case: Case, label: str, cell: Cell, width: int, paint: _Paint) -> Iterator[str]:
    outcome = cell.verdict.outcome
    yield paint(f"{SIGNS[outcome].sign} {case.id}", _CODES[outcome]) + f"  {label}"
    yield f"    {_cut(case.title, width - 4)}"
    yield from textwrap.wrap(cell.verdict.reason, max(width, 40), initial_indent="    ", subsequent_indent="    ")
    for mismatch in cell.verdict.mismatches[:_MOST_MISMATCHES]:
        yield from _mismatch(mismatch, width, paint)
    if len(cell.verdict.mismatches) > _MOST_MISMATCHES:
        yield f"    … and {len(cell.verdict.mismatches) - _MOST_MISMATCHES} more"
    yield paint(f"    {reproduction(case.id, judged.subjects[label], judged.history.start.get('seed'))}", "2")


def _mismatch(mismatch: Mismatch, width: int, paint: _Paint) -> Iterator[str]:
    yield f"    {mismatch.where}"
    at = _first_difference(mismatch.expected, mismatch.observed)
    room = max(width - 17, 24)
    for name, text, code in (("expected", mismatch.expected, "32"), ("observed", mismatch.observed, "31")):
        yield f"      {name} {paint(_around(text, at, room), code)}"


def _first_difference(first: str, second: str) -> int:
    pairs = zip(first, second, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def _around(text: str, at: int, room: int) -> str:
    """As much of a text as fits, such that the place is seen."""
    if len(text) <= room:
        return text
    begin = max(0, min(at - room // 3, len(text) - room))
    cut = text[begin : begin + room]
    return (
        ("…" + cut[1:] if begin else cut)
        if begin + room >= len(text)
        else ("…" if begin else "") + cut[bool(begin) : -1] + "…"
    )


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: max(room - 1, 0)] + "…"


def _result(judged: Judged, width: int, paint: _Paint) -> Iterator[str]:
    for objection in judged.objections():
        yield from textwrap.wrap(f"PARTIAL: {objection}", max(width, 40), subsequent_indent="  ")
    counts = judged.counts()
    told = [f"{counts[outcome]} {sign.word}" for outcome, sign in SIGNS.items() if counts[outcome]]
    subjects = len(judged.subjects)
    about = f"{len(judged.cases)} cases, {subjects} subject{'s' if subjects != 1 else ''} of test: {', '.join(told)}"
    if judged.passed:
        yield f"{paint('PASSED', '1;32')}  {about}"
    else:
        word = "FAILED" if judged.failures else "NOT COMPLETE"
        yield f"{paint(word, '1;31')}  {about}"
