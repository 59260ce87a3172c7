"""What a certified run leaves, and what stands against a certificate."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from nats_bridge.conformance.command.evidence import objections, write_evidence


def test_everything_in_the_folder_has_a_checksum(tmp_path: Path) -> None:
    binary = tmp_path / "nats-server"
    binary.write_bytes(b"not a server")
    folder = tmp_path / "evidence"
    folder.mkdir()
    (folder / "history.jsonl").write_text("{}\n")
    write_evidence(folder, {"2.10.27": binary}, suite="0.1.0", catalogue="abc")
    environment = json.loads((folder / "environment.json").read_text())
    assert environment["suite"] == "0.1.0"
    assert len(environment["servers"]["2.10.27"]["sha256"]) == 64
    names = [line.split("  ")[1] for line in (folder / "CHECKSUMS").read_text().splitlines()]
    assert names == ["environment.json", "history.jsonl"]
    checked = subprocess.run(["sha256sum", "-c", "CHECKSUMS"], cwd=folder, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    (folder / "history.jsonl").write_text("changed\n")
    checked = subprocess.run(["sha256sum", "-c", "CHECKSUMS"], cwd=folder, capture_output=True, text=True, check=False)
    assert checked.returncode == 1


@pytest.mark.parametrize(
    ("counts", "is_complete", "found"),
    [
        ({"pass": 3, "observed difference": 1, "known divergence": 1, "not applicable": 2}, True, []),
        ({"pass": 3, "skipped": 1}, True, ["1 cases were skipped"]),
        (
            {"fail": 2, "errored": 1},
            False,
            ["the run is not complete", "2 cases failed", "1 cases could not be played"],
        ),
    ],
)
def test_objections(counts: dict[str, int], is_complete: bool, found: list[str]) -> None:
    assert objections(counts, is_complete=is_complete) == found


def test_disagreements_of_random_comparisons_are_an_objection() -> None:
    assert objections({"pass": 3}, is_complete=True, disagreements=2) == ["2 random comparisons disagree"]
