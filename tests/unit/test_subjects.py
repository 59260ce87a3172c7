"""The check of commit subjects in CI."""

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "subjects"


@pytest.fixture(scope="module")
def subjects() -> ModuleType:
    loader = SourceFileLoader("subjects", str(SCRIPT))
    spec = spec_from_loader("subjects", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "subject",
    [
        "copying: resume after a restart",
        "docs: x " + "y" * 63,
        f'Revert "docs: x {"y" * 63}"',
        'Reapply "docs: one thing"',
        'Revert "Reapply "docs: one thing""',
    ],
)
def test_a_subject_is_right(subjects: ModuleType, subject: str) -> None:
    assert subjects.problem(subject) == ""


@pytest.mark.parametrize(
    "subject",
    [
        "The outcome of it",
        "copying:resume",
        "copying: ",
        "Copying: resume",
        "docs: one thing.",
        "docs: " + "y" * 67,
        'Revert "docs: one thing."',
        "Revert docs: one thing",
    ],
)
def test_a_subject_is_wrong(subjects: ModuleType, subject: str) -> None:
    assert subjects.problem(subject)
