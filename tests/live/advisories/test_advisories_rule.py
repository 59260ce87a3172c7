"""An advisories rule on real servers: dead letters, and advisories without their message."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from nats_bridge.app.sidecar import Sidecar
from nats_bridge.consuming.replay import LIMITED, ephemeral_config
from nats_bridge.errors import ConfigError
from nats_bridge.kinds.advisories import run as advisories_run
from nats_bridge.rules import open_run
from nats_conformance.native_servers import NativeServer
from nats_transforms import header_block
from nats_transforms.republish import StoredMessage
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecars import running, settings_for
from tests.live.stored_messages import stored_messages
from tests.live.until import LIMIT, until

SOON = 20_000_000  # nanoseconds until a message that no client acknowledges counts as not delivered


def dead_letters(name: str, what: str = "MSG_TERMINATED", **more: Any) -> dict[str, Any]:
    """A rule that publishes dead letters of stream `name` to `dlq.<name>.<consumer>`."""
    republish = {"src": f"$JS.EVENT.ADVISORY.CONSUMER.{what}.{name}.*", "dest": f"dlq.{name}.{{{{wildcard(1)}}}}"}
    return {"name": name, "kind": "advisories", "republish": republish, "attach_message": True, **more}


async def consumer(peer: RawPeer, stream: str, name: str, **config: Any) -> None:
    config = {"durable_name": name, "ack_policy": "explicit", **config}
    body = {"stream_name": stream, "config": config}
    answer = await peer.api(f"CONSUMER.DURABLE.CREATE.{stream}.{name}", body)
    assert "error" not in answer, answer


async def pull(peer: RawPeer, stream: str, name: str, messages: int, *, more: int = 0) -> list[bytes]:
    """Fetch messages; return their reply subjects. `more` are requested in addition, and not waited for."""
    inbox = peer.client.new_inbox()
    arrived = await peer.collect(inbox)
    body = json.dumps({"batch": messages + more, "expires": 60_000_000_000}).encode()
    peer.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}".encode(), body, b"", inbox.encode())
    return [reply for _, reply, _, _ in (await arrived.count(messages))[:messages]]


async def terminate(peer: RawPeer, stream: str, messages: int, reason: bytes = b"") -> None:
    """Have a consumer `worker` give up the first so many messages."""
    await consumer(peer, stream, "worker")
    for reply in await pull(peer, stream, "worker", messages):
        peer.publish(reply, b"+TERM" + reason)
    await peer.flushed()


async def holds(peer: RawPeer, stream: str, messages: int) -> bool:
    return bool((await peer.api(f"STREAM.INFO.{stream}"))["state"]["messages"] >= messages)


async def letters(peer: RawPeer, stream: str, messages: int) -> list[StoredMessage]:
    """The dead letters of stream `stream`, as soon as there are so many; there are no more."""
    await until(lambda: holds(peer, f"{stream}dlq", messages))
    found = await stored_messages(peer, f"{stream}dlq", messages)
    assert (await peer.api(f"STREAM.INFO.{stream}dlq"))["state"]["messages"] == messages
    return found


async def streams(peer: RawPeer, name: str, **config: Any) -> None:
    """A stream, and one for its dead letters."""
    await peer.create_stream(**{"name": name, "subjects": [f"{name}.>"], "storage": "memory", **config})
    await peer.create_stream(name=f"{name}dlq", subjects=[f"dlq.{name}.>"], storage="memory")


def header(message: StoredMessage, name: str) -> str | None:
    value = header_block.read(message.header_block, name.encode())
    return None if value is None else value.decode()


@pytest.mark.parametrize("kind", ["push", "pull"])
async def test_what_was_delivered_too_often_becomes_a_dead_letter(
    kind: str, twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    name = unique_name("max")
    url = await servers.url(twin_version)
    peer = await raw_peer(url)
    await streams(peer, name, allow_rollup_hdrs=True)
    advisories = await peer.collect(f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{name}.*")
    block = b"NATS/1.0\r\nA: 1\r\nNats-Msg-Id: its own\r\na:2 \r\nNats-Expected-Stream: %b\r\nNats-Rollup: sub\r\n\r\n"
    await peer.store(f"{name}.poison".encode(), b"bad\r\nbody", block % name.encode())
    (stored,) = await stored_messages(peer, name, 1)
    async with running(settings_for(url, dead_letters(name, "MAX_DELIVERIES"))) as bridge:
        assert bridge.runs[0].ready
        if kind == "push":
            await peer.collect(f"deliver.{name}")
            await consumer(peer, name, "c", deliver_subject=f"deliver.{name}", max_deliver=2, ack_wait=SOON)
        else:
            await consumer(peer, name, "c", max_deliver=2, ack_wait=SOON)
            await pull(peer, name, "c", 2, more=1)
        (letter,) = await letters(peer, name, 1)
        await until(lambda: bridge.runs[0].counters.as_dict()["stored"] == 1)
    ((_, _, _, advisory),) = await advisories.count(1)
    said = json.loads(advisory)
    assert letter.subject == f"dlq.{name}.c".encode()
    assert letter.payload == b"bad\r\nbody"
    assert letter.header_block.startswith(
        b"NATS/1.0\r\nA: 1\r\nNats-Bridge-Original-Msg-Id: its own\r\na:2 \r\nNats-Bridge-Original-Expected-Stream: "
        + name.encode()
        + b"\r\nNats-Bridge-Original-Rollup: sub\r\nNats-Stream: "
    )
    assert header(letter, "Nats-Stream") == name
    assert header(letter, "Nats-Subject") == f"{name}.poison"
    assert header(letter, "Nats-Sequence") == "1"
    assert header(letter, "Nats-Bridge-Advisory") == "io.nats.jetstream.advisory.v1.max_deliver"
    assert header(letter, "Nats-Bridge-Consumer") == "c"
    assert header(letter, "Nats-Bridge-Deliveries") == "2"
    assert header(letter, "Nats-Bridge-Reason") is None
    assert header(letter, "Nats-Bridge-Advisory-Id") == header(letter, "Nats-Msg-Id") == said["id"]
    assert header(letter, "Nats-Bridge-Advisory-Json") == advisory.decode()
    direct = await peer.api(f"STREAM.MSG.GET.{name}", {"seq": 1})
    assert header(letter, "Nats-Time-Stamp") == direct["message"]["time"]
    assert stored.payload == letter.payload


async def test_what_was_terminated_says_why(
    twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    name = unique_name("term")
    url = await servers.url(twin_version)
    peer = await raw_peer(url)
    await streams(peer, name)
    await peer.store(f"{name}.a".encode(), b"one")
    knows_reasons = twin_version != "2.9.10"
    async with running(settings_for(url, dead_letters(name))):
        await terminate(peer, name, 1, b" no such customer\r\nX: y" if knows_reasons else b"")
        (letter,) = await letters(peer, name, 1)
    assert letter.payload == b"one"
    assert header(letter, "Nats-Bridge-Advisory") == "io.nats.jetstream.advisory.v1.terminated"
    assert header(letter, "Nats-Bridge-Reason") == ("no such customer X: y" if knows_reasons else None)


async def test_what_a_sidecar_itself_reads_with_has_no_dead_letters(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """Servers report what consumers with acknowledgements lose by limits as terminated: also a sidecar's own ones."""
    url = await servers.url(newest_version)
    peer, name = await raw_peer(url), unique_name("own")
    await streams(peer, name)
    for number in range(2):
        await peer.store(f"{name}.a".encode(), b"%d" % number)
    config = ephemeral_config("", filters=(), headers_only=False, direct=False, limit=8)
    own = config["name"] = f"{LIMITED}own"
    async with running(settings_for(url, dead_letters(name))) as bridge:
        await consumer(peer, name, own)
        for reply in await pull(peer, name, own, 2):
            peer.publish(reply, b"+TERM")
        await until(lambda: bridge.supervisors[0].counters()["unmatched"] == 2)
        await terminate(peer, name, 2)
        assert len(await letters(peer, name, 2)) == 2


async def test_a_message_that_is_gone(
    twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """The server itself gives up on a message that is deleted while it is being worked on."""
    name = unique_name("gone")
    url = await servers.url(twin_version)
    peer = await raw_peer(url)
    await streams(peer, name)
    advisories = await peer.collect(f"$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.{name}.*")
    await peer.store(f"{name}.a".encode(), b"one")
    async with running(settings_for(url, dead_letters(name))) as bridge:
        await consumer(peer, name, "worker")
        await pull(peer, name, "worker", 1)
        await peer.api(f"STREAM.MSG.DELETE.{name}", {"seq": 1})
        (letter,) = await letters(peer, name, 1)
        assert bridge.runs[0].counters.as_dict()["messages_gone"] == 1
    ((subject, _, _, advisory),) = await advisories.count(1)
    assert letter.payload == advisory
    assert letter.header_block == (
        b"NATS/1.0\r\nNats-Subject: %b\r\nNats-Bridge-Message: gone\r\nNats-Msg-Id: %b\r\n\r\n"
        % (subject, json.loads(advisory)["id"].encode())
    )


@pytest.mark.parametrize("headers_only", [False, True])
async def test_advisories_alone(
    headers_only: bool, twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    name = unique_name("plain")
    url = await servers.url(twin_version)
    peer = await raw_peer(url)
    native = await peer.collect(f"$JS.EVENT.ADVISORY.STREAM.*.{name}")
    bridged = await peer.collect(f"events.{name}.>")
    republish = {
        "src": f"$JS.EVENT.ADVISORY.STREAM.*.{name}",
        "dest": f"events.{name}.{{{{wildcard(1)}}}}",
        "headers_only": headers_only,
    }
    ours = {"name": name, "kind": "advisories", "republish": republish}
    async with running(settings_for(url, ours)) as bridge:

        async def reported_deletion() -> bool:
            # A deleted stream discards the advisories that it has not sent yet (2.9.10 to 2.15.3).
            await peer.create_stream(name=name, subjects=[f"{name}.>"], storage="memory")
            await peer.api(f"STREAM.DELETE.{name}")
            return any(b".DELETED." in subject for subject, _, _, _ in native.messages)

        await until(reported_deletion)
        await until(lambda: len(bridged.messages) == len(native.messages))
        assert bridge.runs[0].counters.as_dict()["stored"] == 0
    assert len(bridged.messages) >= 2
    # The listener may have received more, by now.
    for (subject, reply, block, payload), (theirs, _, _, advisory) in zip(
        bridged.messages, native.messages, strict=False
    ):
        assert subject == b"events.%b.%b" % (name.encode(), theirs.split(b".")[4])
        assert reply == b""
        assert payload == (b"" if headers_only else advisory)
        size = b"Nats-Msg-Size: %d\r\n" % len(advisory) if headers_only else b""
        identity = json.loads(advisory)["id"].encode()
        assert block == b"NATS/1.0\r\nNats-Subject: %b\r\nNats-Msg-Id: %b\r\n%b\r\n" % (theirs, identity, size)


async def test_two_sidecars_share_the_advisories_and_the_order_is_kept_by_one(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    name = unique_name("shared")
    url = await servers.url(newest_version)
    peer = await raw_peer(url)
    await peer.create_stream(name=name, subjects=[f"{name}.>"], storage="memory")
    for number in range(200):
        await peer.store(f"{name}.{number % 3}".encode(), b"%d" % number)
    # No stream takes them here, so nothing hides a duplicate.
    collected = await peer.collect(f"dlq.{name}.>")
    settings = settings_for(url, dead_letters(name))
    async with running(settings) as one, running(settings) as two:
        await terminate(peer, name, 200)
        await collected.count(200)
    counts = [each.runs[0].counters.as_dict()["republished"] for each in (one, two)]
    assert sum(counts) == len(collected.messages) == 200
    assert min(counts) > 20
    assert sorted(int(payload) for _, _, _, payload in collected.messages) == list(range(200))
    collected.messages.clear()
    advisories = await peer.collect(f"$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.{name}.*")
    async with running(settings):
        await peer.api(f"CONSUMER.DELETE.{name}.worker")
        await terminate(peer, name, 200)
        await collected.count(200)
    order = [json.loads(payload)["stream_seq"] - 1 for _, _, _, payload in await advisories.count(200)]
    assert [int(payload) for _, _, _, payload in collected.messages] == order


async def test_an_advisory_that_comes_again_is_stored_once(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    name = unique_name("again")
    url = await servers.url("2.15.3")
    peer = await raw_peer(url)
    await streams(peer, name)
    advisories = await peer.collect(f"$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.{name}.*")
    await peer.store(f"{name}.a".encode(), b"one")
    async with running(settings_for(url, dead_letters(name))) as bridge:
        await terminate(peer, name, 1)
        ((subject, _, _, advisory),) = await advisories.count(1)
        peer.publish(subject, advisory)
        counters = bridge.runs[0].counters
        await until(lambda: counters.as_dict()["duplicates"] == 1)
        assert len(await letters(peer, name, 1)) == 1


async def test_a_copy_that_names_its_source_can_be_a_dead_letter(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """2.15 refuses `Nats-Stream-Source` from clients."""
    name = unique_name("sourced")
    url = await servers.url("2.15.3")
    peer = await raw_peer(url)
    await peer.create_stream(name=f"{name}source", subjects=[f"{name}.>"])
    await streams(peer, name, subjects=[], sources=[{"name": f"{name}source"}])
    await peer.store(f"{name}.a".encode(), b"one")
    await until(lambda: holds(peer, name, 1))
    async with running(settings_for(url, dead_letters(name))):
        await terminate(peer, name, 1)
        (letter,) = await letters(peer, name, 1)
    assert letter.payload == b"one"
    assert str(header(letter, "Nats-Bridge-Original-Stream-Source")).startswith(f"{name}source 1 ")


@pytest.mark.parametrize("direct", [False, True])
async def test_a_subject_that_is_not_utf_8(
    direct: bool, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    name = unique_name("bytes")
    url = await servers.url("2.10.27")
    peer = await raw_peer(url)
    await streams(peer, name, allow_direct=direct)
    subject = name.encode() + b".\xff\xfe"
    await peer.store(subject, b"\xff", b"NATS/1.0\r\nLatin: \xe9\r\n\r\n")
    async with running(settings_for(url, dead_letters(name))):
        await terminate(peer, name, 1)
        (letter,) = await letters(peer, name, 1)
    assert letter.payload == b"\xff"
    assert letter.header_block.startswith(b"NATS/1.0\r\nLatin: \xe9\r\n")
    # Only replicas that answer directly can show the bytes.
    expected = subject if direct else f"{name}.\ufffd\ufffd".encode()
    assert header_block.read(letter.header_block, b"Nats-Subject") == expected


async def test_messages_that_do_not_fit(servers: SharedServers, unique_name: Name, raw_peer: OpenPeer) -> None:
    name = unique_name("fit")
    url = await servers.url("2.15.3")
    peer = await raw_peer(url)
    await peer.create_stream(name=name, subjects=[f"{name}.>"], storage="memory")
    await peer.create_stream(name=f"{name}dlq", subjects=[f"dlq.{name}.>"], storage="memory", max_msg_size=10_000)
    await peer.store(f"{name}.a".encode(), b"x" * (1 << 20))
    await peer.store(f"{name}.a".encode(), b"x" * 20_000)
    await peer.store(f"{name}.a".encode(), b"small")
    async with running(settings_for(url, dead_letters(name))) as bridge:
        await terminate(peer, name, 3)
        found = await letters(peer, name, 3)
        await until(lambda: bridge.runs[0].counters.as_dict()["stored"] == 3)
        counters = bridge.runs[0].counters.as_dict()
    assert {header(letter, "Nats-Bridge-Message") for letter in found} == {"too large", "refused by the stream", None}
    assert sorted(json.loads(letter.payload)["stream_seq"] for letter in found if letter.payload != b"small") == [1, 2]
    assert (counters["too_large"], counters["stored"], counters["refused"]) == (1, 3, 0)


async def test_a_stream_that_takes_nothing_at_all(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    name = unique_name("nothing")
    url = await servers.url("2.15.3")
    peer = await raw_peer(url)
    await peer.create_stream(name=name, subjects=[f"{name}.>"], storage="memory")
    await peer.create_stream(name=f"{name}dlq", subjects=[f"dlq.{name}.>"], storage="memory", max_msg_size=10)
    await peer.store(f"{name}.a".encode(), b"one")
    async with running(settings_for(url, dead_letters(name))) as bridge:
        await terminate(peer, name, 1)
        await until(lambda: bridge.runs[0].counters.as_dict()["refused"] == 1)
    assert bridge.error is None


async def test_dead_letters_of_dead_letters_end_there(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    name = unique_name("chain")
    url = await servers.url("2.15.3")
    peer = await raw_peer(url)
    await streams(peer, name)
    await peer.store(f"{name}.a".encode(), b"one")
    republish = {"src": "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.*.*", "dest": f"dlq.{name}.$1.$2"}
    ours = {"name": name, "kind": "advisories", "republish": republish, "attach_message": True}
    async with running(settings_for(url, ours)) as bridge:
        await terminate(peer, name, 1)
        await until(lambda: holds(peer, f"{name}dlq", 1))
        await terminate(peer, f"{name}dlq", 1)
        await until(lambda: bridge.runs[0].counters.as_dict()["looped"] == 1)
    assert (await peer.api(f"STREAM.INFO.{name}dlq"))["state"]["messages"] == 1


async def test_the_stream_of_dead_letters_comes_goes_and_comes_back(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    name = unique_name("away")
    url = await servers.url(newest_version)
    peer = await raw_peer(url)
    await peer.create_stream(name=name, subjects=[f"{name}.>"], storage="memory")
    listener = await raw_peer(url)
    collected = await listener.collect(f"dlq.{name}.>")
    for number in range(3):
        await peer.store(f"{name}.a".encode(), b"%d" % number)
    config = {"name": f"{name}dlq", "subjects": [f"dlq.{name}.>"], "storage": "memory"}
    await consumer(peer, name, "worker")
    first, second, third = await pull(peer, name, "worker", 3)
    async with running(settings_for(url, dead_letters(name))) as bridge:
        run = bridge.runs[0]
        peer.publish(first, b"+TERM")
        await collected.count(1)  # no stream: published plainly
        await listener.close()  # from now on the server can answer 'no responders'
        await peer.create_stream(**config)
        await until(lambda: run._streams.names == [f"{name}dlq"])  # type: ignore[attr-defined]
        peer.publish(second, b"+TERM")
        assert [letter.payload for letter in await letters(peer, name, 1)] == [b"1"]
        await peer.api(f"STREAM.DELETE.{name}dlq")
        peer.publish(third, b"+TERM")
        await until(lambda: run.counters.as_dict()["repeated_out"] >= 2)
        assert not run.ready
        assert run.status()["waits_for_stream"] == f"{name}dlq"
        await peer.create_stream(**config)
        assert [letter.payload for letter in await letters(peer, name, 1)] == [b"2"]
        await until(lambda: run.ready)


async def test_the_target_s_server_is_killed_and_comes_back(
    native_server: Callable[..., NativeServer], raw_peer: OpenPeer
) -> None:
    async with native_server("2.10.27") as source, native_server("2.15.3") as target:
        here, there = await raw_peer(source.url), await raw_peer(target.url)
        await here.create_stream(name="S", subjects=["S.>"], storage="memory")
        await there.create_stream(name="Sdlq", subjects=["dlq.S.>"])
        for number in range(100):
            await here.store(b"S.a", b"%d" % number)
        await consumer(here, "S", "worker")
        replies = await pull(here, "S", "worker", 100)
        connections = {"default": {"servers": [source.url]}, "target": {"servers": [target.url]}}
        async with running(settings_for(source.url, dead_letters("S", to="target"), connections=connections)) as bridge:
            run = bridge.runs[0]
            for reply in replies[:50]:
                here.publish(reply, b"+TERM")
            await until(lambda: run.counters.as_dict()["stored"] >= 1)
            await asyncio.to_thread(target.kill)
            for reply in replies[50:]:
                here.publish(reply, b"+TERM")
            await until(lambda: run.counters.as_dict()["received"] == 100)
            await until(lambda: not run.ready)
            await asyncio.to_thread(target.start)
            await until(lambda: run.counters.as_dict()["stored"] == 100)
            await until(lambda: run.ready)
        found = await letters(await raw_peer(target.url), "S", 100)
    assert sorted(int(letter.payload) for letter in found) == list(range(100))


async def test_the_source_s_server_restarts(
    newest_version: str, native_server: Callable[..., NativeServer], raw_peer: OpenPeer
) -> None:
    async with native_server(newest_version) as server:
        peer = await raw_peer(server.url)
        await streams(peer, "S", storage="file")
        await peer.store(b"S.a", b"one")
        async with running(settings_for(server.url, dead_letters("S"))) as bridge:
            run = bridge.runs[0]
            await asyncio.to_thread(server.restart)
            await until(lambda: run.counters.as_dict()["reconnects"] >= 1 and run.ready)
            peer = await raw_peer(server.url)
            await peer.create_stream(name="Sdlq", subjects=["dlq.S.>"], storage="memory")  # it was in memory
            await terminate(peer, "S", 1)
            assert [letter.payload for letter in await letters(peer, "S", 1)] == [b"one"]


async def test_a_drain_publishes_all_that_was_received(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    name = unique_name("drain")
    url = await servers.url("2.15.3")
    peer = await raw_peer(url)
    await streams(peer, name)
    for number in range(300):
        await peer.store(f"{name}.a".encode(), b"%d" % number)
    async with running(settings_for(url, dead_letters(name))) as bridge:
        await terminate(peer, name, 300)
        counters = bridge.runs[0].counters
        await until(lambda: counters.as_dict()["received"] > 0)
    counted = counters.as_dict()
    assert counted["received"] == counted["republished"] == counted["stored"]
    assert counted["dropped"] == 0
    await letters(peer, name, counted["stored"])


async def test_what_can_wait_is_bounded_and_what_is_lost_is_counted(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advisories_run, "_MOST_WAITING", 10)
    monkeypatch.setattr(open_run, "_DRAIN", 0.5)
    name = unique_name("bounded")
    url = await servers.url("2.15.3")
    peer = await raw_peer(url)
    await streams(peer, name)
    for number in range(101):
        await peer.store(f"{name}.a".encode(), b"%d" % number)
    await consumer(peer, name, "worker")
    first, *rest = await pull(peer, name, "worker", 101)
    bridge = Sidecar(settings_for(url, dead_letters(name)))
    await bridge.start()
    counters = bridge.runs[0].counters
    await peer.api(f"STREAM.DELETE.{name}dlq")
    peer.publish(first, b"+TERM")
    await until(lambda: counters.as_dict()["repeated_out"] > 0)
    for reply in rest:
        peer.publish(reply, b"+TERM")
    await until(lambda: counters.as_dict()["received"] == 101)
    assert counters.as_dict()["dropped"] == 90
    assert bridge.runs[0].status()["waiting"] == 11
    assert not await bridge.stop()
    assert counters.as_dict()["dropped"] == 101


@pytest.mark.parametrize(
    ("source", "destination", "expected"),
    [
        ("$JS.EVENT.ADVISORY.*x", "dlq", "token '*x' is not a wildcard; write"),
        ("$JS.EVENT.ADVISORY.>", ">", "is where advisories come from"),
        ("$JS.EVENT.ADVISORY.STREAM.*.*", "dlq.$3", "wildcard index out of range in $3"),
    ],
)
async def test_what_is_refused(source: str, destination: str, expected: str, servers: SharedServers) -> None:
    url = await servers.url("2.15.3")
    ours = {"name": "r", "kind": "advisories", "republish": {"src": source, "dest": destination}}
    with pytest.raises(ConfigError) as refusal:
        await Sidecar(settings_for(url, ours, fail_fast=True)).start()
    assert str(refusal.value).startswith("rule 'r': republish: ")
    assert expected in str(refusal.value)


@pytest.mark.parametrize(
    ("permissions", "expected"),
    [
        ('publish: {deny: "$JS.API.STREAM.MSG.GET.>"}', "attach_message needs to read stream 'S'"),
        ('publish: {deny: "dlq.>"}', "allow the user to publish to 'dlq.S.{{wildcard(1)}}'"),
        ('subscribe: {deny: "$JS.EVENT.>"}', "allow the user to subscribe to '$JS.EVENT.ADVISORY.CONSUMER.MSG_"),
    ],
)
async def test_permissions(
    permissions: str, expected: str, native_server: Callable[..., NativeServer], raw_peer: OpenPeer, tmp_path: Any
) -> None:
    password = tmp_path / "password"
    password.write_text("p")
    users = f"{{user: u, password: p}}, {{user: limited, password: p, permissions: {{{permissions}}}}}"
    async with native_server("2.15.3", config=f"authorization: {{users: [{users}]}}") as server:
        peer = await raw_peer(server.url.replace("://", "://u:p@"))
        await streams(peer, "S")
        await peer.store(b"S.a", b"one")
        connection = {"servers": [server.url], "user": "limited", "password_file": str(password)}
        bridge = Sidecar(
            settings_for(server.url, dead_letters("S"), connections={"default": connection}, fail_fast=True)
        )
        starting = asyncio.create_task(bridge.start())
        await asyncio.wait([starting])
        if starting.exception() is None:
            await terminate(peer, "S", 1)
            async with asyncio.timeout(LIMIT):
                await bridge.finished.wait()
        assert expected in str(starting.exception() or bridge.error)
        await bridge.stop()


async def captured(peer: RawPeer, name: str) -> dict[str, Any]:
    """A stream that stores what consumers of `name` give up, and a rule that reads it."""
    subject = f"$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.{name}.*"
    await peer.create_stream(name=f"{name}adv", subjects=[subject], storage="memory")
    return dead_letters(name, captured_by=f"{name}adv")


async def has_acknowledged_all(peer: RawPeer, stream: str, name: str) -> bool:
    return bool((await peer.api(f"CONSUMER.INFO.{stream}.{name}"))["num_ack_pending"] == 0)


async def test_captured_advisories_are_not_missed_while_no_sidecar_runs(
    twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    name = unique_name("away")
    url = await servers.url(twin_version)
    peer = await raw_peer(url)
    await streams(peer, name)
    rule = await captured(peer, name)
    for number in range(100):
        await peer.store(f"{name}.a".encode(), b"%d" % number)
    await terminate(peer, name, 40)
    for already in (40, 70, 100):
        async with running(settings_for(url, rule)) as bridge:
            found = await letters(peer, f"{name}", already)
            assert sorted(int(letter.payload) for letter in found) == list(range(already))
            await until(lambda bridge=bridge: not bridge.runs[0].has_work)  # type: ignore[misc]
        await until(partial(has_acknowledged_all, peer, f"{name}adv", f"nats-bridge_{name}"))
        if already < 100:
            for reply in await pull(peer, name, "worker", 30):
                peer.publish(reply, b"+TERM")
            await peer.flushed()


async def test_replicas_share_captured_advisories(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    name = unique_name("both")
    url = await servers.url(newest_version)
    peer = await raw_peer(url)
    await streams(peer, name)
    rule = await captured(peer, name)
    for number in range(300):
        await peer.store(f"{name}.a".encode(), b"%d" % number)
    async with running(settings_for(url, rule)) as one, running(settings_for(url, rule)) as two:
        await terminate(peer, name, 300)
        await letters(peer, name, 300)
        counts = [each.runs[0].counters.as_dict() for each in (one, two)]
    assert sum(count["dropped"] for count in counts) == 0


@pytest.mark.parametrize("kind", ["sources", "mirror"])
async def test_a_message_that_is_gone_is_found_by_the_record_of_its_copy(
    kind: str, twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    name = unique_name("copied")
    url = await servers.url(twin_version)
    peer = await raw_peer(url)
    await streams(peer, name)
    other, copies = f"{name}x", f"{name}copies"
    await peer.create_stream(name=other, subjects=[f"{other}.>"], storage="memory")
    copied_from = {"mirror": {"name": name}} if kind == "mirror" else {"sources": [{"name": name}, {"name": other}]}
    await peer.create_stream(name=copies, storage="memory", **copied_from)
    for number in range(10):
        await peer.store(f"{name}.{number}".encode(), b"%d" % number)
        await peer.store(f"{other}.{number}".encode(), b"other")
    await until(lambda: holds(peer, copies, 10 if kind == "mirror" else 20))
    rule = dead_letters(name, copies_in=[copies])
    async with running(settings_for(url, rule)) as bridge:
        await consumer(peer, name, "worker")
        await pull(peer, name, "worker", 10)  # a message that is deleted in process is given up
        for sequence in (1, 4, 10):
            await peer.api(f"STREAM.MSG.DELETE.{name}", {"seq": sequence})
        await peer.flushed()
        found = await letters(peer, name, 3)
        assert bridge.runs[0].counters.as_dict()["messages_gone"] == 0
    assert sorted((header(letter, "Nats-Sequence"), letter.payload) for letter in found) == [
        ("1", b"0"),
        ("10", b"9"),
        ("4", b"3"),
    ]
    assert {header(letter, "Nats-Subject") for letter in found} == {f"{name}.0", f"{name}.3", f"{name}.9"}


async def test_a_copy_of_another_accounts_stream_of_the_name_is_not_taken(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    name = unique_name("foreign")
    url = await servers.url(newest_version)
    peer = await raw_peer(url)
    await streams(peer, name)
    copies = f"{name}copies"
    await peer.create_stream(name=copies, subjects=[f"copies.{name}"], storage="memory")
    record = f"NATS/1.0\r\nNats-Bridge-Source: {name}:0123abcd 1 > >\r\n\r\n"
    await peer.store(f"copies.{name}".encode(), b"theirs", record.encode())
    await peer.store(f"{name}.a".encode(), b"ours")
    async with running(settings_for(url, dead_letters(name, copies_in=[copies]))):
        await consumer(peer, name, "worker")
        await pull(peer, name, "worker", 1)
        await peer.api(f"STREAM.MSG.DELETE.{name}", {"seq": 1})
        (letter,) = await letters(peer, name, 1)
    assert header(letter, "Nats-Bridge-Message") == "gone"
