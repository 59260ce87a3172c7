"""nats-server's own ``NewSubjectTransform`` behind the protocol: a bare transform passes the catalogue."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from nats_bridge.conformance.catalogue import read_catalogue
from nats_bridge.conformance.implementations.library import LibrarySubject
from nats_bridge.conformance.outcome import Outcome
from tests.unit.conformance.playing import outcomes

SOURCES = Path(__file__).parents[2] / "go_adapter"
VERSION = "2.15.1"
"""That of tests/go_adapter/go.mod."""


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    go = shutil.which("go")
    assert go is not None, "this test builds tests/go_adapter: install Go (go.dev/dl), and put it on PATH"
    environment = {**os.environ, "GOFLAGS": "", "GOWORK": "off", "CGO_ENABLED": "0"}
    program = tmp_path / "adapter"
    command = [go, "build", "-buildvcs=false", "-o", str(program), "."]
    built = subprocess.run(command, cwd=SOURCES, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return program


@pytest.mark.exhaustive
async def test_the_servers_own_transform_passes(adapter: Path) -> None:
    subject = LibrarySubject((str(adapter),), VERSION)
    await subject.open()
    try:
        assert subject.identity.label == f"NewSubjectTransform {VERSION} {VERSION}"
        assert subject.capabilities == {"bare_transform"}
        found, wrong = await outcomes(subject, read_catalogue())
    finally:
        await subject.close()
    assert wrong == []
    assert found[Outcome.PASS] > 400
