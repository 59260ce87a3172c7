"""The example adapter in JavaScript: an engine written from ADR-30 alone, and the cases in which it differs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from nats_conformance.catalogue.reading import read_catalogue
from nats_conformance.implementations.library import LibrarySubject
from nats_conformance.outcome import Outcome
from tests.unit.conformance.playing import opened, outcomes

FOLDER = Path(__file__).parents[3] / "conformance" / "adapters" / "javascript"


@pytest.mark.exhaustive
async def test_the_adapter_fails_the_listed_cases_and_no_others() -> None:
    node = shutil.which("node")
    assert node is not None, "this test runs a JavaScript adapter: install Node.js 18 or newer, and put it on PATH"
    subject = LibrarySubject((node, str(FOLDER / "adapter.mjs")), "2.15.3")
    async with opened(subject):
        found, wrong = await outcomes(subject, read_catalogue())
    lines = (FOLDER / "expected-failures.txt").read_text(encoding="utf-8").splitlines()
    assert sorted(text.split(":")[0] for text in wrong) == [line for line in lines if not line.startswith("#")]
    assert found[Outcome.PASS] > 400
