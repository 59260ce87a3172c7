"""Several sidecar processes of one configuration, with leases; one stream, and a rule of every kind that reads it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Self

import nats.errors

from nats_bridge.client.tasks import end_tasks
from tests.live.copies import record_of
from tests.live.leadership.leases import write_lease
from tests.live.raw_messages import Collected, RawPeer
from tests.live.sidecar_process import Load, Seen, SidecarProcess, document
from tests.live.stored_messages import stored_messages
from tests.live.until import until

TTL = 2.0
"""Seconds of a lease whose end has to be waited for, because its holder has ended."""
LONG = 30.0
"""The same where no replica may lose a lead, however slow the machine is."""
_PAUSE = 0.05  # seconds between messages of a publisher: the processor is the sidecars'


def events(process: SidecarProcess, event: str, rule: str | None = None) -> list[dict[str, Any]]:
    """What a process has logged of an event so far, of one rule if it is named."""
    return [e for e in process.entries if e["event"] == event and rule in (None, e.get("rule"))]


class Replicas:
    """Processes of one configuration.

    Args:
        directory: for their configurations.
        url: the server.
        bucket: where the leases are.
        rules: what they do.
        ttl: of the leases, in seconds.
    """

    def __init__(self, directory: Path, url: str, bucket: str, rules: Sequence[dict[str, Any]], ttl: float) -> None:
        self.rules = [rule["name"] for rule in rules]
        self.processes: list[SidecarProcess] = []
        self._directory = directory
        self._url = url
        self._rules = rules
        self._ttl = ttl
        self.bucket = bucket

    async def free(self, peer: RawPeer) -> None:
        """Create the bucket, with released leases, so that the first replica need not wait."""
        config = {"name": f"KV_{self.bucket}", "subjects": [f"$KV.{self.bucket}.>"], "max_msgs_per_subject": 1}
        await peer.create_stream(**config)
        for rule in self.rules:
            await write_lease(peer, self.bucket, rule, holder="before", ttl=self._ttl, released=True)

    async def start(self, url: str = "", *, version: Path | None = None, **more: Any) -> SidecarProcess:
        """One more replica, which is ready or on standby; `version` is the folder of another version's packages."""
        config = self._directory / f"replica-{len(self.processes)}.yaml"
        leadership = {"bucket": self.bucket, "ttl": self._ttl, **more.pop("leadership", {})}
        text = document(url or self._url, *self._rules, leadership=leadership, **more)
        config.write_text(json.dumps(text), "utf-8")
        process = await SidecarProcess.start(config, version)
        self.processes.append(process)
        await process.ready()
        return process

    async def leads(self, process: SidecarProcess, *, times: int = 1) -> None:
        """Wait until a process has come to lead, and to work on, every rule so many times."""

        def all_led() -> bool:
            return all(len(events(process, "rule.ready", rule)) >= times for rule in self.rules)

        await until(all_led)

    async def lost(self, process: SidecarProcess) -> None:
        """Wait until a process knows that it leads no rule any more, and has ended all work."""
        await until(lambda: all(events(process, "rule.ended_at_once", rule) for rule in self.rules))

    def terms(self) -> dict[str, int]:
        """How many terms there were of each rule, over all processes."""
        return {
            rule: sum(len(events(process, "leadership.leads", rule)) for process in self.processes)
            for rule in self.rules
        }

    async def kill(self) -> None:
        """End whatever is left."""
        for process in self.processes:
            await process.kill()


@contextlib.asynccontextmanager
async def replicas(
    directory: Path, url: str, bucket: str, rules: Sequence[dict[str, Any]], ttl: float = TTL
) -> AsyncIterator[Replicas]:
    """Replicas whose processes are killed at the end."""
    made = Replicas(directory, url, bucket, rules, ttl)
    try:
        yield made
    finally:
        await made.kill()


class EveryKind:
    """A stream, and what rules of the kinds that read it make of it."""

    def __init__(self, peer: RawPeer, name: str, once: Seen, least: Seen, reported: Collected) -> None:
        self.peer = peer
        self.name = name
        self.once = once
        self.least = least
        self.reported = reported
        self.load = Load(peer, name)
        self.streams: list[str] = []  # created while a replica ran, so that it reported them
        self.acknowledged: list[bytes] = []  # what the ingress rule's publisher got a PubAck for

    @classmethod
    async def make(cls, peer: RawPeer, name: str, **config: Any) -> Self:
        """Create the streams, listen to what is republished."""
        await peer.create_stream(**{"name": name, "subjects": [f"{name}.>"]} | config)
        # A short window: no test may rely on the server's memory for ids.
        copies = {"duplicate_window": 1_000_000_000, **config}
        await peer.create_stream(**{"name": f"C{name}", "subjects": [f"C{name}.>"]} | copies)
        await peer.create_stream(**{"name": f"M{name}", "subjects": [f"M{name}.>"]} | copies)
        await peer.create_stream(**{"name": f"I{name}", "subjects": [f"kept{name}.>"]} | config)
        once, least = await Seen.of(peer, f"once{name}.>"), await Seen.of(peer, f"least{name}.>")
        return cls(peer, name, once, least, await peer.collect(f"seen{name}.>"))

    @property
    def rules(self) -> list[dict[str, Any]]:
        """One rule of every kind."""
        name = self.name

        def republish(dest: str, **more: Any) -> dict[str, Any]:
            said = {"src": f"{name}.>", "dest": f"{dest}{name}.>"}
            return {"name": dest, "stream": name, "republish": said, "start": "first", **more}

        def entry(target: str) -> dict[str, Any]:
            return {"name": name, "subject_transforms": [{"src": f"{name}.>", "dest": f"{target}{name}.>"}]}

        return [
            republish("once"),
            republish("least", delivery="at_least_once"),
            {"name": "copy", "kind": "sources", "stream": f"C{name}", "sources": [entry("C")]},
            {"name": "mirror", "kind": "mirror", "stream": f"M{name}", "mirror": entry("M"), "keep_sequence": True},
            {
                "name": "ingress",
                "kind": "subject_transform",
                "stream": f"I{name}",
                "subject_transform": {"src": f"in{name}.>", "dest": f"kept{name}.>"},
            },
            {"name": "watch", "kind": "watch", "streams": [f"{name}*"]},
            {
                "name": "advisories",
                "kind": "advisories",
                "republish": {"src": "$JS.EVENT.ADVISORY.STREAM.CREATED.*", "dest": f"seen{name}.{{{{wildcard(1)}}}}"},
            },
        ]

    async def flow(self, ahead: int = 500) -> None:
        """Publish without end, at most so many messages ahead of what came at least once."""
        while True:
            await self.least.until_sequence(self.load.published - ahead)
            await self.load.burst(50)
            await asyncio.sleep(_PAUSE)

    async def publish(self) -> None:
        """Publish through the ingress rule without end, one message after the other, each once."""
        number = 0
        while True:
            number += 1
            payload = b"%d" % number
            await asyncio.sleep(_PAUSE)
            try:
                answer = await self.peer.client.request(f"in{self.name}.x", payload, timeout=1)
            except (nats.errors.NoRespondersError, nats.errors.TimeoutError):
                continue
            assert json.loads(answer.data)["stream"] == f"I{self.name}"
            self.acknowledged.append(payload)

    async def report_something(self) -> None:
        """Create a stream, while a replica is running, and wait until it has reported it."""
        stream = f"{self.name}seen{len(self.streams)}"
        self.streams.append(stream)
        await self.peer.create_stream(name=stream, subjects=[f"made{stream}"])
        await until(lambda: stream in self._reported)

    @property
    def _reported(self) -> list[str]:
        """The streams that were reported, in that order; others may be among them."""
        return [message[0].decode().rpartition(".")[2] for message in self.reported.messages]

    async def end(self) -> int:
        """Store one last message, and wait until every rule has passed it on; its sequence."""
        answer: dict[str, Any] = {}
        while "seq" not in answer:  # a cluster that changes leaders answers with an error
            answer = await self.peer.store(f"{self.name}.end".encode())
        end = int(answer["seq"])
        await self.once.until_sequence(end)
        await self.least.until_sequence(end)
        for target in ("C", "M"):
            await self._holds(f"{target}{self.name}", end)
        return end

    async def listening_again(self, peer: RawPeer) -> Self:
        """The same with another connection, after the server has ended the first."""
        name = self.name
        once, least = await Seen.of(peer, f"once{name}.>"), await Seen.of(peer, f"least{name}.>")
        again = type(self)(peer, name, once, least, await peer.collect(f"seen{name}.>"))
        again.load.published = self.load.published
        return again

    async def copied(self, end: int) -> tuple[list[int], list[int]]:
        """The source's sequences of what is in the two targets, in their order."""
        copies = await stored_messages(self.peer, f"C{self.name}", end)
        mirrored = await stored_messages(self.peer, f"M{self.name}", end)
        return [record_of(message).sequence for message in copies], [message.sequence for message in mirrored]

    async def _holds(self, stream: str, messages: int) -> None:
        async def there() -> bool:
            try:
                reply = await self.peer.client.request(f"$JS.API.STREAM.INFO.{stream}", b"", timeout=2)
            except nats.errors.Error:
                return False  # a cluster that changes leaders loses requests
            return int(json.loads(reply.data).get("state", {}).get("messages", 0)) >= messages

        await until(there)

    async def keep_what_they_promise(self, end: int, *, crashed: bool) -> None:
        """Assert: at most once nothing duplicated, at least once nothing lost, exactly once into streams; in order."""
        all_of_them = list(range(1, end + 1))
        once, least = self.once.sequences, self.least.sequences
        if crashed:
            assert once == sorted(set(once))
            assert list(dict.fromkeys(least)) == all_of_them
        else:
            assert once == all_of_them
            assert least == all_of_them
        copies = await stored_messages(self.peer, f"C{self.name}", end)
        assert [record_of(message).sequence for message in copies] == all_of_them
        originals = await stored_messages(self.peer, self.name, end)
        mirrored = await stored_messages(self.peer, f"M{self.name}", end)
        assert [(m.sequence, m.payload) for m in mirrored] == [(m.sequence, m.payload) for m in originals]
        state = (await self.peer.api(f"STREAM.INFO.I{self.name}"))["state"]
        kept = [m.payload for m in await stored_messages(self.peer, f"I{self.name}", int(state["messages"]))]
        assert len(set(kept)) == len(kept)
        assert set(self.acknowledged) <= set(kept)
        assert [stream for stream in self._reported if stream in self.streams] == self.streams


@contextlib.asynccontextmanager
async def under_load(here: EveryKind) -> AsyncIterator[None]:
    """Publish to the stream and through the ingress rule while the body runs."""
    tasks = [asyncio.create_task(here.flow()), asyncio.create_task(here.publish())]
    try:
        yield
    finally:
        await end_tasks(*tasks)
    for task in tasks:
        assert task.cancelled(), task


@contextlib.asynccontextmanager
async def one_behind_another(
    directory: Path, url: str, here: EveryKind, first_url: str = "", *, ttl: float = TTL
) -> AsyncIterator[tuple[Replicas, SidecarProcess, SidecarProcess]]:
    """A replica that leads every rule (by a way of its own to the server, if given), and one on standby."""
    async with replicas(directory, url, here.name, here.rules, ttl) as group:
        await group.free(here.peer)
        first = await group.start(first_url)
        await group.leads(first)
        yield group, first, await group.start()
