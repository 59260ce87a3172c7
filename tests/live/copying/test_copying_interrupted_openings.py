"""A round that is interrupted while it opens, after a stream was recreated: the next one begins at the start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from nats_bridge.client.jetstream_api import JetStreamApi
from nats_bridge.errors import ApiError
from nats_bridge.kinds.copying.entry import CopyEntry, EntryContext
from nats_bridge.kinds.copying.position.comparing import Resume
from nats_bridge.kinds.copying.round import Round, RoundLife
from nats_transforms.republish import StoredMessage
from tests.live.copies import Copies
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecar_process import Load
from tests.live.sidecars import running, settings_for
from tests.live.until import until


class Openings:
    """Holds rounds before they begin, and interrupts the next one as soon as it has found its position."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.interrupted: list[Resume] = []
        self._free = asyncio.Event()
        self._free.set()
        self._is_due = False
        begin, find = Round.begin, Round._resume

        @asynccontextmanager
        async def begin_when_free(context: EntryContext, life: RoundLife) -> AsyncIterator[Round]:
            await self._free.wait()
            async with begin(context, life) as begun:
                yield begun

        async def interrupted(opening: Round) -> Resume:
            resume = await find(opening)
            if self._is_due:
                self._is_due = False
                self.interrupted.append(resume)
                opening.life.interrupt("the test")
            return resume

        monkeypatch.setattr(Round, "begin", begin_when_free)
        monkeypatch.setattr(Round, "_resume", interrupted)

    @asynccontextmanager
    async def held(self, entry: CopyEntry) -> AsyncIterator[None]:
        """Hold the entry's next round during the block."""
        self._free.clear()
        entry.restart_round("the test")
        await until(lambda: entry._round is None)
        yield
        self._free.set()

    @asynccontextmanager
    async def one_is_interrupted(self, entry: CopyEntry) -> AsyncIterator[None]:
        """Hold the entry's next round during the block, and interrupt it afterwards while it opens."""
        async with self.held(entry):
            yield
            self._is_due = True


async def _target_is_recreated(
    url: str, here: Copies, during: Callable[[CopyEntry], AbstractAsyncContextManager[None]]
) -> None:
    """Recreate the target during a round's start, with only the copy that was in flight. The rule copies the others."""
    async with running(settings_for(url, here.rule())) as bridge:
        await Load(here.peer, here.name).burst(20)
        await here.holds(20)
        in_flight = (await here.stored())[-1]
        async with during(bridge.runs[0]._entries[0]):
            await here.peer.recreate_stream(here.target)
            await here.peer.store(in_flight.subject, in_flight.payload, in_flight.header_block)
        await here.holds(20)
        await until(lambda: bridge.runs[0].ready)
    assert await here.source_sequences() == [20, *range(1, 20)]


async def test_a_recreated_target_gets_every_message(
    twin_version: str, servers: SharedServers, raw_peer: OpenPeer, unique_name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = await servers.url(twin_version)
    here = await Copies.make(await raw_peer(url), unique_name("target"))
    openings = Openings(monkeypatch)
    await _target_is_recreated(url, here, openings.one_is_interrupted)
    assert [resume.resume_after for resume in openings.interrupted] == [0]


async def test_a_recreated_target_is_known_after_a_request_that_fails(
    twin_version: str, servers: SharedServers, raw_peer: OpenPeer, unique_name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request for a known message, which shows that the target is another stream."""
    url = await servers.url(twin_version)
    here = await Copies.make(await raw_peer(url), unique_name("target"))
    openings = Openings(monkeypatch)
    ask, asked = JetStreamApi.stored_message, list[int]()

    async def fails_once(api: JetStreamApi, stream: str, sequence: int) -> StoredMessage | None:
        if stream == here.target:
            asked.append(sequence)
            if len(asked) == 1:
                raise ApiError("the test", description="the test", retriable=True)
        return await ask(api, stream, sequence)

    @asynccontextmanager
    async def one_request_fails(entry: CopyEntry) -> AsyncIterator[None]:
        async with openings.held(entry):
            yield
            monkeypatch.setattr(JetStreamApi, "stored_message", fails_once)

    await _target_is_recreated(url, here, one_request_fails)
    assert asked, "the request that failed"


async def test_a_recreated_source_is_copied_from_its_start(
    twin_version: str, servers: SharedServers, raw_peer: OpenPeer, unique_name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the target's first messages are gone, and other clients store messages in it."""
    url = await servers.url(twin_version)
    here = await Copies.make(await raw_peer(url), unique_name("source"))
    openings = Openings(monkeypatch)
    async with running(settings_for(url, here.rule(on_recreated="restart"))) as bridge:
        await Load(here.peer, here.name).burst(5)
        await here.holds(5)
        await here.peer.api(f"STREAM.PURGE.{here.target}", {"seq": 3})
        async with openings.one_is_interrupted(bridge.runs[0]._entries[0]):
            await here.peer.recreate_stream(here.name)
            await Load(here.peer, here.name).burst(7)
            await here.peer.store(f"{here.target}.local".encode(), b"of another client")
        await here.holds(3 + 1 + 7)
        await until(lambda: bridge.runs[0].ready)
    assert [resume.resume_after for resume in openings.interrupted] == [0]
    target = await here.peer.api(f"STREAM.INFO.{here.target}", {"subjects_filter": ">"})
    assert target["state"]["messages"] == 3 + 1 + 7
