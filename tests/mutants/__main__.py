"""`python -m tests.mutants [ID...] [--base REV] [--table FILE]`: whether the tests find every planted defect.

With no id, all of them; an id may also be an area, or end with `*`.
"""

from __future__ import annotations

import argparse
import queue
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path

from tests.mutants.defects import Defect, DefectError, read_defects
from tests.mutants.planting import Scratch, Trial

_AT_ONCE = 2


def main() -> int:
    """Run it; 0 if every defect was found."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description="Whether the tests find every planted defect."
    )
    parser.add_argument("ids", nargs="*", metavar="ID", help="an id, an area, or a pattern with `*`; all without one")
    parser.add_argument("--base", metavar="REV", help="try the code and tests of a revision, not of the working tree")
    parser.add_argument("--table", type=Path, metavar="FILE", help="write the table there, in Markdown")
    parser.add_argument("--list", action="store_true", help="only name the defects")
    said = parser.parse_args()
    known = read_defects()
    if unknown := [wanted for wanted in said.ids if not _chosen(known, [wanted])]:
        parser.error(f"no defect has the id or area {', '.join(unknown)}; --list names them")
    defects = _chosen(known, said.ids)
    if said.list:
        print(*(f"{each.id}: {each.wrong}" for each in defects), sep="\n")
        return 0
    try:
        trials = _tried(defects, said.base)
    except DefectError as error:
        print(error, file=sys.stderr)
        return 2
    if said.table is not None:
        said.table.parent.mkdir(parents=True, exist_ok=True)
        said.table.write_text(table(trials), "utf-8")
    print(f"{sum(bool(each.found_by) for each in trials)} of {len(trials)} planted defects were found")
    return 0 if all(each.found_by for each in trials) else 1


def _chosen(defects: Iterable[Defect], ids: Sequence[str]) -> list[Defect]:
    return [
        each
        for each in defects
        if not ids or any(each.area == wanted or fnmatchcase(each.id, wanted) for wanted in ids)
    ]


def _tried(defects: Sequence[Defect], base: str | None) -> list[Trial]:
    """The trials of some defects, in their order."""
    copies: queue.SimpleQueue[Scratch] = queue.SimpleQueue()
    made = [Scratch(base, number, _AT_ONCE) for number in range(_AT_ONCE)]

    def trial(defect: Defect) -> Trial:
        copy = copies.get()
        try:
            tried = copy.trial(defect)
        finally:
            copies.put(copy)
        print(f"{defect.id}: {tried.found_by or 'NOT FOUND'} ({tried.seconds:.0f} s)", flush=True)
        return tried

    try:
        if failing := made[0].unchanged(list(dict.fromkeys(test for each in defects for test in each.tests))):
            raise DefectError("these tests fail without a defect:\n" + "\n".join(failing))
        for copy in made:
            copies.put(copy)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            try:
                return list(pool.map(trial, defects))
            except BaseException:
                _stop(made)  # the pool waits for what runs
                raise
    finally:
        _stop(made)
        for copy in made:
            copy.close()


def _stop(copies: Iterable[Scratch]) -> None:
    for copy in copies:
        copy.stop()


def table(trials: Iterable[Trial]) -> str:
    """The trials, in Markdown."""
    lines = ["| defect | what is wrong | found by | seconds |", "|---|---|---|---|"]
    for each in trials:
        by = f"`{each.found_by}`" if each.found_by else "**not found**"
        lines.append(f"| {each.defect.id} | {each.defect.wrong} | {by} | {each.seconds:.0f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
