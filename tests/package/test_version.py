"""Version and addresses are said in two pyproject.toml; what has to repeat them, repeats them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

from tests.package.conftest import DECLARED, PROJECT

VERSION = DECLARED["project"]["version"]


@pytest.fixture(scope="module")
def releasing() -> ModuleType:
    """The script of `make release`."""
    loader = SourceFileLoader("release", str(PROJECT / ".ci" / "release"))
    module = module_from_spec(spec_from_loader("release", loader))  # type: ignore[arg-type]
    loader.exec_module(module)
    return module


def test_what_repeats_the_version_and_the_addresses(releasing: ModuleType) -> None:
    found = {
        (name, path, said[2])
        for path in _git("ls-files", "-z", "--", *releasing.PLACES).split("\0")
        if path
        for name, pattern in releasing.REPEATED.items()
        for said in pattern.finditer((PROJECT / path).read_text("utf-8"))
    }
    wanted = releasing.declared()
    assert {(name, path) for name, path, _ in found} >= {
        *(("version", path) for path in ("pipeline/pyproject.toml", "Dockerfile", "docs/kubernetes.md")),
        *(("image", f"k8s/overlays/{overlay}/kustomization.yaml") for overlay in ("standalone", "native-sidecar")),
        ("image", "k8s/chart/values.yaml"),
        ("documentation", "k8s/monitoring/alerts.yaml"),
        ("documentation", "Dockerfile"),
        ("source", "Dockerfile"),
    }
    assert {each for each in found if each[2] != wanted[each[0]]} == set(), "set pyproject.toml; .ci/release --write"


def test_no_other_file_names_an_address(releasing: ModuleType) -> None:
    """What a release replaces is not left as a placeholder anywhere else."""
    values = [value.partition("://")[2] or value for name, value in releasing.declared().items() if name != "version"]
    shipped = _git("ls-files", "-z", "--", *releasing.PLACES, "action.yml", ".github", "config").split("\0")
    for path in filter(None, shipped):
        text = (PROJECT / path).read_text("utf-8")
        left = releasing.with_values(text, dict.fromkeys(releasing.REPEATED, ""))
        if path not in (
            "pyproject.toml",
            "bridge/pyproject.toml",
            "docs/kubernetes.md",
        ):  # the source; a reader's own registry
            assert not [value for value in values if value in left], path


def test_a_release_takes_one_command(tmp_path: Path) -> None:
    """In a clone, with a `make` that builds nothing: what is in dist/ is what the other tests here are about."""
    clone = tmp_path / "clone"
    _git("clone", "--quiet", "--no-tags", str(PROJECT), str(clone))
    (clone / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n\n### Added\n\n- A feature.\n", "utf-8")
    shutil.copy(PROJECT / ".ci" / "release", clone / ".ci" / "release")

    def run(*command: str, made: str = "true") -> subprocess.CompletedProcess[str]:
        identity = {f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        environment = {**os.environ, **identity, "MAKE": made}
        return subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, check=False)

    assert run(".ci/release", "77.1").stderr.startswith("no release: '77.1' is not a version")
    assert "has changes" in run(".ci/release", "77.1.0").stderr
    run("git", "add", ".")
    run("git", "commit", "-qm", "changelog: a feature")
    sources = (clone / "pyproject.toml", clone / "bridge" / "pyproject.toml")
    if ".example.com" in sources[0].read_text("utf-8"):
        refused = run(".ci/release", "77.1.0").stderr
        assert refused.startswith("no release: pyproject.toml has placeholders, set them first: image registry.example")
        assert not run("git", "status", "--porcelain").stdout
        for source in sources:
            source.write_text(source.read_text("utf-8").replace(".example.com", ".nats-bridge.test"), "utf-8")
        run("git", "commit", "-qam", "package: addresses")
    assert "nothing is tagged" in run(".ci/release", "77.1.0", made="false").stderr
    released = run(".ci/release", "77.1.0")
    assert released.returncode == 0, released.stderr
    assert released.stdout.endswith("To publish: git push origin HEAD v77.1.0\n")
    assert run("git", "log", "-1", "--format=%s %d").stdout.startswith("release: 77.1.0  (HEAD")
    assert "tag: v77.1.0" in run("git", "log", "-1", "--format=%d").stdout
    assert "\n## [Unreleased]\n\n## [77.1.0] - 20" in (clone / "CHANGELOG.md").read_text("utf-8")
    assert 'version = "77.1.0"' in (clone / "bridge" / "pyproject.toml").read_text("utf-8")
    assert '"nats-transforms==77.1.0"' in (clone / "conformance" / "pyproject.toml").read_text("utf-8")
    for path in ("Dockerfile", "k8s/monitoring/alerts.yaml", "k8s/chart/values.yaml", "k8s/overlays/standalone"):
        file = clone / path / "kustomization.yaml" if (clone / path).is_dir() else clone / path
        assert ".example.com" not in file.read_text("utf-8"), path
    assert "ARG VERSION=77.1.0" in (clone / "Dockerfile").read_text("utf-8")
    assert "is tagged already" in run(".ci/release", "77.1.0").stderr


def test_there_is_no_release_of_nothing(releasing: ModuleType) -> None:
    with pytest.raises(releasing.ReleaseError, match="nothing under"):
        releasing.with_section("## [Unreleased]\n\n## [1.0.0] - 2026-01-01\n\n- A feature.\n", "1.0.1", "2026-01-02")


def test_the_changelog_has_a_part_for_the_next_and_for_each_release(releasing: ModuleType) -> None:
    headings = re.findall(r"^## (.+)$", (PROJECT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d{2}-\d{2}", heading) for heading in headings[1:])
    # A commit that is tagged as a release is that of the version, and has its part.
    tags = [tag for tag in _git("tag", "--points-at", "HEAD").split() if tag.startswith("v")]
    assert tags in ([], [f"v{VERSION}"])
    assert not tags or headings[1].startswith(f"[{VERSION}] ")
    assert not tags or releasing.PLACEHOLDER not in "".join(releasing.declared().values())


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=PROJECT, capture_output=True, text=True, check=True).stdout
