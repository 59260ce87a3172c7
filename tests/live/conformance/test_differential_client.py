"""What the differential asks of a connection: many answers at once, and waiting for what a subscription gets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from nats_conformance.catalogue.case import Message
from nats_conformance.errors import SubjectError
from nats_conformance.native_servers import NativeServer
from nats_conformance.raw_client import RawClient


async def test_answers_come_in_the_order_of_the_messages(native_server: Callable[..., NativeServer]) -> None:
    async with native_server("2.10.27") as server:
        client = await RawClient.connect(server.url)
        await client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "storage": "memory"})
        messages = [*(Message(b"s.%d" % number) for number in range(200)), Message(b"unanswered")]
        answers = await asyncio.gather(*map(client.ask, messages))
        assert [json.loads(each.message.payload)["seq"] for each in answers[:-1] if each] == list(range(1, 201))
        assert answers[-1] is None
        await client.close()


async def test_what_arrives_is_waited_for(native_server: Callable[..., NativeServer]) -> None:
    async with native_server("2.10.27") as server:
        client = await RawClient.connect(server.url)
        collected = await client.subscribe(b"a")
        assert not await client.arrived(collected, 1, limit=0.01)
        waiting = asyncio.create_task(client.arrived(collected, 3))
        for _ in range(3):
            client.publish(Message(b"a"))
        assert await waiting
        assert await client.arrived(collected, 2)
        assert len(collected.messages) == 3
        waiting = asyncio.create_task(client.arrived(collected, 4))
        await client.flush()
        server.kill()
        with pytest.raises(SubjectError, match="ended the connection"):
            await waiting
        with pytest.raises(SubjectError, match="ended the connection"):
            await client.arrived(collected, 4)
        await client.close()
