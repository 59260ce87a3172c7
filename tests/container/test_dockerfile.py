"""What the Dockerfile says, and how it is read."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.container.conftest import PROJECT
from tests.container.dockerfile import Dockerfile, DockerfileError, allowed, parse
from tests.container.image_root import MissingPieceError, base_image

IGNORED = (PROJECT / ".dockerignore").read_text("utf-8")
DECLARED = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))


def test_two_stages_on_one_base_that_names_no_registry(dockerfile: Dockerfile) -> None:
    assert [stage.name for stage in dockerfile.stages] == ["build", "1"]
    assert {stage.base for stage in dockerfile.stages} == {dockerfile.arguments["BASE"]}
    assert re.fullmatch(r"python:3\.\d+-slim-\w+", dockerfile.image.base)


def test_its_labels_are_what_the_package_declares(dockerfile: Dockerfile) -> None:
    labels = {name.removeprefix("org.opencontainers.image."): said for name, said in dockerfile.image.labels.items()}
    project = DECLARED["project"]
    assert labels.pop("description")
    assert labels == {
        "title": project["name"],
        "version": project["version"],
        "licenses": project["license"],
        "source": project["urls"]["Source"],
        "documentation": project["urls"]["Documentation"],
        "revision": "unknown",  # --build-arg REVISION
        "base.name": dockerfile.image.base,
    }


def test_a_user_that_is_a_number_and_not_root(dockerfile: Dockerfile) -> None:
    # Kubernetes' runAsNonRoot cannot judge a user's name.
    user, _, group = dockerfile.image.last("USER").text.partition(":")
    assert int(user) > 10_000
    assert int(group) > 10_000


def test_everything_is_installed_from_lock_files_with_hashes_or_without_an_index(dockerfile: Dockerfile) -> None:
    commands = [step.text for stage in dockerfile.stages for step in stage.instructions if step.name == "RUN"]
    installs = [
        part for command in commands for part in command.split("&&") if re.search(r"\b(install|wheel) --", part)
    ]
    assert len(installs) == 4
    for install in installs:
        assert "--no-index" in install or "--require-hashes --only-binary :all:" in install, install
        assert "pip wheel" not in install or "--no-build-isolation" in install, install
    assert not any(word in command for command in commands for word in ("apt-get", "curl", "wget"))


def test_the_lock_of_the_build_has_what_the_package_asks_for() -> None:
    locked = (PROJECT / "requirements/build.lock").read_text("utf-8")
    group = DECLARED["dependency-groups"]["build"]
    assert set(DECLARED["build-system"]["requires"]) <= set(group)
    for wanted in group:
        name = re.split(r"[^\w-]", wanted)[0]
        assert re.search(rf"^{name}==", locked, re.M), wanted


def test_the_lock_of_the_image_has_what_the_package_needs() -> None:
    locked = (PROJECT / "requirements/run.lock").read_text("utf-8")
    for wanted in DECLARED["project"]["dependencies"]:
        name = re.split(r"[^\w-]", wanted)[0]
        assert re.search(rf"^{name}==", locked, re.M), f"{wanted}: make lock"


def test_only_what_is_needed_reaches_the_builder(dockerfile: Dockerfile) -> None:
    copied = [source for step in dockerfile.stages[0].instructions if step.name == "COPY" for source in step.words[:-1]]
    assert {"transforms", "bridge", "requirements/run.lock"} <= set(copied)
    for source in copied:
        assert allowed(source, IGNORED), source
    for other in (".git/config", ".venv/bin/python", "west.creds", "config/west.creds", "tests/conftest.py"):
        assert not allowed(other, IGNORED), other
    assert allowed("bridge/cli/entry.py", IGNORED)
    assert not allowed("bridge/cli/__pycache__/entry.cpython-311.pyc", IGNORED)
    packages = DECLARED["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert set(packages) <= set(copied)


def test_reading_fills_in_arguments_and_variables_and_joins_lines() -> None:
    read = parse('ARG A=one\n# no\nFROM a:${A} AS x\nARG V=2\nENV P=/p:$V \\\n    Q="b c"\nCOPY --from=x $P /$Q\n')
    assert read.stages[0].base == "a:one"
    assert read.stages[0].environment == {"P": "/p:2", "Q": "b c"}
    assert read.stages[0].last("COPY").flags == {"from": "x"}
    assert read.stages[0].last("COPY").text == "/p:2 /b c"


def test_a_machine_that_lacks_something_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        MissingPieceError, match=r"root on Linux|debootstrap, unshare, nsenter, chroot: not on PATH; apt"
    ):
        base_image("python:3.11-slim-bookworm", tmp_path, report=print)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("FROM a\nADD b c", "ADD: not known"),
        ("FROM a\nRUN <<END", "here-documents"),
        ("FROM a\nENV P=$MISSING", "nothing sets MISSING"),
        ("ARG A\nFROM a", "needs a default"),
        ("FROM a\nRUN b \\", "ends in the middle"),
        ("FROM a\nENV P q", "key=value"),
    ],
)
def test_what_is_not_known_is_not_passed_over(text: str, reason: str) -> None:
    with pytest.raises(DockerfileError, match=reason):
        parse(text)
