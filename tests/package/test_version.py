"""The version is said in pyproject.toml; what has to repeat it, repeats it."""

from __future__ import annotations

import re
import subprocess

from tests.package.conftest import DECLARED, PROJECT

VERSION = DECLARED["project"]["version"]
# An image's tag, in commands and manifests; the Dockerfile's own argument; what kustomize puts into manifests.
REPEATED = re.compile(r"nats-bridge:(\d+\.\d+\.\d+)|^ARG VERSION=(\S+)|newTag: (\d\S*\d)", re.MULTILINE)


def test_what_repeats_the_version() -> None:
    listed = _git("ls-files", "-z", "--", "Dockerfile", "k8s", "docs/*.md", "README.md")
    found = {
        (path, "".join(said.groups(default="")))
        for path in listed.split("\0")
        if path
        for said in REPEATED.finditer((PROJECT / path).read_text("utf-8"))
    }
    assert {path for path, _ in found} >= {"Dockerfile", "docs/kubernetes.md"}
    assert {version for _, version in found} == {VERSION}, found


def test_the_changelog_has_a_part_for_what_comes_next_and_one_for_each_release() -> None:
    headings = re.findall(r"^## (.+)$", (PROJECT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d{2}-\d{2}", heading) for heading in headings[1:])
    # A commit that is tagged as a release is that of the version, and has its part.
    tags = [tag for tag in _git("tag", "--points-at", "HEAD").split() if tag.startswith("v")]
    assert tags in ([], [f"v{VERSION}"])
    assert not tags or headings[1].startswith(f"[{VERSION}] ")


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=PROJECT, capture_output=True, text=True, check=True).stdout
