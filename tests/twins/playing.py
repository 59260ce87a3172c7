"""A round on real servers: native republish, sources and mirror next to rules of the bridge, on one drawn stream."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from nats_bridge.rules.run import RuleRun
from nats_conformance.native_servers import NativeServer
from nats_transforms import header_block
from nats_transforms.republish import StoredMessage
from tests.live.copied_messages import everything
from tests.live.raw_messages import Collected, RawPeer
from tests.live.sidecars import running, settings_for
from tests.live.until import until
from tests.twins.comparing import FILLER, Comparison, Republished, compare_copies, compare_counters, compare_republished
from tests.twins.drawing import END, Batch, Delete, Expiry, FastBatch, Publish, Purge, Shape, draw, steps

_GONE = 10043  # the message to delete is not there


class Pair:
    """Two servers of a version: on one the streams and what is native, on the other the bridge's targets."""

    def __init__(self, version: str, urls: tuple[str, str], peers: tuple[RawPeer, RawPeer]) -> None:
        self.version = version
        self.url, self.far_url = urls
        self.peer, self.far = peers


@asynccontextmanager
async def pair(version: str) -> AsyncIterator[Pair]:
    """Start them; stop them at the end."""
    async with NativeServer(version) as near, NativeServer(version) as far:
        peers = await RawPeer.connect(near.url), await RawPeer.connect(far.url)
        for peer in peers:
            # With its last stream a server removes the folder of all, also under a new one (10049; seen on 2.12.15).
            await peer.create_stream(name="stays", subjects=["stays"])
        try:
            yield Pair(version, (near.url, far.url), peers)
        finally:
            for peer in peers:
                await peer.close()


class Round:
    """One drawn stream, from its creation to the comparison of everything that was made of it.

    Args:
        servers: where.
        seed: decides everything but the moments.
    """

    def __init__(self, servers: Pair, seed: int) -> None:
        self._servers = servers
        self._peer, self._far = servers.peer, servers.far
        self._chance = random.Random(f"{servers.version} {seed}")
        self.shape: Shape = draw(f"S{seed}", servers.version, self._chance)

    async def play(self, messages: int) -> Comparison:
        """Store so many messages, and compare."""
        shape = self.shape
        await self._create()
        native = await self._peer.collect(f"native.{shape.name}.>")
        bridged = await self._peer.collect(f"bridged.{shape.name}.>")
        async with running(self._settings()) as sidecar, self._working():
            await self._publish(messages)
            end = await self._end()
            await native.until_sequence(end)
            await bridged.until_sequence(end)
            # Behind the end are delete markers that not both may have sent yet.
            theirs, ours = ([each for each in _messages(found) if each.sequence <= end] for found in (native, bridged))
            counters = sidecar.runs[0].counters
            removed = {each.sequence for each in theirs} - {each.sequence for each in ours}
            # A sequence that was jumped over counts once the consumer is known to be as it was created.
            await until(lambda: counters.as_dict()["vanished"] >= len(removed))
            found = compare_republished(theirs, ours, counters.as_dict())
            if shape.copies:
                found.add(await self._copies(sidecar.runs[1:], end))
            found.findings += [str(run.error) for run in sidecar.runs if run.error is not None]
        await self._delete()
        return found

    @asynccontextmanager
    async def _working(self) -> AsyncIterator[None]:
        """A worker of the stream's own consumer with a priority group, if there is one, until the end."""
        if not self.shape.worker:
            yield
            return
        name = self.shape.name
        config = {"durable_name": "worker", **self.shape.worker}
        answer = await self._peer.api(
            f"CONSUMER.CREATE.{name}.worker", {"stream_name": name, "config": {"name": "worker", **config}}
        )
        assert "error" not in answer, answer
        worker = asyncio.create_task(self._work(f"work.{name}"))
        try:
            yield
        finally:
            worker.cancel()
            await asyncio.wait([worker])
            if not worker.cancelled():
                worker.result()

    async def _work(self, inbox: str) -> None:
        """Pull and acknowledge, as the only one of the group."""
        name = self.shape.name
        given = await self._peer.collect(inbox)
        pull: dict[str, Any] = {"batch": 20, "expires": 1_000_000_000, "group": "g"}
        taken = 0
        while True:
            self._peer.publish(
                f"$JS.API.CONSUMER.MSG.NEXT.{name}.worker".encode(), json.dumps(pull).encode(), reply=inbox.encode()
            )
            ended = False
            while not ended:
                await given.count(taken + 1)
                for _, reply, block, _ in given.messages[taken:]:
                    taken += 1
                    if reply.startswith(b"$JS.ACK."):
                        self._peer.publish(reply, b"+ACK")
                        pinned = header_block.read(block, b"Nats-Pin-Id")
                        if pinned is not None:
                            pull["id"] = pinned.decode()
                    else:
                        ended = True  # a status: all that was pulled has come, or time is over
                        if block.startswith(b"NATS/1.0 423"):
                            pull.pop("id", None)

    # -- streams and rules -------------------------------------------------------------------------------------------

    @property
    def _mirrors(self) -> bool:
        """Whether mirrors are played: none of a counter stream, whose messages no client can number."""
        return self.shape.copies and "counters" not in self.shape.features

    async def _create(self) -> None:
        shape, name = self.shape, self.shape.name
        native = {**shape.republish, "dest": shape.republish["dest"].format("native")}
        await self._peer.create_stream(name=name, republish=native, **shape.config)
        if shape.copies:
            await self._peer.create_stream(name=f"T{name}", **shape.target, sources=[shape.entry])
            far = {**shape.target, "subjects": [f"{name}.>", f"T{name}.>"]}
            await self._far.create_stream(name=f"T{name}", **far)
        rollups = bool(shape.config.get("allow_rollup_hdrs"))
        if self._mirrors:
            await self._peer.create_stream(name=f"M{name}", mirror=self._mirror, allow_rollup_hdrs=rollups)
            subjects = [f"M{name}.>", f"filler.{name}{FILLER.decode()}"]
            await self._far.create_stream(name=f"M{name}", subjects=subjects, allow_rollup_hdrs=rollups)

    async def _delete(self) -> None:
        for peer in (self._peer, self._far):
            for stream in ("T", "M", ""):
                await peer.api(f"STREAM.DELETE.{stream}{self.shape.name}")

    @property
    def _mirror(self) -> dict[str, Any]:
        name = self.shape.name
        return {"name": name, "subject_transforms": [{"src": f"{name}.>", "dest": f"M{name}.>"}]}

    def _settings(self) -> Any:
        shape, name, servers = self.shape, self.shape.name, self._servers
        bridged = {**shape.republish, "dest": shape.republish["dest"].format("bridged")}
        rules: list[dict[str, Any]] = [{"name": "republish", "stream": name, "republish": bridged}]
        if shape.copies:
            rules.append(
                {"name": "copy", "kind": "sources", "stream": f"T{name}", "to": "far", "sources": [shape.entry]}
            )
        if self._mirrors:
            rules.append(
                {
                    "name": "mirror",
                    "kind": "mirror",
                    "stream": f"M{name}",
                    "to": "far",
                    "mirror": self._mirror,
                    "keep_sequence": True,
                    "filler_subject": f"filler.{name}{FILLER.decode()}",
                }
            )
        connections = {"default": {"servers": [servers.url]}, "far": {"servers": [servers.far_url]}}
        return settings_for(servers.url, *rules, connections=connections, dialect="native")

    # -- what happens ------------------------------------------------------------------------------------------------

    async def _publish(self, messages: int) -> None:
        pending: list[Awaitable[Any]] = []
        for step in steps(self.shape, messages, self._chance):
            match step:
                case Publish():
                    pending.append(self._peer.store(step.subject.encode(), step.payload, step.block))
                case Batch(messages=batched):
                    *before, last = batched
                    await self._answers(pending)
                    for message in before:
                        self._peer.publish(message.subject.encode(), message.payload, message.block)
                    pending.append(self._peer.store(last.subject.encode(), last.payload, last.block))
                case FastBatch():
                    await self._answers(pending)
                    await self._fast_batch(step)
                case Expiry(subject=subject):
                    await self._answers(pending)
                    await until(partial(self._expired, subject))
                case Delete() | Purge():
                    await self._answers(pending)
                    await self._remove(step)
            if len(pending) >= self.shape.burst:
                await self._answers(pending)
        await self._answers(pending)

    async def _answers(self, pending: list[Awaitable[Any]]) -> None:
        for answer in await asyncio.gather(*pending):
            assert "error" not in answer, (self.shape, answer)
        pending.clear()

    async def _fast_batch(self, batch: FastBatch) -> None:
        """Publish one, and wait until its commit is confirmed."""
        answers = await self._peer.collect(f"fast.{batch.name}.>")
        operations = [0] + [1] * (len(batch.messages) - 2) + [1 if batch.commit_behind else 2]
        messages = list(batch.messages)
        if batch.commit_behind:
            messages.append(Publish(messages[-1].subject))
            operations.append(3)
        for number, (message, operation) in enumerate(zip(messages, operations, strict=True), 1):
            reply = f"fast.{batch.name}.10.fail.{number}.{operation}.$FI".encode()
            self._peer.publish(message.subject.encode(), message.payload, message.block, reply)

        def confirmed() -> bool:
            results = [json.loads(payload) for _, _, _, payload in answers.messages]
            assert not any("error" in each for each in results), (self.shape, results)
            return any(each.get("count") == len(batch.messages) for each in results)

        await until(confirmed)

    async def _expired(self, subject: str) -> bool:
        answer = await self._peer.api(f"STREAM.MSG.GET.{self.shape.name}", {"last_by_subj": subject})
        return b"Nats-TTL: 1s" not in base64.b64decode(answer.get("message", {}).get("hdrs", ""))

    async def _remove(self, step: Delete | Purge) -> None:
        name = self.shape.name
        if isinstance(step, Purge):
            answer = await self._peer.api(f"STREAM.PURGE.{name}", step.how)
        else:
            last = int((await self._peer.api(f"STREAM.INFO.{name}"))["state"]["last_seq"])
            answer = await self._peer.api(f"STREAM.MSG.DELETE.{name}", {"seq": max(last - step.back, 1)})
            if answer.get("error", {}).get("err_code") == _GONE:
                return
        assert answer.get("success") or "error" in answer, answer

    async def _end(self) -> int:
        """The sequence of the message that was published last."""
        answer = await self._peer.api(f"STREAM.MSG.GET.{self.shape.name}", {"last_by_subj": self._last_subject("")})
        return int(answer["message"]["seq"])

    # -- copies ------------------------------------------------------------------------------------------------------

    async def _copies(self, runs: list[RuleRun], end: int) -> Comparison:
        name = self.shape.name
        there = {message.sequence for message in await everything(self._peer, name)}
        prefix = "T" if "subject_transforms" in self.shape.entry else ""
        native, bridged = await self._targets(f"T{name}", self._last_subject(prefix))
        if self.shape.target.get("allow_msg_counter"):
            return compare_counters(native, bridged)
        found = compare_copies(native, bridged, there, runs[0].counters.as_dict(), end=end)
        if self._mirrors:
            native, bridged = await self._targets(f"M{name}", self._last_subject("M"))
            found.add(compare_copies(native, bridged, there, runs[1].counters.as_dict(), end=end, numbered=True))
        return found

    async def _targets(self, stream: str, last: str) -> tuple[list[StoredMessage], list[StoredMessage]]:
        """What both streams hold, when both have the last message."""

        async def has(peer: RawPeer) -> bool:
            answer = await peer.api(f"STREAM.MSG.GET.{stream}", {"last_by_subj": last})
            return "message" in answer

        await until(lambda: has(self._peer))
        await until(lambda: has(self._far))
        return await everything(self._peer, stream), await everything(self._far, stream)

    def _last_subject(self, prefix: str) -> str:
        return f"{prefix}{self.shape.name}.{END}.{END}"


def _messages(collected: Collected) -> list[Republished]:
    return [
        Republished(subject.partition(b".")[2], block, payload) for subject, _, block, payload in collected.messages
    ]
