"""Several sidecar processes of one configuration, with leases; one stream, and a rule of every kind that reads it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Self

from tests.live.copies import record_of
from tests.live.raw_messages import RawPeer
from tests.live.sidecar_process import Load, Seen, SidecarProcess, document
from tests.live.stored_messages import stored_messages
from tests.live.until import until

TTL = 2.0


def events(process: SidecarProcess, event: str, rule: str | None = None) -> list[dict[str, Any]]:
    """What a process has logged of an event so far, of one rule if it is named."""
    entries = [json.loads(line) for line in process.log if line.startswith("{")]
    return [e for e in entries if e.get("event") == event and rule in (None, e.get("rule"))]


class Replicas:
    """Processes of one configuration.

    Args:
        directory: for their configurations.
        url: the server.
        bucket: where the leases are.
        rules: what they do.
    """

    def __init__(self, directory: Path, url: str, bucket: str, rules: Sequence[dict[str, Any]]) -> None:
        self.rules = [rule["name"] for rule in rules]
        self.processes: list[SidecarProcess] = []
        self._directory = directory
        self._url = url
        self._rules = rules
        self.bucket = bucket

    async def free(self, peer: RawPeer) -> None:
        """Make the bucket, with leases that were given back, so that the first replica need not wait."""
        config = {"name": f"KV_{self.bucket}", "subjects": [f"$KV.{self.bucket}.>"], "max_msgs_per_subject": 1}
        await peer.create_stream(**config)
        record = {"holder": "before", "term": 1, "beat": 1, "ttl": TTL, "released": True}
        for rule in self.rules:
            subject = f"$KV.{self.bucket}.lease.nats-bridge.{rule}"
            assert "error" not in await peer.store(subject.encode(), json.dumps(record).encode())

    async def start(self, url: str = "", **more: Any) -> SidecarProcess:
        """One more replica, which is ready, or stands by."""
        config = self._directory / f"replica-{len(self.processes)}.yaml"
        leadership = {"bucket": self.bucket, "ttl": TTL, **more.pop("leadership", {})}
        text = document(url or self._url, *self._rules, leadership=leadership, **more)
        config.write_text(json.dumps(text), "utf-8")
        process = await SidecarProcess.start(config)
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
async def replicas(directory: Path, url: str, bucket: str, rules: Sequence[dict[str, Any]]) -> AsyncIterator[Replicas]:
    """Replicas whose processes are killed at the end."""
    made = Replicas(directory, url, bucket, rules)
    try:
        yield made
    finally:
        await made.kill()


class EveryKind:
    """A stream, and what rules of the kinds that read it make of it."""

    def __init__(self, peer: RawPeer, name: str, once: Seen, least: Seen) -> None:
        self.peer = peer
        self.name = name
        self.once = once
        self.least = least
        self.load = Load(peer, name)

    @classmethod
    async def make(cls, peer: RawPeer, name: str, **config: Any) -> Self:
        """Create the streams, listen to what is republished."""
        await peer.create_stream(**{"name": name, "subjects": [f"{name}.>"]} | config)
        # A short window: nobody may lean on the server's memory for ids.
        copies = {"duplicate_window": 1_000_000_000, **config}
        await peer.create_stream(**{"name": f"C{name}", "subjects": [f"C{name}.>"]} | copies)
        await peer.create_stream(**{"name": f"M{name}", "subjects": [f"M{name}.>"]} | copies)
        return cls(peer, name, await Seen.of(peer, f"once{name}.>"), await Seen.of(peer, f"least{name}.>"))

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
            {
                "name": "mirror",
                "kind": "mirror",
                "stream": f"M{name}",
                "mirror": entry("M"),
                "keep_sequence": True,
            },
        ]

    async def flow(self, ahead: int = 2000) -> None:
        """Publish for ever, at most so many messages ahead of what came at least once."""
        while True:
            await self.least.until_sequence(self.load.published - ahead)
            await self.load.burst(50)

    async def end(self) -> int:
        """Store one last message, and wait until every rule has passed it on; its sequence."""
        end = int((await self.peer.store(f"{self.name}.end".encode()))["seq"])
        await self.once.until_sequence(end)
        await self.least.until_sequence(end)
        for target in ("C", "M"):
            await self._holds(f"{target}{self.name}", end)
        return end

    async def _holds(self, stream: str, messages: int) -> None:
        async def there() -> bool:
            return int((await self.peer.api(f"STREAM.INFO.{stream}"))["state"]["messages"]) >= messages

        await until(there)

    async def keep_what_they_promise(self, end: int, *, crashed: bool) -> None:
        """Assert: nothing doubled at most once, nothing lost at least once, exactly once into streams, all in order."""
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


async def ended(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait for its end."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
