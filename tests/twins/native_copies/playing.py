"""A round on real servers: one drawn stream, copied natively and through a sidecar, while one of all is killed."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from nats_bridge.bridge.consuming.ack_reply import AckReply
from nats_bridge.native_servers import NativeServer
from nats_bridge.native_servers.native_server import HOST, LEAF_LISTENER
from nats_bridge.transforms.dialect import dialect
from nats_bridge.transforms.republish import StoredMessage
from nats_bridge.transforms.source_record import first_record
from tests.live.cut_wire import CutWire, cut_wire
from tests.live.raw_messages import Collected, RawPeer
from tests.live.sidecar_process import SidecarProcess
from tests.live.until import LIMIT, until
from tests.twins.drawing import Batch, Delete, Publish, Purge
from tests.twins.native_copies.comparing import Comparison, Record, compare_mirrors, compare_sources
from tests.twins.native_copies.drawing import Shape, draw, steps

VICTIMS = ("sidecar", "target", "source", "link to the target", "link to the source")
_LIMIT = 150.0  # seconds for what is to come; 2.10 pauses longer and longer after errors


@dataclass
class Servers:
    """A stream's server, which copies it natively, too, and another one that copies it through the sidecar."""

    source: NativeServer
    target: NativeServer
    to_source: CutWire
    to_target: CutWire
    at_source: RawPeer
    at_target: RawPeer

    async def kill(self, which: str) -> None:
        """Kill one of the two servers, start it again, and connect to it."""
        server: NativeServer = getattr(self, which)
        await asyncio.to_thread(server.restart, kill=True)
        await getattr(self, f"at_{which}").close()
        setattr(self, f"at_{which}", await RawPeer.connect(server.url))


@dataclass
class Tally:
    """What a round came to.

    Attributes:
        published: messages that the source stored.
        comparison: of all copies.
        features: how often each was drawn.
        kills: how often each victim was killed.
        resumed: per victim, the seconds from its return until both copies held what was stored last.
    """

    published: int = 0
    comparison: Comparison = field(default_factory=Comparison)
    features: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    resumed: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, other: Tally) -> None:
        """Add another round's."""
        self.published += other.published
        self.comparison.add(other.comparison)
        self.features.update(other.features)
        self.kills.update(other.kills)
        for victim, seconds in other.resumed.items():
            self.resumed[victim] += seconds


@asynccontextmanager
async def servers(version: str, newest: str) -> AsyncIterator[Servers]:
    """Start both, of one version where that can copy with transforms natively; the target listens for leaf nodes."""
    source_version = version if dialect(version).stream_fields_of_2_10 else newest
    async with (
        NativeServer(source_version) as source,
        NativeServer(version, config=f"leafnodes {{{LEAF_LISTENER}}}") as target,
        cut_wire(source.url) as to_source,
        cut_wire(f"nats://{HOST}:{target.leaf_port}") as to_target,
    ):
        made = Servers(
            source, target, to_source, to_target, await RawPeer.connect(source.url), await RawPeer.connect(target.url)
        )
        for peer in (made.at_source, made.at_target):
            # With its last stream a server removes the folder of all, also under a new one (10049; seen on 2.12.15).
            await peer.create_stream(name="stays", subjects=["stays"])
        try:
            yield made
        finally:
            for peer in (made.at_source, made.at_target):
                await peer.close()


async def play(servers: Servers, seed: int, messages: int, victims: Sequence[str], directory: Path) -> Tally:
    """Store so many messages, kill the victims in between, one after the other, and compare what was copied."""
    return await _Round(servers, seed, directory).play(messages, victims)


class _StalledError(Exception):
    """What was stored last is not copied."""


class _Round:
    def __init__(self, servers: Servers, seed: int, directory: Path) -> None:
        self._servers = servers
        self._chance = random.Random(f"{servers.target.version} {seed}")
        self._shape: Shape = draw(servers.target.version, servers.source.version, self._chance)
        self._stream = f"S{seed}"
        self._prefix = f"bridge.r{seed}"
        self._config = directory / f"round-{seed}.yaml"
        self._tally = Tally(features=Counter(self._shape.features or ["nothing more"]))
        self._sidecar: SidecarProcess
        self._held: set[int] = set()  # what the source held when it was seen last, and
        self._seen = 0  # its last sequence then

    async def play(self, messages: int, victims: Sequence[str]) -> Tally:
        source = self._servers.at_source
        await source.create_stream(name=self._stream, subjects=["s.>"], **self._shape.config)
        self._config.write_text(json.dumps(self._document()), "utf-8")
        self._sidecar = await SidecarProcess.start(self._config)
        try:
            await self._sidecar.ready()
            await self._create()
            part = messages // (len(victims) + 1)
            for victim in victims:
                await self._publish_and_kill(part, victim)
            await self._publish(messages - len(victims) * part)
            await self._caught_up(await self._last())
            await self._compare()
            await self._sidecar.stop()
            errors = [line for line in self._sidecar.log if '"level": "error"' in line]
            self._tally.comparison.findings += errors[:3]
        except _StalledError as error:
            self._tally.comparison.findings.append(str(error))
        finally:
            await self._sidecar.kill()
        await self._delete()
        return self._tally

    # -- streams and rule --------------------------------------------------------------------------------------------

    def _document(self) -> dict[str, Any]:
        leaf = f"nats://{HOST}:{urlsplit(self._servers.to_target.url).port}"
        rule = {
            "kind": "native_copy",
            "name": "r",
            "stream": self._stream,
            "prefix": self._prefix,
            "leaf": "leaf",
            "remove_headers": self._shape.removed,
            **self._shape.selected,
        }
        patience = {"connect_timeout": LIMIT}
        return {
            "connections": {
                "default": {"servers": [self._servers.to_source.url], **patience},
                "leaf": {"servers": [leaf], **patience},
            },
            "http": {"listen": ""},
            "log": {"format": "json"},
            "rules": [rule],
        }

    async def _create(self) -> None:
        """Create all copies."""
        shape, source, target = self._shape, self._servers.at_source, self._servers.at_target
        native = {"name": self._stream, **shape.selected, **shape.asked}
        external = {"api": f"{self._prefix}.API", "deliver": f"{self._prefix}.deliver"}
        copied = {"name": self._stream, **shape.asked, "external": external}
        for peer, entry in ((source, native), (target, copied)):
            await peer.create_stream(name="MIRROR", mirror=entry, **shape.target)
            await peer.create_stream(name="SOURCES", sources=[entry], **shape.target, **shape.of_sources)

    async def _delete(self) -> None:
        for peer in (self._servers.at_target, self._servers.at_source):
            for stream in ("MIRROR", "SOURCES"):
                await peer.api(f"STREAM.DELETE.{stream}")
        await self._servers.at_source.api(f"STREAM.DELETE.{self._stream}")

    # -- what happens ------------------------------------------------------------------------------------------------

    async def _publish_and_kill(self, messages: int, victim: str) -> None:
        servers = self._servers
        held = await self._state(servers.at_target, "MIRROR")
        wanted = held + self._chance.randrange(1, messages // 2)
        publishing = asyncio.create_task(self._publish(messages))
        if victim == "source":
            await publishing  # what a killed server had not stored yet would be lost by it
            await self._look()

        async def copied() -> bool:
            if publishing.done():
                publishing.result()
            return await self._has(servers.at_target, "MIRROR", wanted)

        try:
            await until(copied, _LIMIT)
        except TimeoutError:
            raise _StalledError(await self._stalled(wanted)) from None
        if victim == "sidecar":
            await self._sidecar.kill()
            self._sidecar = await SidecarProcess.start(self._config)
        elif victim in ("target", "source"):
            await servers.kill(victim)
        else:
            (servers.to_target if victim == "link to the target" else servers.to_source).cut()
        back = time.monotonic()
        await publishing
        await self._caught_up(await self._last())
        self._tally.kills[victim] += 1
        self._tally.resumed[victim].append(time.monotonic() - back)

    async def _publish(self, messages: int) -> None:
        peer = self._servers.at_source
        for step in steps(self._shape, self._stream, self._tally.published + 1, messages - 1, self._chance):
            match step:
                case Publish(subject, block, payload):
                    self._tally.published += 1
                    peer.publish(subject.encode(), payload, block)
                    if self._tally.published % 200 == 0:
                        await peer.flushed()
                case Batch(messages):
                    for each in messages[:-1]:
                        peer.publish(each.subject.encode(), each.payload, each.block)
                    await self._store(messages[-1], len(messages))
                case Delete(back):
                    last = await self._last()
                    answer = await peer.api(f"STREAM.MSG.DELETE.{self._stream}", {"seq": max(last - back, 1)})
                    assert answer.get("success") or "error" in answer, answer
                case Purge(how):
                    await self._last()
                    answer = await peer.api(f"STREAM.PURGE.{self._stream}", how)
                    assert answer.get("success"), answer
        await self._last()

    async def _last(self) -> int:
        """Store one more message, which is selected; its sequence."""
        last = self._shape.last
        await self._store(last if last.block else replace(last, payload=b"%d" % (self._tally.published + 1)))
        return self._tally.published

    async def _store(self, message: Publish, number: int = 1) -> None:
        """Store a message, the last of so many that are stored with it."""
        self._tally.published += number
        stored = await self._servers.at_source.store(message.subject.encode(), message.payload, message.block)
        assert stored.get("seq") == self._tally.published, stored  # nothing was refused

    # -- what was copied ---------------------------------------------------------------------------------------------

    async def _caught_up(self, last: int) -> None:
        """Wait until all copies hold the message with this sequence, which is the last one."""
        for peer in (self._servers.at_target, self._servers.at_source):
            try:
                await until(partial(self._has, peer, "MIRROR", last), _LIMIT)
                await until(partial(self._ends_with, peer, last), _LIMIT)
            except TimeoutError:
                raise _StalledError(await self._stalled(last)) from None

    async def _stalled(self, last: int) -> str:
        """What can be said of copies that do not come."""
        said = [f"{self._stream} has {last}; {self._tally.kills}; {self._shape}", *self._sidecar.log]
        for peer in (self._servers.at_target, self._servers.at_source):
            said += [str(await peer.api(f"STREAM.INFO.{name}")) for name in ("MIRROR", "SOURCES")]
        return "\n".join(said)

    async def _state(self, peer: RawPeer, stream: str) -> int:
        return int((await peer.api(f"STREAM.INFO.{stream}"))["state"]["last_seq"])

    async def _has(self, peer: RawPeer, stream: str, last: int) -> bool:
        return await self._state(peer, stream) >= last

    async def _ends_with(self, peer: RawPeer, last: int) -> bool:
        found = await peer.api("STREAM.MSG.GET.SOURCES", {"seq": await self._state(peer, "SOURCES")})
        hdrs = found.get("message", {}).get("hdrs")
        if not hdrs:
            return False
        record = first_record(base64.b64decode(hdrs))
        return record is not None and record.sequence == last

    async def _look(self) -> None:
        """See what the source holds; what it has removed once counts as removed, even if it is back after a kill."""
        now = {message.sequence for message in await _everything(self._servers.at_source, self._stream)}
        self._held = {each for each in now if each in self._held or each > self._seen}
        self._seen = max(now)

    async def _compare(self) -> None:
        servers, shape, stream = self._servers, self._shape, self._stream
        peers = servers.at_source, servers.at_target
        mirrors = [await _everything(peer, "MIRROR") for peer in peers]
        sources = [await _everything(peer, "SOURCES") for peer in peers]
        await self._look()  # last, as messages still expire
        held = self._held
        self._tally.comparison.add(compare_mirrors(mirrors[0], mirrors[1], held))
        record = Record(stream, f"{self._prefix}.API", shape.asked.get("filter_subject", ""), servers.target.version)
        contiguous = not {"rollups", "ttl"} & shape.features
        self._tally.comparison.add(compare_sources(sources[0], sources[1], held, record, contiguous=contiguous))


async def _everything(peer: RawPeer, stream: str) -> list[StoredMessage]:
    """All messages through the last one, while others may expire."""
    last = (await peer.api(f"STREAM.INFO.{stream}"))["state"]["last_seq"]
    inbox = peer.client.new_inbox()
    arrived = Collected()
    subscription = await peer.client.subscribe_batches(inbox, arrived.add, lambda *_: None)
    await peer.flushed()
    config = {"deliver_subject": inbox, "ack_policy": "none"}
    answer = await peer.api(f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": config})
    assert "error" not in answer, answer
    count, found = 0, list[StoredMessage]()
    while not found or found[-1].sequence < last:
        await arrived.count(count + 1)
        more, count = arrived.messages[count:], len(arrived.messages)
        for subject, reply, block, payload in more:
            place = AckReply.parse(reply)
            found.append(StoredMessage(subject, block, payload, place.stream_sequence, place.time_ns))
    await subscription.unsubscribe()
    await subscription.release()
    return found
