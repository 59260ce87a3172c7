"""Planted defects: what a slip in the bridge's code could do, and the tests that must find

it. They are in one file per area next to this one. A defect is a piece of text in one file, which stands there once,
and what it becomes. It changes what the program does, not whether it can be imported.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

AREAS = ("intake", "delivery", "copying", "leadership", "reload", "ingress", "sidecar", "repairs")


class DefectError(Exception):
    """A defect that cannot be planted, or cannot be judged; `str` names it and says why."""


@dataclass(frozen=True, slots=True)
class Defect:
    """One planted defect.

    Attributes:
        id: its area and a name, such as `intake/gap-not-filled`.
        file: the file that it is in, from the repository's root.
        wrong: what the program does wrong, in a sentence.
        tests: node ids of the tests of which one must fail.
        old: what stands in the file.
        new: what it becomes.
        found_before: whether the tests found it when it was written; False: they had to be written for it.
    """

    id: str
    file: str
    wrong: str
    tests: tuple[str, ...]
    old: str
    new: str
    found_before: bool = True

    @property
    def area(self) -> str:
        """What it is about."""
        return self.id.partition("/")[0]

    def planted(self, text: str) -> str:
        """The file's text with the defect in it.

        Raises:
            DefectError: the old text does not stand there exactly once.
        """
        if (times := text.count(self.old)) != 1:
            raise DefectError(f"{self.id}: its old text stands in {self.file} {times} times, not once")
        return text.replace(self.old, self.new)


def read_defects() -> tuple[Defect, ...]:
    """All of them, area by area."""
    return tuple(
        Defect(
            id=f"{area}/{name}",
            file=found["file"],
            wrong=found["wrong"],
            tests=tuple(found["tests"]),
            old=found["old"].removesuffix("\n"),
            new=found["new"].removesuffix("\n"),
            found_before=found.get("found_before", True),
        )
        for area in AREAS
        for name, found in tomllib.loads((Path(__file__).parent / f"{area}.toml").read_text("utf-8")).items()
    )
