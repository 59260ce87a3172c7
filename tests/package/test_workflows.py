"""The workflows, as far as that goes without their service: they run what exists, with as few rights as they can."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.package.conftest import DECLARED, PROJECT

FOLDER = PROJECT / ".github/workflows"
FILES = sorted(path.name for path in FOLDER.iterdir())


def workflow(name: str) -> dict[str, Any]:
    # YAML 1.1 reads the key `on` as true; YAML 1.2, which the service reads, as text.
    found: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text("utf-8"))
    found["on"] = found.pop(True)
    return found


@pytest.mark.parametrize("name", FILES)
def test_what_they_run_is_there(name: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text("utf-8"), re.MULTILINE))
    runs = [step["run"] for job in workflow(name)["jobs"].values() for step in job["steps"] if "run" in step]
    made = {target for run in runs for target in re.findall(r"\bmake ([a-z-]+)", run)}
    assert made <= targets
    assert all((PROJECT / script).is_file() for run in runs for script in re.findall(r"(?<!\S)\.ci/\w+", run))


@pytest.mark.parametrize("name", FILES)
def test_they_may_write_only_where_a_job_asks(name: str) -> None:
    assert workflow(name)["permissions"] == {"contents": "read"}
    text = (FOLDER / name).read_text("utf-8")
    assert "pull_request_target" not in text
    assert not re.findall(r"run:.*\$\{\{", text), "an expression in a script is an injection"


def test_every_python_that_the_package_names_is_tested() -> None:
    matrix = workflow("ci.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(DECLARED["project"]["classifiers"]))
    assert set(named) <= set(matrix)
    assert f">={matrix[0]}" == DECLARED["project"]["requires-python"]


def test_a_release_begins_with_a_tag_and_needs_the_tests_of_the_package() -> None:
    found = workflow("release.yml")
    assert found["on"] == {"push": {"tags": ["v*"]}}
    assert {name: job.get("needs") for name, job in found["jobs"].items()} == {
        "build": None,
        "publish": "build",
        "image": "build",
    }
