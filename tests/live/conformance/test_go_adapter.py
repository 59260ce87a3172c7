"""nats-server's own ``NewSubjectTransform`` behind the protocol: a bare transform passes the catalogue."""

from __future__ import annotations

from pathlib import Path

import pytest

from nats_conformance.catalogue.reading import read_catalogue
from nats_conformance.implementations.library import LibrarySubject
from nats_conformance.outcome import Outcome
from tests.live.go_programs import go_program
from tests.unit.conformance.playing import opened, outcomes

VERSION = "2.15.1"
"""That of conformance/adapters/go/go.mod."""


@pytest.mark.exhaustive
async def test_the_servers_own_transform_passes(tmp_path: Path) -> None:
    subject = LibrarySubject((str(go_program("conformance/adapters/go", tmp_path)),), VERSION)
    async with opened(subject):
        assert subject.identity.label == f"NewSubjectTransform {VERSION} {VERSION}"
        assert subject.capabilities == {"bare_transform"}
        found, wrong = await outcomes(subject, read_catalogue())
    assert wrong == []
    assert found[Outcome.PASS] > 400
