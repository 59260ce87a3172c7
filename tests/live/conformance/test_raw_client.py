"""The suite's own client against real servers: every byte, every authentication, every loss of a connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from nats_conformance.catalogue.case import Message
from nats_conformance.errors import SubjectError
from nats_conformance.native_servers import NativeServer
from nats_conformance.raw_client import Credentials, RawClient
from tests.live.shared_servers import SharedServers

Servers = Callable[..., NativeServer]


async def test_every_byte_arrives(twin_version: str, servers: SharedServers, unique_name: Callable[[str], str]) -> None:
    client = await RawClient.connect(await servers.url(twin_version))
    try:
        subject = unique_name("raw").encode()
        collected = await client.subscribe(subject)
        sent = (
            Message(subject, b"NATS/1.0\r\nA: 1\r\nA: 2\r\n a :  x\r\n\xff: \x0c\r\n\r\n", b"\r\nMSG x 1 3\r\n"),
            Message(subject, b"", bytes(range(256)) * 4000),
            Message(subject),
        )
        for message in sent:
            client.publish(message)
        client.publish(Message(subject), b"reply.to")
        await client.flush()
        assert collected.messages == (*sent, Message(subject))
        assert [each.reply for each in collected.deliveries] == [b"", b"", b"", b"reply.to"]
        client.unsubscribe(collected)
        client.publish(sent[0])
        await client.flush()
        assert len(collected.messages) == 4
    finally:
        await client.close()


async def test_requests(twin_version: str, servers: SharedServers, unique_name: Callable[[str], str]) -> None:
    client = await RawClient.connect(await servers.url(twin_version))
    try:
        assert client.server_version == twin_version
        assert await client.ask(Message(unique_name("unanswered").encode())) is None
        answers = await asyncio.gather(*(client.api("INFO") for _ in range(20)))
        assert all("memory" in answer for answer in answers)
        assert (await client.api("STREAM.INFO.NONE"))["error"]["err_code"] == 10059
    finally:
        await client.close()


async def test_subjects_with_spaces_are_read_whole(native_server: Servers) -> None:
    # Servers before 2.12.9 republish under such a subject.
    async with native_server("2.10.27") as server:
        client = await RawClient.connect(server.url)
        collected = await client.subscribe(b"out.>")
        config = {"name": "S", "subjects": ["in.*"], "republish": {"src": "in.*", "dest": "out.a b.$1"}}
        assert "error" not in await client.api("STREAM.CREATE.S", config)
        await client.ask(Message(b"in.x", payload=b"1"))
        await client.flush()
        (seen,) = collected.messages
        assert (seen.subject, seen.payload) == (b"out.a b.x", b"1")
        await client.close()


@pytest.mark.parametrize(
    ("config", "at", "credentials"),
    [
        ("authorization {user: me, password: 'p@ss'}", "me:p%40ss@", None),
        ("authorization {user: me, password: 'p@ss'}", "", Credentials(user="me", password="p@ss")),
        ("authorization {token: t0k}", "t0k@", None),
        ("authorization {token: t0k}", "", Credentials(token="t0k")),
    ],
)
async def test_ways_to_authenticate(
    native_server: Servers, config: str, at: str, credentials: Credentials | None
) -> None:
    async with native_server("2.15.3", config=config) as server:
        client = await RawClient.connect(server.url.replace("//", f"//{at}"), credentials)
        await client.flush()
        await client.close()


async def test_a_refused_client_gets_the_reason_and_no_secret(native_server: Servers) -> None:
    async with native_server("2.15.3", config="authorization {user: me, password: right}") as server:
        with pytest.raises(SubjectError) as reported:
            await RawClient.connect(server.url.replace("//", "//me:secret-wrong@"))
        assert "Authorization Violation" in str(reported.value)
        assert "secret-wrong" not in str(reported.value)


async def test_no_listener(native_server: Servers) -> None:
    server = native_server("2.15.3").start()
    server.stop()
    with pytest.raises(SubjectError, match=r"no server answers at nats://127\.0\.0\.1:\d+ \(connection refused\)"):
        await RawClient.connect(server.url)


async def test_something_else_is_there() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(SubjectError, match="this is no NATS server, it said b'220 mail"):
            await RawClient.connect(f"nats://127.0.0.1:{port}")


async def test_a_server_that_ends_ends_what_waits_for_it(native_server: Servers) -> None:
    async with native_server("2.15.3") as server:
        client = await RawClient.connect(server.url)
        # There is a subscriber that never answers.
        await client.subscribe(b"silent")
        waiting = asyncio.create_task(client.ask(Message(b"silent")))
        await client.flush()
        await asyncio.to_thread(server.kill)
        with pytest.raises(SubjectError, match="the server ended the connection"):
            await waiting
        with pytest.raises(SubjectError, match="the server ended the connection"):
            await client.flush()
        await client.close()


async def test_jetstream_that_is_not_there(native_server: Servers) -> None:
    async with native_server("2.15.3", jetstream=False) as server:
        client = await RawClient.connect(server.url)
        with pytest.raises(SubjectError, match="JetStream is not enabled"):
            await client.api("INFO")
        await client.close()


def test_credentials_do_not_show_themselves(tmp_path: Path) -> None:
    assert "hidden" not in repr(Credentials(user="me", password="hidden", token="hidden", creds=tmp_path))
