"""The pages on the architecture: walks, modules with tables of states, and the files of common changes exist."""

from __future__ import annotations

import re
from functools import cache, partial
from pathlib import Path

import pytest

from nats_bridge.consuming.reader_life import READER
from nats_bridge.kinds.copying.round import ROUND
from nats_bridge.kinds.copying.writing.publishing import PUBLISHING
from nats_bridge.rules.run import RUN
from nats_bridge.rules.supervision import SUPERVISION
from nats_bridge.states import StateTable

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
CHANGES = (ROOT / "docs" / "extending.md").read_text("utf-8")


@pytest.mark.parametrize(
    "table", [ROUND, PUBLISHING, RUN, SUPERVISION, READER], ids=["round", "publishing", "run", "supervision", "reader"]
)
def test_the_page_names_the_modules_with_tables_of_states(table: StateTable[str, str]) -> None:
    paragraph = PAGE.partition("tables in the code: ")[2].partition("\n\n")[0]
    modules = [
        ROOT / "bridge" / "nats_bridge" / f"{name}.py" for name in re.findall(r"`([a-z_/]+/[a-z_]+)`", paragraph)
    ]
    assert len(modules) == 5
    assert [module.name for module in modules if table.drawing in module.read_text("utf-8")]


@pytest.mark.parametrize("kind", ["republish", "copying"])
def test_a_message_passes_at_most_six_files_and_returns_to_none(kind: str) -> None:
    walk = PAGE.partition(f"\n{kind} ")[2].partition("\n\n")[0].partition("```")[0]
    files = re.findall(r"(?:^|\n) *((?:client|consuming|kinds|rules)/\S+)", f" {walk}")
    assert 4 < len(set(files)) <= 6
    assert [name for name in files if files.count(name) > 1 and name != "client/wire"] == []
    for name in files:
        assert (ROOT / "bridge" / "nats_bridge" / f"{name}.py").is_file(), name


def test_a_round_of_copying_begins_in_at_most_ten_files() -> None:
    walk = PAGE.partition("A round begins with these\ncalls:\n\n```text\n")[2].partition("```")[0]
    calls = re.findall(r"^(kinds/copying/\S+) +(?:\w+\.)?(\w+)", walk, re.M)
    assert len(calls) == len(walk.splitlines())
    assert len({file for file, _ in calls}) <= 10
    for file, function in calls:
        assert f"def {function}(" in (ROOT / "bridge" / "nats_bridge" / f"{file}.py").read_text("utf-8")


def test_modules_in_the_tables_exist() -> None:
    named = 0
    bases: list[Path] = []
    for line in PAGE.splitlines():
        if line.startswith("#"):
            bases = [ROOT, *(ROOT / folder for folder in re.findall(r"\b[a-z_]+/[a-z_/]*", line))]
            bases += [base.parent for base in bases[1:]]
        elif module := re.match(r"\| module of `(.*)` \|", line):
            bases = [ROOT / "bridge/nats_bridge/kinds" / module[1]]
        elif line.startswith("| `"):
            packages, _, about = line.strip("| ").partition(" | ")
            rows = re.findall(r"`([^`]+)`", packages)
            within = {base / (row if row.endswith("/") else Path(row).parent) for base in bases for row in rows}
            for name in [*rows, *re.findall(r"`([a-z_][a-z_/]*)`", about)]:
                named += 1
                assert any(map(partial(_has_module, name), {*bases, *within})), f"{name} in: {line}"
    assert named > 60


def _has_module(name: str, folder: Path) -> bool:
    """Whether a package or module is in a folder, or in one of its packages."""
    return any((place / name).is_dir() or (place / f"{name}.py").is_file() for place in (folder, *_packages_of(folder)))


@cache
def _packages_of(folder: Path) -> list[Path]:
    return [] if folder == ROOT else [init.parent for init in folder.rglob("__init__.py")]


def test_common_changes_take_three_files_at_most() -> None:
    table = CHANGES.partition("## Common changes")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.*) \| (`.*) \|$", table, re.M)
    assert rows
    for change, files in rows:
        named = re.findall(r"`([^`]+)`", files)
        assert 0 < len(named) <= 3, change
        for name in named:
            assert (ROOT / name).is_file(), name
