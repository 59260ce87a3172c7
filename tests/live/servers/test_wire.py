"""The wire against real servers: guards what `nats_bridge.client.wire` needs of nats-py's internals."""

from __future__ import annotations

import asyncio

import pytest
from nats.aio.transport import TcpTransport

from nats_bridge.client.wire import Delivered, WireClient
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, Servers, SharedServers
from tests.live.until import LIMIT


async def test_raw_headers_arrive_as_they_were_published(
    servers: SharedServers, twin_version: str, unique_name: Name, raw_peer: OpenPeer
) -> None:
    subject = unique_name("wire")
    peer = await raw_peer(await servers.url(twin_version))
    block = b"NATS/1.0\r\nA: 1\r\nA: 2\r\n a :  spaced  \r\n\xff: \x0c\r\n\r\n"
    seen = await peer.collect(subject)
    peer.publish(subject.encode(), b"\r\nMSG x 1 3\r\n", block)
    peer.publish(subject.encode(), b"", b"", b"reply.to")
    peer.publish(subject.encode(), b"plain")
    messages = await seen.count(3)
    name = subject.encode()
    assert messages == [
        (name, b"", block, b"\r\nMSG x 1 3\r\n"),
        (name, b"reply.to", b"", b""),
        (name, b"", b"", b"plain"),
    ]


async def test_batches_and_ordinary_subscriptions_share_a_connection(
    servers: SharedServers, newest_version: str, unique_name: Name, raw_peer: OpenPeer
) -> None:
    stem = unique_name("mixed")
    peer = await raw_peer(await servers.url(newest_version))
    ordinary = await peer.client.subscribe(f"{stem}.ordinary")
    batches = await peer.collect(f"{stem}.batches")
    for number in range(500):
        peer.publish(f"{stem}.batches".encode(), b"b%d" % number)
        peer.publish(f"{stem}.ordinary".encode(), b"o%d" % number)
    assert [message[3] for message in await batches.count(500)] == [b"b%d" % n for n in range(500)]
    assert [(await ordinary.next_msg(timeout=LIMIT)).data for _ in range(500)] == [b"o%d" % n for n in range(500)]


async def test_messages_larger_than_a_read_arrive_whole(native_server: Servers, raw_peer: OpenPeer) -> None:
    async with native_server("2.10.27", config="max_payload: 8MB") as server:
        peer = await raw_peer(server.url)
        seen = await peer.collect("large")
        payload = bytes(range(256)) * 20_000
        for _ in range(3):
            peer.publish(b"large", payload, b"NATS/1.0\r\nA: b\r\n\r\n")
        assert [message[3] for message in await seen.count(3)] == [payload] * 3


async def test_a_connection_that_is_lost_while_it_is_closed_is_closed(servers: SharedServers) -> None:
    url = await servers.url("2.15.3")
    for moment in range(6):
        client, closed = WireClient(), asyncio.Event()

        async def on_closed(closed: asyncio.Event = closed) -> None:
            closed.set()

        await client.connect(url, closed_cb=on_closed, connect_timeout=int(LIMIT))
        await client.flush()
        closing = asyncio.create_task(client.close())
        for _ in range(moment):
            await asyncio.sleep(0)
        client._pending.append(b"UNSUB 1\r\n")
        client._pending_data_size += 1
        client._wide._io_writer.transport.abort()
        await closing
        assert closed.is_set()


async def test_subscriptions_survive_a_server_restart(native_server: Servers) -> None:
    async with native_server("2.15.3") as server:
        back = asyncio.Event()
        client = WireClient()

        async def on_back() -> None:
            back.set()

        patience = {"connect_timeout": int(LIMIT), "reconnect_time_wait": 0, "max_reconnect_attempts": -1}
        await client.connect(server.url, reconnected_cb=on_back, **patience)
        arrived: list[Delivered] = []
        came = asyncio.Event()

        def on_batch(batch: list[Delivered]) -> None:
            arrived.extend(batch)
            came.set()

        await client.subscribe_batches("after", on_batch, lambda *_: None)
        await client.flush()
        server.restart()
        async with asyncio.timeout(LIMIT):
            await back.wait()
            client.write_raw(b"PUB after 2\r\nhi\r\n")
            await came.wait()
        assert [message[3] for message in arrived] == [b"hi"]
        await client.close()


async def test_flushed_is_done_when_the_server_has_handled_what_was_written(
    servers: SharedServers, twin_version: str, unique_name: Name, raw_peer: OpenPeer
) -> None:
    subject = unique_name("flush")
    peer = await raw_peer(await servers.url(twin_version))
    seen = await peer.collect(subject)
    for number in range(100):
        peer.publish(subject.encode(), b"%d" % number)
    async with asyncio.timeout(LIMIT):
        await peer.client.flushed()
    # The PONG follows the deliveries on the same connection, so all of them are here.
    assert len(seen.messages) == 100


async def test_who_gives_up_waiting_for_a_pong_does_not_end_the_connection(
    servers: SharedServers, raw_peer: OpenPeer
) -> None:
    peer = await raw_peer(await servers.url("2.15.3"))
    peer.client.flushed().cancel()  # nats-py's own way with a PONG for it ends its reading
    async with asyncio.timeout(LIMIT):
        await peer.client.flushed()
        await peer.client.flushed()


async def test_who_asks_while_nothing_is_written_waits_for_the_same_pong(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    subject = unique_name("asked")
    peer = await raw_peer(await servers.url("2.15.3"))
    seen = await peer.collect(subject)
    asked, again = peer.client.flushed(), peer.client.flushed()
    peer.publish(subject.encode(), b"written later")
    later = peer.client.flushed()
    assert asked is again
    assert later is not asked
    async with asyncio.timeout(LIMIT):
        await later
    assert asked.done()
    assert [message[3] for message in seen.messages] == [b"written later"]


async def test_a_message_is_handed_on_and_written_in_the_turn_that_reads_it(
    servers: SharedServers, newest_version: str, unique_name: Name, raw_peer: OpenPeer
) -> None:
    subject, loop = unique_name("turn"), asyncio.get_running_loop()
    url = await servers.url(newest_version)
    publisher, peer = await raw_peer(url), await raw_peer(url)
    seen = await publisher.collect(f"{subject}.again")
    await publisher.client.flushed()
    tasks: list[object] = []
    unsent: list[int] = []

    def on_batch(batch: list[Delivered]) -> None:
        tasks.append(asyncio.current_task())
        loop.call_soon(lambda: unsent.append(peer.client.unsent_bytes))  # the first thing that the next turn does
        peer.publish(f"{subject}.again".encode(), batch[0][3])

    await peer.client.subscribe_batches(subject, on_batch)
    await peer.client.flushed()
    publisher.publish(subject.encode(), b"alone")
    assert [message[3] for message in await seen.count(1)] == [b"alone"]
    assert tasks == [None], "no task had to wake"
    assert unsent == [0]


async def test_what_is_written_raw_and_what_nats_py_writes_keep_their_order(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    subject = unique_name("order")
    peer = await raw_peer(await servers.url("2.15.3"))
    seen = await peer.collect(subject)
    for number in range(0, 40, 2):
        peer.publish(subject.encode(), b"%d" % number)
        await peer.client.publish(subject, b"%d" % (number + 1))
        await peer.client.flush()
    assert [message[3] for message in await seen.count(40)] == [b"%d" % number for number in range(40)]


async def test_flushed_is_behind_subscribing_and_unsubscribing(
    servers: SharedServers, twin_version: str, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """nats-py writes SUB and UNSUB a moment later; its own PING overtakes them."""
    subject = unique_name("behind")
    url = await servers.url(twin_version)
    one, other = await raw_peer(url), await raw_peer(url)
    for _ in range(20):
        arrived: list[Delivered] = []
        subscription = await one.client.subscribe_batches(subject, arrived.extend)
        async with asyncio.timeout(LIMIT):
            await one.client.flushed()
            other.publish(subject.encode(), b"received")
            await other.client.flushed()
            await subscription.unsubscribe()
            await one.client.flushed()
            other.publish(subject.encode(), b"not received")
            await other.client.flushed()
            await one.client.flushed()
        assert [message[3] for message in arrived] == [b"received"]
        await subscription.release()


async def test_what_nats_py_waits_for_is_behind_subscribing_too(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A race of the server's two connections would be lost once in a hundred times: so what is written is checked."""
    peer = await raw_peer(await servers.url("2.10.27"))
    subject = unique_name("sub")
    written: list[bytes] = []
    monkeypatch.setattr(
        TcpTransport,
        "write",
        lambda self, data, write=TcpTransport.write: (written.append(data), write(self, data))[-1],
    )
    monkeypatch.setattr(
        TcpTransport,
        "writelines",
        lambda self, data, write=TcpTransport.writelines: (written.extend(data), write(self, data))[-1],
    )
    await peer.client.subscribe_batches(subject, lambda _: None)
    await peer.client.flush()
    assert [operation.split(b" ")[0].strip() for operation in written] == [b"SUB", b"PING"]


async def test_a_queue_group_gets_each_message_once_and_no_control_messages(
    servers: SharedServers, newest_version: str, unique_name: Name, raw_peer: OpenPeer
) -> None:
    subject = unique_name("queue")
    url = await servers.url(newest_version)
    one, other = await raw_peer(url), await raw_peer(url)
    received: tuple[list[Delivered], list[Delivered]] = [], []
    for peer, into in zip((one, other), received, strict=True):
        await peer.client.subscribe_batches(subject, into.extend, queue="q")
        await peer.client.flushed()
    block = b"NATS/1.0 100 Not For Us\r\n\r\n"
    for number in range(200):
        one.publish(subject.encode(), b"" if number % 2 else b"%d" % number, block)
    async with asyncio.timeout(LIMIT):
        await one.client.flushed()
        await other.client.flushed()
    assert len(received[0]) + len(received[1]) == 200
    assert min(map(len, received)) > 0
    assert {message[2] for into in received for message in into} == {block}


@pytest.mark.parametrize("block", [b"", b"NATS/1.0\r\nA: b\r\n\r\n"])
async def test_stored_subjects_with_spaces_are_read_whole(
    block: bytes, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    name = unique_name("spaced")
    peer = await raw_peer(await servers.url("2.10.27"))
    transform = {"src": f"{name}.*", "dest": f"{name} with  spaces.$1"}
    await peer.create_stream(name=name, subjects=[f"{name}.*"], subject_transform=transform)
    await peer.store(f"{name}.x".encode(), b"body", block)
    seen = await peer.collect(f"{name}delivered")
    consumer = {"deliver_subject": f"{name}delivered", "ack_policy": "none"}
    await peer.api(f"CONSUMER.CREATE.{name}", {"stream_name": name, "config": consumer})
    ((subject, reply, delivered, payload),) = await seen.count(1)
    assert (subject, delivered, payload) == (f"{name} with  spaces.x".encode(), block, b"body")
    assert reply.startswith(b"$JS.ACK.")


async def test_what_cannot_be_read_ends_the_connection(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """White space in a republished subject breaks the protocol; a lost connection is better than a deaf one."""
    name = unique_name("unreadable")
    url = await servers.url("2.10.27")
    peer = await raw_peer(url)
    republish = {"src": f"{name}.*", "dest": f"to{name}.x y z.$1"}
    await peer.create_stream(name=name, subjects=[f"{name}.*"], republish=republish)
    reader = WireClient()
    ended = asyncio.Event()

    async def on_end() -> None:
        ended.set()

    try:
        await reader.connect(url, allow_reconnect=False, closed_cb=on_end, connect_timeout=int(LIMIT))
        await reader.subscribe_batches(f"to{name}.>", lambda _: None, lambda *_: None)
        await reader.flush()
        await peer.store(f"{name}.x".encode())
        async with asyncio.timeout(LIMIT):
            await ended.wait()
    finally:
        await reader.close()
