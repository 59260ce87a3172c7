"""Questions and answers between two sides, real sockets between them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bridge.errors import RuleRefusedError, ServerUnreachableError
from bridge.workers.channel import Answer, Channel, ChannelClosedError, Json


async def nothing(_: str, __: Json) -> Json:
    return {}


@asynccontextmanager
async def pair(one: Answer = nothing, other: Answer = nothing) -> AsyncIterator[tuple[Channel, Channel]]:
    ends = socket.socketpair()
    channels = await Channel.on(ends[0], one), await Channel.on(ends[1], other)
    try:
        yield channels
    finally:
        for channel in channels:
            await channel.close()


async def test_both_sides_ask_and_answers_may_overtake_each_other() -> None:
    free = asyncio.Event()

    async def slow(what: str, given: Json) -> Json:
        if what == "slow":
            await free.wait()
        return {"what": what, **given}

    async def other(what: str, _: Json) -> Json:
        free.set()
        return {"other": what}

    async with pair(other, slow) as (one, two):
        first = asyncio.create_task(one.ask("slow", n=1))
        assert await one.ask("quick", n=2) == {"what": "quick", "n": 2}
        assert not first.done()
        assert await two.ask("back") == {"other": "back"}
        assert await first == {"what": "slow", "n": 1}


async def test_a_long_answer() -> None:
    async def long(_: str, __: Json) -> Json:
        return {"text": "x\n" * 2_000_000}

    async with pair(other=long) as (one, _):
        assert len((await one.ask("it"))["text"]) == 4_000_000


@pytest.mark.parametrize(
    ("error", "code", "exit_code", "passing"),
    [
        (RuleRefusedError("no"), "rule_refused", 2, False),
        (ServerUnreachableError("no"), "server_unreachable", 3, True),
        (ValueError("no"), "bridge", 1, False),
    ],
)
async def test_a_refusal_keeps_what_is_known_of_it(error: Exception, code: str, exit_code: int, passing: bool) -> None:
    async def refuse(_: str, __: Json) -> Json:
        raise error

    async with pair(other=refuse) as (one, _):
        with pytest.raises(Exception, match="no") as refused:
            await one.ask("it")
    found = refused.value
    assert (found.code, found.exit_code, found.passing) == (code, exit_code, passing)  # type: ignore[attr-defined]


async def test_whoever_waits_for_a_side_that_goes_hears_of_it() -> None:
    async def never(_: str, __: Json) -> Json:
        await asyncio.Event().wait()
        return {}

    async with pair(other=never) as (one, two):
        waiting = asyncio.create_task(one.ask("it"))
        await asyncio.sleep(0)
        await two.close()
        with pytest.raises(ChannelClosedError):
            await waiting
        assert one.closed.is_set()
        with pytest.raises(ChannelClosedError):
            await one.ask("it")


async def test_a_line_that_was_cut_is_an_end() -> None:
    ends = socket.socketpair()
    channel = await Channel.on(ends[0], nothing)
    ends[1].sendall(b'{"number": 1, "ask": "dra')
    ends[1].close()
    await channel.closed.wait()
    await channel.close()
