"""Reads a file of cases that a tested server or library is known to fail, so that a run's exit code only shows new
failures.

It has one id in each line; `#` begins a remark. A listed case that ran and no longer fails is also a finding, so that
the list does not outlive its reasons.
"""

from pathlib import Path

from nats_conformance.errors import ConformanceError
from nats_conformance.reports.judgement import Judged


def read_expected_failures(file: Path) -> frozenset[str]:
    """Return the ids in a file.

    Raises:
        ConformanceError: it cannot be read, or a line is more than an id.
    """
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConformanceError(f"--expected-failures {file}: {error}") from None
    found = set()
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if len(words) > 1:
            raise ConformanceError(f"{file}:{number}: one id a line, and a remark behind #: '{line.strip()}'")
        found.update(words)
    return frozenset(found)


def surprises(result: Judged, expected: frozenset[str]) -> list[str]:
    """Return the differences between the failures of a run and the expected ones, a line each."""
    failed = {case.id for case, _, _ in result.failures}
    played = {case.id for case, _, cell in result.every_cell() if cell.observation is not None}
    return [
        *(f"{each}: fails, and is not expected to" for each in sorted(failed - expected)),
        *(
            f"{each}: no longer fails; remove it from the expected failures"
            for each in sorted(expected & played - failed)
        ),
    ]
