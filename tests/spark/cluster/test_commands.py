"""The commands on a standalone cluster, with the package sent along: what they end with."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.live.copies import Copies
from tests.live.raw_messages import RawPeer
from tests.live.shared_servers import Name
from tests.spark.cluster.standalone import PATIENCE, Job, StandaloneCluster

JOBS = Path(__file__).with_name("jobs")
pytestmark = pytest.mark.timeout(2 * PATIENCE)

Submit = Callable[..., Job]


@pytest.fixture
def submit(cluster: StandaloneCluster, shipped: Path, tmp_path: Path) -> Submit:
    """Submits commands, one after the other; their answers will be in answers.json."""

    def start(*commands: list[str]) -> Job:
        (tmp_path / "commands.json").write_text(json.dumps(commands))
        files = (str(tmp_path / "commands.json"), str(tmp_path / "answers.json"))
        return cluster.submit(JOBS / "commands.py", *files, shipped=shipped)

    return start


def answers(folder: Path) -> list[dict[str, Any]]:
    """What each command has ended with, and printed."""
    reported: list[dict[str, Any]] = json.loads((folder / "answers.json").read_text())
    return reported


def configured(folder: Path, connections: dict[str, str], *rules: dict[str, Any]) -> str:
    """A configuration file."""
    file = folder / "bridge.yaml"
    places = {name: {"servers": [url]} for name, url in connections.items()}
    file.write_text(yaml.safe_dump({"connections": places, "rules": list(rules)}))
    return str(file)


async def filled(copies: Copies, messages: int) -> None:
    """Numbered messages, the payloads never the beginning of another one's."""
    for number in range(1, messages):
        copies.peer.publish(f"{copies.name}.{number % 7}".encode(), b"number %d." % number, b"NATS/1.0\r\nA: b\r\n\r\n")
    answer = await copies.peer.store(f"{copies.name}.last".encode(), b"number %d." % messages)
    assert answer["seq"] == messages


async def test_capture_backfill_and_diff(
    submit: Submit, url: str, peer: RawPeer, unique_name: Name, tmp_path: Path
) -> None:
    messages = 5000
    copies = await Copies.make(peer, unique_name("commands"))
    await filled(copies, messages)
    config, kept = configured(tmp_path, {"default": url}, copies.rule()), str(tmp_path / "kept")
    job = submit(
        ["capture", copies.name, kept, "--server", url, "--json"],
        ["backfill", "-c", config, "rule", "--json"],
        ["diff", kept, copies.target, "--server", url, "-c", config, "--rule", "rule", "--json"],
    )
    assert await asyncio.to_thread(job.ended) == 0, job.text[-5000:]
    reported = answers(tmp_path)
    assert [each["code"] for each in reported] == [0, 0, 0], (reported, job.text[-5000:])
    captured, backfilled, diff = (json.loads(each["printed"]) for each in reported)
    assert (captured["messages"], captured["next_sequence"]) == (messages, messages + 1)
    (summary,) = backfilled["sources"]
    assert (summary["read"], summary["copied"], summary["next_sequence"]) == (messages, messages, messages + 1)
    await copies.are_exact()
    assert diff["equal"]
