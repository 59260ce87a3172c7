"""What makes a running `nats-bridge run` read its configuration again, and signals at its very beginning."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecar_process import Scene, Seen, SidecarProcess, document
from tests.live.until import LIMIT, until

Start = Callable[[Path], Any]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """`await start(path)`: a sidecar process with that configuration, killed after the test."""
    started: list[SidecarProcess] = []

    async def begin(config: Path) -> SidecarProcess:
        process = await SidecarProcess.start(config)
        started.append(process)
        return process

    yield begin
    for process in started:
        await process.kill()


def written(directory: Path, content: dict[str, Any]) -> Path:
    """A configuration file in a folder of its own."""
    directory.mkdir()
    file = directory / "bridge.yaml"
    file.write_text(json.dumps(content), "utf-8")
    return file


def other(here: Scene, dest: str) -> dict[str, Any]:
    return {"name": "other", "stream": here.name, "republish": {"src": f"{here.name}.>", "dest": f"{dest}.>"}}


async def said_times(process: SidecarProcess, event: str, times: int) -> list[dict[str, Any]]:
    """Wait until an event was said so often; its log lines."""

    def lines() -> list[dict[str, Any]]:
        return [entry for entry in process.entries if entry["event"] == event]

    await until(lambda: len(lines()) >= times)
    return lines()


async def test_a_config_map_is_swapped(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path, start: Start
) -> None:
    """Kubernetes puts a new folder in place by renaming the link `..data`; the file's own link never changes."""
    url = await servers.url("2.15.3")
    peer = await raw_peer(url)
    here = await Scene.make(peer, unique_name("swap"))
    dest = unique_name("dest")
    seen = await Seen.of(peer, f"{dest}.>")
    config, data = tmp_path / "bridge.yaml", tmp_path / "..data"

    def swap(folder: str, content: dict[str, Any]) -> None:
        written(tmp_path / folder, content)
        new = tmp_path / "..data_tmp"
        new.symlink_to(folder)
        new.rename(data)

    swap("..1", document(url, here.rule()))
    config.symlink_to("..data/bridge.yaml")
    process = await start(config)
    await process.ready()
    swap("..2", document(url, here.rule(), other(here, dest)))
    assert (await process.said("reload.applied"))["asked_by"] == "file changed"
    await peer.store(f"{here.name}.x".encode())
    await seen.until_sequence(1)
    await here.bridged.until_sequence(1)
    # What cannot be taken is refused, with its place, and the one before stays in force.
    swap("..3", document(url, here.rule(stream="no.such")))
    refused = await process.said("reload.refused")
    assert refused["reason"].startswith(f"{config}:1:")
    assert "rules[0].stream" in refused["reason"]
    await peer.store(f"{here.name}.x".encode())
    await seen.until_sequence(2)
    await here.bridged.until_sequence(2)
    # A link of the file itself may go, too, while another process writes it again.
    config.unlink()
    config.write_text(json.dumps(document(url, here.rule())), "utf-8")
    await said_times(process, "reload.applied", 2)
    assert await process.stop() == 0, process.log


async def test_a_hangup_takes_the_file_and_the_log_level(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path, start: Start
) -> None:
    url = await servers.url("2.15.3")
    peer = await raw_peer(url)
    here = await Scene.make(peer, unique_name("hangup"))
    dest = unique_name("dest")
    seen = await Seen.of(peer, f"{dest}.>")
    still: dict[str, Any] = {"reload": {"watch": False}}
    config = written(tmp_path / "conf", document(url, here.rule(), **still))
    process = await start(config)
    await process.ready()
    config.write_text(json.dumps(document(url, here.rule(), other(here, dest), **still)), "utf-8")
    process.send(signal.SIGHUP)
    applied = await process.said("reload.applied")
    assert (applied["asked_by"], applied["rules"]) == ("SIGHUP", ["other"])
    await peer.store(f"{here.name}.x".encode())
    await seen.until_sequence(1)
    quiet = {"log": {"format": "json", "level": "error"}}
    config.write_text(json.dumps(document(url, here.rule(), **still, **quiet)), "utf-8")
    process.send(signal.SIGHUP)
    await until(lambda: any('"rule.stopped"' in line for line in process.log))
    config.write_text("rules: [\n", "utf-8")
    process.send(signal.SIGHUP)
    assert f"{config}:" in (await process.said("reload.refused"))["reason"]
    assert await process.stop() == 0, process.log
    assert not any("sidecar.draining" in line for line in process.log)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_while_the_configuration_is_read(number: signal.Signals, tmp_path: Path, start: Start) -> None:
    """Nothing runs yet: the end is a good one, as it is later."""
    fifo = tmp_path / "bridge.yaml"
    os.mkfifo(fifo)
    process = await start(fifo)
    writer = await opened(fifo)
    process.send(number)
    # A signal that comes right before a read is handled when the read ends, which it does now.
    os.close(writer)
    assert await process.ended() == 0
    assert process.log == []


async def test_a_hangup_while_the_configuration_is_read(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path, start: Start
) -> None:
    """It is done when the sidecar has started."""
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("early"))
    file = written(tmp_path / "conf", document(url, here.rule(), reload={"watch": False}))
    fifo = tmp_path / "bridge.yaml"
    os.mkfifo(fifo)
    process = await start(fifo)
    writer = await opened(fifo)
    process.send(signal.SIGHUP)
    content = file.read_bytes()
    # It is read twice, first for its hash alone. From now on the file is an ordinary one.
    file.rename(tmp_path / "ordinary.yaml")
    (tmp_path / "ordinary.yaml").rename(fifo)
    os.write(writer, content)
    os.close(writer)
    assert (await process.said("reload.unchanged"))["asked_by"] == "SIGHUP"
    assert await process.stop() == 0, process.log


async def opened(fifo: Path) -> int:
    """The write end of a FIFO, as soon as it has a reader."""
    async with asyncio.timeout(LIMIT):
        while True:
            try:
                return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                await asyncio.sleep(0.005)
