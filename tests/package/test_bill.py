"""The bill of materials and the checksums that a release has next to its archives."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from packaging.utils import canonicalize_name

from tests.package.conftest import DECLARED, Installed, Release, write_bill

OF_THE_ENVIRONMENT = {"pip", "setuptools"}
"""What `python -m venv` puts next to what is installed."""


@pytest.fixture(scope="module")
def bill(released: Release) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(released.bill.read_text("utf-8"))
    return found


def test_it_names_the_release_and_all_that_is_installed_with_it(bill: dict[str, Any], installed: Installed) -> None:
    about = bill["metadata"]["component"]
    project = DECLARED["project"]
    assert (about["name"], about["version"]) == ("nats-bridge", project["version"])
    assert about["licenses"][0]["license"]["id"] == project["license"]
    listed = json.loads(installed.run("python", "-m", "pip", "list", "--format", "json").stdout)
    there = {(canonicalize_name(each["name"]), each["version"]) for each in listed}
    named = {(canonicalize_name(each["name"]), each["version"]) for each in bill["components"]}
    assert {each for each in named ^ there if each[0] not in OF_THE_ENVIRONMENT} <= {
        ("nats-bridge", project["version"])
    }


def test_the_same_bytes_come_again(released: Release, installed: Installed, tmp_path: Path) -> None:
    again = tmp_path / "again.json"
    write_bill(installed, again)
    assert again.read_bytes() == released.bill.read_bytes()


def test_the_checksums_are_those_of_the_files(released: Release) -> None:
    sums = dict(reversed(line.split()) for line in released.sums.read_text("utf-8").splitlines())
    assert set(sums) == {each.name for each in released.folder.iterdir()} - {released.sums.name}
    for name, digest in sums.items():
        assert hashlib.sha256((released.folder / name).read_bytes()).hexdigest() == digest
