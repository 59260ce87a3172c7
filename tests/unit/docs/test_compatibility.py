"""The page on compatibility names the versions that the tests use, and the formats that the program writes."""

from __future__ import annotations

import inspect
import re
import tomllib

import pytest

from nats_bridge.rules.leadership.lease import Record
from nats_bridge_spark.capture.folder import VERSION
from nats_conformance.history import FORMAT
from nats_transforms.copy_id import CopyId
from nats_transforms.tested_versions import LIVE_VERSIONS, TESTED_VERSIONS
from tests.unit.docs.pages import ROOT

PAGE = (ROOT / "docs/compatibility.md").read_text("utf-8")
ROWS = {
    cells[0]: cells[1:]
    for line in PAGE.splitlines()
    if line.startswith("| ") and (cells := [cell.strip() for cell in line.strip("|").split("|")])
}


def _locked(name: str) -> str:
    (version,) = re.findall(rf"^{name}==(\S+)", (ROOT / "requirements/spark.lock").read_text("utf-8"), re.MULTILINE)
    return str(version)


def test_what_is_tested() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    declared = tomllib.loads((ROOT / "bridge" / "pyproject.toml").read_text("utf-8"))
    pythons = re.findall(r"Python :: (3\.\d+)", "\n".join(declared["project"]["classifiers"]))
    validation = (ROOT / "tests/k8s/validation.py").read_text("utf-8")
    (clusters,) = re.findall(r"^CLUSTERS = (.*)$", validation, re.MULTILINE)
    assert ROWS["nats-server, every rule kind"][0] == ", ".join(LIVE_VERSIONS)
    assert ROWS["nats-server, the catalogue"][0] == ", ".join(TESTED_VERSIONS)
    assert ROWS["Python"][0] == ", ".join(pythons)
    assert ROWS["Spark"][0] == f"{_locked('pyspark')} with pyarrow {_locked('pyarrow')}"
    assert ROWS["Kubernetes, as schemas"][0] == ", ".join(sorted(set(re.findall(r"1\.\d+", clusters))))
    for target in re.findall(r"`make ([a-z-]+)`", PAGE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize(("what", "version"), [("capture", VERSION), ("history of the suite", FORMAT)])
def test_formats_that_say_their_version(what: str, version: int) -> None:
    assert ROWS[what][1] == str(version)


def test_formats_without_one_have_the_shape_of_the_page() -> None:
    # A change of one of these needs a version that older replicas can distinguish.
    assert ROWS["lease"][0].endswith(", ".join(f"`{name}`" for name in inspect.signature(Record).parameters))
    assert CopyId.parse(b"bridge-0123456789ab-17-1700000000000000000")
