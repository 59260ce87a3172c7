"""The commands on a standalone cluster, with the package sent along: what they end with, and what a lost part does."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.live.copies import Copies
from tests.live.cut_wire import cut_wire
from tests.live.raw_messages import RawPeer
from tests.spark.cluster.standalone import PATIENCE, Job, StandaloneCluster, command_of, descendants

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
    submit: Submit, url: str, peer: RawPeer, unique_name: Callable[[str], str], tmp_path: Path
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


async def test_a_backfill_whose_executors_are_killed_continues(
    submit: Submit,
    cluster: StandaloneCluster,
    url: str,
    peer: RawPeer,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    messages = 3000
    copies = await Copies.make(peer, unique_name("killed"), target={"duplicate_window": 100_000_000})
    await filled(copies, messages)
    async with cut_wire(url) as wire:
        config = configured(tmp_path, {"default": url, "west": wire.url}, copies.rule(to="west"))
        wire.fall_silent_after(b"number 1000.")
        job = submit(["backfill", "-c", config, "rule", "--json"])
        ended = asyncio.create_task(asyncio.to_thread(job.ended))
        while not wire.is_silent:
            assert not ended.done(), job.text[-5000:]
            await asyncio.sleep(0.02)
        await copies.holds(1000)
        below = [pid for worker in cluster.workers for pid, _ in descendants(worker.process.pid)]
        assert any("CoarseGrainedExecutorBackend" in command_of(pid) for pid in below)
        for pid in below:  # a Python worker that outlived its executor would copy the rest
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wire.cut()
        wire.speak_again()
        assert await ended == 0, job.text[-5000:]
    (reported,) = answers(tmp_path)
    assert reported["code"] == 0, job.text[-5000:]
    (summary,) = json.loads(reported["printed"])["sources"]
    assert summary["next_sequence"] == messages + 1
    assert 0 < summary["copied"] < messages
    assert "Lost executor" in job.text
    await copies.are_exact()
