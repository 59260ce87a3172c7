"""The summary of a judged run for a terminal."""

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import TextIO, TypeAlias

from nats_conformance.catalogue.case import Case
from nats_conformance.outcome import Mismatch, Outcome
from nats_conformance.reports.judgement import Cell, Judged
from nats_conformance.reports.reproduction import reproduction
from nats_conformance.reports.signs import SIGNS
from nats_transforms.subject import one_line

_Paint: TypeAlias = Callable[[str, str], str]
_MOST_FAILURES = 20
_MOST_MISMATCHES = 4
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{0,8}[1-9])?Z")
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
    """Return whether a stream is a terminal whose user has not set `NO_COLOR`."""
    return stream.isatty() and not environment.get("NO_COLOR")


def summary(judged: Judged, width: int, colour: bool) -> str:
    """Return a table of subjects and outcomes, the failures, and the result in the last line.

    Args:
        width: columns of the terminal.
        colour: whether escape sequences may be used.
    """

    def paint(text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if colour else text

    blocks = [
        "\n".join(_subjects(judged, width, paint)),
        "\n".join(_failures(judged, width, paint)),
        "\n".join(_result(judged, width, paint)),
    ]
    return "\n\n".join(block for block in blocks if block)


def _subjects(judged: Judged, width: int, paint: _Paint) -> Iterator[str]:
    """Yield a table of test subjects and their outcomes, or sentences if the terminal is too narrow."""
    total = judged.counts()
    met = {outcome: sign.word for outcome, sign in SIGNS.items() if total[outcome]}
    name = max(map(len, judged.subjects), default=0)
    columns = {outcome: max(len(word), 4) + 2 for outcome, word in met.items()}
    if name + sum(columns.values()) > width:
        for label in judged.subjects:
            yield f"{label}: {_reported(judged.counts(label))}"
        return
    yield paint(" " * name + "".join(f"{word:>{columns[outcome]}}" for outcome, word in met.items()), "2")
    for label in judged.subjects:
        counts = judged.counts(label)
        cells = (
            paint(f"{counts[outcome] or '-':>{column}}", _CODES[outcome] if counts[outcome] else "2")
            for outcome, column in columns.items()
        )
        yield f"{label:<{name}}" + "".join(cells)


def _reported(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{counts[outcome]} {sign.word}" for outcome, sign in SIGNS.items() if counts[outcome])


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
    if case.transform is not None:
        yield f"    {_cut(one_line(str(case.transform)), width - 4)}"
    reason = one_line(cell.verdict.reason)
    yield from textwrap.wrap(reason, max(width, 40), initial_indent="    ", subsequent_indent="    ")
    for mismatch in cell.verdict.mismatches[:_MOST_MISMATCHES]:
        yield from _mismatch(mismatch, width, paint)
    if len(cell.verdict.mismatches) > _MOST_MISMATCHES:
        yield f"    … and {len(cell.verdict.mismatches) - _MOST_MISMATCHES} more"
    start = judged.history.start
    yield paint(f"    {reproduction(case.id, judged.subjects[label], start.get('server'))}", "2")


def _mismatch(mismatch: Mismatch, width: int, paint: _Paint) -> Iterator[str]:
    yield f"    {mismatch.where}"
    expected, observed = mismatch.expected, mismatch.observed
    if "<time>" in expected:
        # A correct time is not a difference, and must not be the visible part of a shortened text.
        observed = _TIME.sub("<time>", observed)
    at = _first_difference(expected, observed)
    room = max(width - 15, 24)
    for name, text, code in (("expected", expected, "32"), ("observed", observed, "31")):
        yield f"      {name} {paint(_around(one_line(text), at, room), code)}"


def _first_difference(first: str, second: str) -> int:
    pairs = zip(first, second, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def _around(text: str, at: int, room: int) -> str:
    """Cut a text so that the place stays visible."""
    begin = max(0, min(at - room // 3, len(text) - room))
    found = text[begin : begin + room]
    if begin:
        found = f"…{found[1:]}"
    if begin + room < len(text):
        found = f"{found[:-1]}…"
    return found


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: max(room - 1, 0)] + "…"


def _result(judged: Judged, width: int, paint: _Paint) -> Iterator[str]:
    for objection in judged.objections():
        yield from textwrap.wrap(one_line(f"PARTIAL: {objection}"), max(width, 40), subsequent_indent="  ")
    cases, subjects = len(judged.cases), len(judged.subjects)
    about = (
        f"{cases} case{'s' if cases != 1 else ''}, {subjects} subject{'s' if subjects != 1 else ''} of test:"
        f" {_reported(judged.counts())}"
    )
    if server := judged.history.start.get("server"):
        about += f"; the running server {one_line(str(server))}"
    if judged.passed:
        yield f"{paint('PASSED', '1;32')}  {about}"
    else:
        word = "FAILED" if judged.failures else "NOT COMPLETE"
        yield f"{paint(word, '1;31')}  {about}"
