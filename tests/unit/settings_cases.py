"""Reads the cases of `test_settings_good*.txt` and `test_settings_bad*.txt`.

A block is `=== name`, the text of `bridge.yaml`, and cases. A case is a line `==>`, or several of which each gives a
variable (`==> NAME=value`) or another file (`==> folder/name=content`), and the lines that are expected. In these,
`<kinds>` stands for the names of all kinds of rules.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from nats_bridge.rule_kinds import KINDS

_GIVEN = re.compile("((?:^==>.*\n)+)", re.MULTILINE)


class Case(NamedTuple):
    """A configuration, and what is expected of it.

    Attributes:
        name: of its block.
        text: of `bridge.yaml`.
        given: variables and other files, by name or path.
        expected: lines.
    """

    name: str
    text: str
    given: dict[str, str]
    expected: list[str]


def files(kind: str) -> list[Path]:
    """The files of cases: `good` or `bad`."""
    return sorted(Path(__file__).parent.glob(f"test_settings_{kind}*.txt"))


def cases(file: Path) -> Iterator[Case]:
    """The cases of a file."""
    kinds = ", ".join(KINDS)
    for block in file.read_text(encoding="utf-8").removeprefix("=== ").split("\n=== "):
        name, _, rest = block.partition("\n")
        text, *sections = _GIVEN.split(rest)
        for lines, expected in zip(sections[::2], sections[1::2], strict=True):
            given = (line.removeprefix("==>").strip().partition("=") for line in lines.splitlines())
            lines_expected = expected.replace("<kinds>", kinds).splitlines()
            yield Case(name, text, {key: value for key, _, value in given if key}, lines_expected)


def in_folder(case: Case, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Make the folder with the case's files, and run in it with the case's variables alone."""
    folder.mkdir()
    patch.chdir(folder)
    for name in [name for name in os.environ if name.upper().startswith("BRIDGE_")]:
        patch.delenv(name)
    patch.setenv("XDG_CONFIG_HOME", ".")
    for name, value in {"./bridge.yaml": case.text, **case.given}.items():
        if "/" in name:
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text(value, encoding="utf-8")
        else:
            patch.setenv(name, value)
