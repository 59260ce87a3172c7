"""The workflows, without their service: they run what exists, with as few rights as they can."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
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


def test_newer_servers_are_looked_for_daily_and_differences_reported(tmp_path: Path) -> None:
    found = workflow("follow.yml")
    (timer,) = found["on"]["schedule"]
    assert re.fullmatch(r"\d+ \d+ \* \* \*", timer["cron"])
    (job,) = found["jobs"].values()
    follow, summary, upload = job["steps"][-3:]
    assert follow == {"run": "make follow"}, "its exit code is that of the job"
    assert summary["if"] == upload["if"] == "always()"
    assert upload["with"]["path"] == "build/follow"
    script = ["bash", "-e", "-o", "pipefail", "-c", summary["run"]]
    environment = {"PATH": "/usr/bin:/bin", "GITHUB_STEP_SUMMARY": "summary.md"}
    subprocess.run(script, cwd=tmp_path, env=environment, check=True)
    assert not (tmp_path / "summary.md").exists(), "there is no report if no version could be listed"
    (tmp_path / "build/follow").mkdir(parents=True)
    (tmp_path / "build/follow/report.md").write_text("a report\n", "utf-8")
    subprocess.run(script, cwd=tmp_path, env=environment, check=True)
    assert (tmp_path / "summary.md").read_text("utf-8") == "a report\n"


def test_the_action_runs_the_suite_from_its_own_folder(tmp_path: Path) -> None:
    action = yaml.safe_load((PROJECT / "action.yml").read_text("utf-8"))
    *_, step = action["runs"]["steps"]
    assert set(step["env"]) == {"SOURCE", "ARGUMENTS", "REPORT"}
    # With commands that only say what they are asked: the script is what runs.
    (tmp_path / "conformance/bin").mkdir(parents=True)
    for name in ("conformance/bin/pip", "conformance/bin/nats-conform", "python"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@"; test {name} != conformance/bin/nats-conform\n')
        (tmp_path / name).chmod(0o755)
    (tmp_path / "report").mkdir()
    (tmp_path / "report/report.md").write_text("a table\n", "utf-8")
    values = {"SOURCE": str(PROJECT), "ARGUMENTS": "--select adr30 --level must", "REPORT": "report"}
    github = {"RUNNER_TEMP": str(tmp_path), "GITHUB_STEP_SUMMARY": "summary.md"}
    ran = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", step["run"]],
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", **values, **github},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1, "the suite's exit code"
    assert "nats-conform run --select adr30 --level must --report report\n" in ran.stdout
    assert (tmp_path / "summary.md").read_text("utf-8") == "a table\n"
    (lock,) = [word for word in ran.stdout.split() if word.endswith(".lock")]
    assert Path(lock).is_file()
