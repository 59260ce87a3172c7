"""`nats-bridge run` as a process of its own, so that it can be killed; and what a subscriber must have seen of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Self

from nats_bridge.client.wire import Delivered
from nats_transforms import header_block
from tests.live.forked import ForkedProcess
from tests.live.raw_messages import RawPeer
from tests.live.until import LIMIT


class SidecarProcess:
    """A running `nats-bridge run`; its log is read as it comes.

    Attributes:
        log: every line.
        entries: the members of those that are structured.
    """

    def __init__(self, process: asyncio.subprocess.Process | ForkedProcess) -> None:
        self._process = process
        self.log: list[str] = []
        self.entries: list[dict[str, Any]] = []
        self._more = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, config: Path, version: Path | None = None) -> Self:
        """Start, without waiting until it is ready; `version` is the folder of another one's packages."""
        if version is None:
            return cls(await ForkedProcess.start("run", "-c", str(config)))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "nats_bridge", "run", "-c", str(config)),
            env={**os.environ, "PYTHONPATH": str(version)},
            cwd=version,
            stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        return cls(process)

    async def said(self, event: str) -> dict[str, Any]:
        """Wait for a log line with this event; its members."""
        seen = 0
        async with asyncio.timeout(LIMIT):
            while True:
                self._more.clear()
                for entry in self.entries[seen:]:
                    if entry["event"] == event:
                        return entry
                seen = len(self.entries)
                if self._reader.done() and seen == len(self.entries):
                    raise AssertionError(f"no '{event}' before the end:\n" + "\n".join(self.log))
                await self._more.wait()

    async def ready(self) -> None:
        """Wait until every rule is running."""
        await self.said("sidecar.ready")

    async def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self.send(signal.SIGKILL)
        await self.ended()

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it is still there."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.send(signal.SIGTERM)
        return await self.ended()

    async def ended(self) -> int:
        """Wait for the end; the exit code."""
        async with asyncio.timeout(LIMIT):
            code = await self._process.wait()
            await self._reader
        return code

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    @property
    def plain_lines(self) -> list[str]:
        """What it said to a person, outside of the structured log."""
        return [line for line in self.log if not line.startswith("{")]

    async def _read(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            self.log.append(line.decode().rstrip("\n"))
            if line.startswith(b"{") and line.endswith(b"}\n"):  # whole, also where the process was killed
                self.entries.append(json.loads(line))
            self._more.set()
        self._more.set()


@contextlib.asynccontextmanager
async def sidecar_processes(directory: Path) -> AsyncIterator[Callable[..., Any]]:
    """`await start(url, rule, …)` writes a configuration and starts a process; all are killed at the end."""
    started: list[SidecarProcess] = []

    async def start(url: str, *rules: dict[str, Any], **more: Any) -> SidecarProcess:
        config = directory / f"sidecar-{len(started)}.yaml"
        config.write_text(json.dumps(document(url, *rules, **more)), "utf-8")  # JSON is YAML too
        process = await SidecarProcess.start(config)
        started.append(process)
        return process

    try:
        yield start
    finally:
        for process in started:
            await process.kill()


def document(url: str, *rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A configuration with one connection."""
    return {
        "connections": {"default": {"servers": [url]}},
        "http": {"listen": ""},
        "log": {"format": "json"},
        "dialect": "native",
        "rules": [{"kind": "republish", **rule} for rule in rules],
        **more,
    }


def sequence_of(message: Delivered) -> int:
    """The stream sequence of a republished message."""
    return _number(message, b"Nats-Sequence")


def last_sequence_of(message: Delivered) -> int:
    """The last sequence that a republished message names."""
    return _number(message, b"Nats-Last-Sequence")


def _number(message: Delivered, name: bytes) -> int:
    value = header_block.read(message[2], name)
    assert value is not None, message
    return int(value)


class Seen:
    """Republished messages in order of arrival."""

    def __init__(self) -> None:
        self.messages: list[Delivered] = []
        self.newest = 0
        self._arrived = asyncio.Event()

    @classmethod
    async def of(cls, peer: RawPeer, subject: str) -> Self:
        """Everything that arrives on a subject from now on."""
        seen = cls()
        await peer.client.subscribe_batches(subject, seen._add, lambda *_: None)
        await peer.flushed()
        return seen

    @property
    def sequences(self) -> list[int]:
        """The stream sequences in order of arrival."""
        return [sequence_of(message) for message in self.messages]

    async def count(self, wanted: int) -> None:
        """Wait until at least `wanted` messages are here."""
        async with asyncio.timeout(LIMIT):
            while len(self.messages) < wanted:
                await self._next()

    async def until_sequence(self, sequence: int) -> None:
        """Wait for the stream's message with this sequence."""
        async with asyncio.timeout(LIMIT):
            while self.newest < sequence:
                await self._next()

    async def _next(self) -> None:
        self._arrived.clear()
        await self._arrived.wait()

    def _add(self, batch: list[Delivered]) -> None:
        self.messages.extend(batch)
        self.newest = max(self.newest, sequence_of(batch[-1]))
        self._arrived.set()


def differing(bridged: Seen, native: Seen) -> list[tuple[Delivered, Delivered | None]]:
    """Republished messages that are not, to the byte, what the server sent for the same stored message.

    Only the first token of the subject may differ.
    """
    expected = {sequence_of(message): message for message in native.messages}
    return [
        (message, theirs)
        for message in bridged.messages
        if (theirs := expected.get(sequence_of(message))) is None
        or (message[0].partition(b".")[2], message[2:]) != (theirs[0].partition(b".")[2], theirs[2:])
    ]


class Scene:
    """A stream with native republish; what that sends and what a rule's sidecar sends."""

    def __init__(self, peer: RawPeer, name: str, native: Seen, bridged: Seen) -> None:
        self.peer = peer
        self.name = name
        self.native = native
        self.bridged = bridged
        self.load = Load(peer, name)

    @classmethod
    async def make(cls, peer: RawPeer, name: str, target: RawPeer | None = None, **config: Any) -> Self:
        """Create the stream, listen to both; `target` if the sidecar publishes to another server."""
        republish = {"src": f"{name}.>", "dest": f"native{name}.>"}
        await peer.create_stream(**{"name": name, "subjects": [f"{name}.>"], "republish": republish} | config)
        native = await Seen.of(peer, f"native{name}.>")
        return cls(peer, name, native, await Seen.of(target or peer, f"bridge{name}.>"))

    def rule(self, **more: Any) -> dict[str, Any]:
        """A rule that does what native republish does."""
        republish = {"src": f"{self.name}.>", "dest": f"bridge{self.name}.>"}
        return {"name": "rule", "stream": self.name, "republish": republish, **more}

    async def consumers(self) -> list[dict[str, Any]]:
        """The stream's consumers."""
        return (await self.peer.api(f"CONSUMER.LIST.{self.name}")).get("consumers") or []

    async def durable(self) -> dict[str, Any]:
        """The rule's durable consumer; others may be there, of replays that a broken connection left to the server."""
        return await self.peer.api(f"CONSUMER.INFO.{self.name}.nats-bridge_rule")

    async def end(self) -> int:
        """Store one more message; its sequence, which native republish has sent."""
        sequence = int((await self.peer.store(f"{self.name}.end".encode()))["seq"])
        await self.native.until_sequence(sequence)
        return sequence


class Load:
    """Publishes numbered messages to a stream's subjects, in bursts of any size, without waiting for each."""

    def __init__(self, peer: RawPeer, name: str, subjects: int = 17) -> None:
        self._peer = peer
        self._subjects = [f"{name}.s{number}".encode() for number in range(subjects)]
        self.published = 0

    async def burst(self, messages: int) -> None:
        """Publish, and return when the stream has stored it, or refused it.

        A server answers a PING as soon as it has read what was written before; its streams take that in a little later,
        one message after the other. So the stream's answer to the last one confirms all.
        """
        for _ in range(messages - 1):
            self._peer.publish(*self._next())
        await self._peer.request_raw(*self._next())

    async def sent(self, messages: int) -> None:
        """Publish, and return when the server has read it: where leaders change, a stream may never answer."""
        for _ in range(messages):
            self._peer.publish(*self._next())
        await self._peer.flushed()

    def _next(self) -> tuple[bytes, bytes, bytes]:
        self.published += 1
        subject = self._subjects[self.published * 7 % len(self._subjects)]
        block = b"NATS/1.0\r\nN: %d\r\n\r\n" % self.published if self.published % 3 else b""
        return subject, b"%d" % self.published, block

    async def flow(self, seen: Seen, ahead: int = 2000) -> None:
        """Publish without end, at most so many messages ahead of what has been seen."""
        while True:
            await seen.count(self.published - ahead)
            await self.burst(50)
            await asyncio.sleep(0.01)  # the processor is the sidecar's
