"""The smoke tier: every data case of the catalogue on a native server and on the engine, on the twin versions.

The whole matrix, with scenarios, the bridge and more versions, is `make conform`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.catalogue import read_catalogue
from conformance.history import HistoryWriter, read_history
from conformance.reports import judged
from conformance.reports.terminal import summary
from conformance.running import play_all
from conformance.servers import fetch
from conformance.subjects.engine import EngineSubject
from conformance.subjects.native import NativeSubject
from conformance.subjects.subject import Subject

CASES = tuple(case for case in read_catalogue() if case.scenario is None)


@pytest.mark.parametrize("kind", ["native", "engine"])
async def test_every_case_is_as_the_catalogue_says(kind: str, twin_version: str, tmp_path: Path) -> None:
    subject: Subject = (
        NativeSubject(twin_version, fetch(twin_version), tmp_path) if kind == "native" else EngineSubject(twin_version)
    )
    await subject.open()
    try:
        with HistoryWriter(tmp_path / "history.jsonl", {subject.identity.label: subject.identity}) as writer:
            await play_all(CASES, [subject], writer)
    finally:
        await subject.close()
    result = judged(read_history(tmp_path / "history.jsonl"), CASES)
    assert result.passed, summary(result, 120, False)
    assert result.counts()["skipped"] == 0
    assert result.counts()["pass"] > 500
