"""An ingress rule against native `subject_transform`, and against everything that can happen to it."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nats.errors
import nats.js.errors
import pytest
from nats.aio.client import Client
from structlog.testing import capture_logs

from nats_bridge.app.sidecar import Sidecar
from nats_bridge.errors import BridgeError, ConfigError, RuleRefusedError
from nats_bridge.kinds.ingress import run as ingress_run
from nats_bridge.kinds.ingress.run import IngressRun
from nats_transforms.dialect import server_dialect
from nats_transforms.republish import StoredMessage, unpublishable
from nats_transforms.transform import compile_transform
from tests.drawn.messages import draw_block, draw_payload
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Name, Servers, SharedServers
from tests.live.sidecars import running, settings_for
from tests.live.stored_messages import stored_messages
from tests.live.until import LIMIT, until

TRANSFORMS = {
    "rename": ("{s}.>", "{d}.>"),
    "partition": ("{s}.*.*", "{d}.{{{{partition(8,1,2)}}}}.{{{{wildcard(2)}}}}.{{{{wildcard(1)}}}}"),
    "cut": ("{s}.*.*", "{d}.{{{{splitfromleft(1,2)}}}}.{{{{slicefromright(2,3)}}}}.{{{{split(2,-)}}}}"),
}


def rule(stream: str, source: str, destination: str, **more: Any) -> dict[str, Any]:
    transform = {"src": source, "dest": destination}
    return {"name": stream, "kind": "subject_transform", "stream": stream, "subject_transform": transform, **more}


def renaming(name: str, **more: Any) -> dict[str, Any]:
    """Publishers use `in<name>`, the stream stores `kept<name>`."""
    return rule(name, f"in{name}.>", f"kept{name}.>", **more)


def content(messages: list[StoredMessage]) -> list[tuple[bytes, bytes, bytes]]:
    return [(message.subject, message.header_block, message.payload) for message in messages]


async def kept(peer: RawPeer, stream: str) -> list[StoredMessage]:
    """All that a stream holds now."""
    state = (await peer.api(f"STREAM.INFO.{stream}"))["state"]
    return await stored_messages(peer, stream, int(state["messages"]))


@pytest.mark.parametrize("transform", TRANSFORMS)
async def test_the_stream_holds_what_a_native_transform_would_have_stored(
    transform: str, twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """2.9 has no such transform; there a server of 2.10 shows what it would do."""
    name = unique_name("ingress")
    native_version = twin_version if twin_version != "2.9.10" else "2.10.27"
    bridged, native = await raw_peer(await servers.url(twin_version)), await raw_peer(await servers.url(native_version))
    source, destination = TRANSFORMS[transform]
    texts = {"src": source.format(s=f"n{name}"), "dest": destination.format(d=f"x{name}")}
    await native.create_stream(
        name=f"{name}n", subjects=[f"n{name}.>"], storage="memory", subject_transform=texts, no_ack=False
    )
    await bridged.create_stream(name=f"{name}b", subjects=[f"x{name}.>"], storage="memory")
    expects = compile_transform(texts["src"].encode(), texts["dest"].encode(), server_dialect(native_version))
    ours = rule(f"{name}b", source.format(s=f"b{name}"), texts["dest"])
    chance = random.Random(transform)
    refused = []
    async with running(settings_for(await servers.url(twin_version), ours, dialect=native_version)) as sidecar:
        for number in range(300):
            tokens = [chance.choice(["a", "bcd", "e-f", "--g", "日本", "é", "hijklmn", "-"]) for _ in range(2)]
            subject = ".".join([name, *tokens]).encode()
            block, payload = draw_block(chance, number), draw_payload(chance)
            answer = await bridged.store(b"b" + subject, payload, block)
            theirs = await native.store(b"n" + subject, payload, block)
            assert "error" not in theirs
            result = expects.apply(b"n" + subject)
            assert result is not None
            if unpublishable(result):
                refused.append(number)
                assert answer["error"]["code"] == 400
                assert "has an empty token" in answer["error"]["description"]
            else:
                # The acknowledgement is the stream's own.
                assert answer == {"stream": f"{name}b", "seq": number + 1 - len(refused)}, answer
        counters = sidecar.runs[0].counters.as_dict()
    assert counters["refused"] == counters["answered"] == len(refused)
    assert counters["passed_on"] == 300 - len(refused) > 150
    assert counters["in_doubt"] == 0
    expected = [message for message in content(await kept(native, f"{name}n")) if not unpublishable(message[0])]
    assert content(await kept(bridged, f"{name}b")) == expected


async def test_the_stream_s_errors_reach_the_publisher(
    twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    name = unique_name("errors")
    url = await servers.url(twin_version)
    peer = await raw_peer(url)
    await peer.create_stream(name=name, subjects=[f"kept{name}.>"], max_msg_size=100)
    subject = f"in{name}.x".encode()
    async with running(settings_for(url, renaming(name))):
        assert (await peer.store(subject, b"first"))["seq"] == 1
        expecting = b"NATS/1.0\r\nNats-Expected-Last-Sequence: %d\r\n\r\n"
        wrong = await peer.store(subject, b"", expecting % 7)
        assert wrong["error"]["err_code"] == 10071
        assert wrong["error"]["description"] == "wrong last sequence: 1"
        assert (await peer.store(subject, b"second", expecting % 1))["seq"] == 2
        large = await peer.store(subject, b"x" * 101)
        assert large["error"]["err_code"] == 10054
        identified = b"NATS/1.0\r\nNats-Msg-Id: one\r\n\r\n"
        assert (await peer.store(subject, b"third", identified))["seq"] == 3
        assert (await peer.store(subject, b"third", identified))["duplicate"] is True


async def test_nats_py_s_publish(
    twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, connect: Callable[[str], Any]
) -> None:
    name = unique_name("publish")
    url = await servers.url(twin_version)
    await (await raw_peer(url)).create_stream(name=name, subjects=[f"{name}.part.*.*"])
    client: Client = await connect(url)
    ours = rule(name, f"events.{name}.*", f"{name}.part.{{{{partition(8,1)}}}}.{{{{split(1,/)}}}}")
    async with running(settings_for(url, ours)):
        ack = await client.jetstream(timeout=LIMIT).publish(f"events.{name}.a", b"x", headers={"A": "b"})
        assert (ack.stream, ack.seq) == (name, 1)
        with pytest.raises(nats.js.errors.BadRequestError, match="has an empty token"):
            await client.jetstream(timeout=LIMIT).publish(f"events.{name}.///", b"x")
        with pytest.raises(nats.js.errors.BadRequestError, match="none of the stream's subjects"):
            await client.jetstream(timeout=LIMIT).publish(f"events.{name}.a/b", b"x")


async def test_messages_that_nothing_waits_for(servers: SharedServers, unique_name: Name, raw_peer: OpenPeer) -> None:
    name = unique_name("silent")
    url = await servers.url("2.10.27")
    peer = await raw_peer(url)
    await peer.create_stream(name=name, subjects=[f"{name}.*"])
    ours = rule(name, f"in.{name}.*", f"{name}.{{{{split(1,-)}}}}")
    with capture_logs() as logs:
        async with running(settings_for(url, ours)) as sidecar:
            for last in ("a", "--", "b-c", "*", "d"):
                peer.publish(f"in.{name}.{last}".encode(), last.encode())
            assert (await peer.store(f"in.{name}.e".encode(), b"e"))["seq"] == 3
            assert sidecar.runs[0].counters.as_dict()["refused"] == 3
            assert sidecar.runs[0].counters.as_dict()["answered"] == 0
    assert [message.payload for message in await kept(peer, name)] == [b"a", b"d", b"e"]
    (warning, *_) = [entry for entry in logs if entry["event"] == "rule.message_refused"]
    assert warning["reason"].startswith(f"'in.{name}.")  # the last one of the read


async def test_two_sidecars_share_the_messages(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    name = unique_name("shared")
    url = await servers.url(newest_version)
    peer = await raw_peer(url)
    await peer.create_stream(name=name, subjects=[f"kept{name}.>"], storage="memory")
    async with running(settings_for(url, renaming(name))) as one, running(settings_for(url, renaming(name))) as two:
        for number in range(2000):
            peer.publish(f"in{name}.{number % 7}".encode(), b"%d" % number)
        await until(lambda: _holds(peer, name, 2000))
        counts = [sidecar.runs[0].counters.as_dict()["passed_on"] for sidecar in (one, two)]
    assert sum(counts) == 2000
    assert min(counts) > 500
    assert sorted(int(message.payload) for message in await kept(peer, name)) == list(range(2000))


async def test_a_drain_under_load_loses_nothing_and_doubles_nothing(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """What the server handed to the one that stops is stored by it; the rest goes to the other."""
    name = unique_name("drain")
    url = await servers.url(newest_version)
    peer = await raw_peer(url)
    await peer.create_stream(name=name, subjects=[f"kept{name}.>"], storage="memory")
    published = 0

    async def burst(messages: int) -> None:
        nonlocal published
        published = await _burst(peer, name, published, messages)

    async with running(settings_for(url, renaming(name))):
        for _ in range(5):
            leaving = Sidecar(settings_for(url, renaming(name)))
            await leaving.start()
            await burst(300)
            stopping = asyncio.create_task(leaving.stop())
            while not stopping.done():
                await burst(100)
            assert await stopping
            assert leaving.runs[0].state == "stopped"
            assert leaving.runs[0].counters.as_dict()["in_doubt"] == 0
        await burst(10)
        await until(lambda: _holds(peer, name, published))
    assert sorted(int(message.payload) for message in await kept(peer, name)) == list(range(published))


async def test_a_drain_stores_what_the_server_had_handed_over(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that arrive between the last read and the end of the subscription."""
    name = unique_name("last")
    url = await servers.url(newest_version)
    peer = await raw_peer(url)
    await peer.create_stream(name=name, subjects=[f"kept{name}.>"], storage="memory")
    unsubscribe = IngressRun._unsubscribe

    async def late(run: IngressRun) -> None:
        _publish_while_no_rule_reads(url, f"in{name}.x", 50)
        await unsubscribe(run)

    monkeypatch.setattr(IngressRun, "_unsubscribe", late)
    async with running(settings_for(url, renaming(name))):
        pass
    assert [int(message.payload) for message in await kept(peer, name)] == list(range(50))


def _publish_while_no_rule_reads(url: str, subject: str, messages: int) -> None:
    """Publish numbered messages, and block the event loop until the server has handed them over."""
    host, port = url.removeprefix("nats://").split(":")
    numbers = [str(number) for number in range(messages)]
    publications = "".join(f"PUB {subject} {len(number)}\r\n{number}\r\n" for number in numbers)
    with socket.create_connection((host, int(port)), timeout=LIMIT) as connection, connection.makefile("rb") as read:
        connection.sendall(f'CONNECT {{"verbose":false}}\r\n{publications}PING\r\n'.encode())
        while line := read.readline():
            if line == b"PONG\r\n":
                return
    raise ConnectionError("the server closed the connection")


async def _burst(peer: RawPeer, name: str, first: int, messages: int) -> int:
    """Publish numbered messages, and wait for the answer to the last one; the next number.

    Not as many as the server takes: a publisher at full speed would leave no processor for what is tested.
    """
    subject, behind = f"in{name}.x".encode(), first + messages
    for number in range(first, behind - 1):
        peer.publish(subject, b"%d" % number)
    await peer.store(subject, b"%d" % (behind - 1))
    return behind


async def _holds(peer: RawPeer, stream: str, messages: int) -> bool:
    return bool((await peer.api(f"STREAM.INFO.{stream}"))["state"]["messages"] >= messages)


async def test_an_atomic_batch(servers: SharedServers, unique_name: Name, raw_peer: OpenPeer) -> None:
    """One sidecar keeps the order that a batch needs."""
    name = unique_name("batch")
    url = await servers.url("2.15.3")
    peer = await raw_peer(url)
    await peer.create_stream(name=name, subjects=[f"kept{name}.>"], allow_atomic=True)
    async with running(settings_for(url, renaming(name))):
        block = "NATS/1.0\r\nNats-Batch-Id: b\r\nNats-Batch-Sequence: {}\r\n{}\r\n"
        for number in range(1, 10):
            peer.publish(f"in{name}.x".encode(), b"%d" % number, block.format(number, "").encode())
        commit = block.format(10, "Nats-Batch-Commit: 1\r\n").encode()
        answer = await peer.store(f"in{name}.x".encode(), b"10", commit)
    assert (answer["seq"], answer["count"]) == (10, 10)


@pytest.mark.parametrize(
    ("source", "destination", "expected"),
    [
        ("*.>", "kept{n}.>", "would take messages of '_R_.>', which no rule may"),
        ("_INBOX.>", "kept{n}.>", "would take messages of '_INBOX.>'"),
        ("in{n}.*x", "kept{n}.y", "token '*x' stands for itself in a stream's transform. The sidecar cannot subscribe"),
        ("in{n}.*", "kept{n}.$2", "wildcard index out of range in $2"),
        ("in{n}.*", "kept{n}.{{{{nothing(1)}}}}", "unknown function in {{{{nothing(1)}}}}"),
        ("in{n}.*", "other{n}.$1", "stream '{n}' does not take 'other{n}.$1': its subjects are kept{n}.>"),
        ("kept{n}.*.x", "kept{n}.y.$1", "src 'kept{n}.*.x' is taken by stream '{n}' already"),
        ("in{n}.*.c", "kept{n}.y.$1", "src 'in{n}.*.c' is taken by stream 'second{n}' already"),
    ],
)
async def test_what_is_refused(
    source: str,
    destination: str,
    expected: str,
    newest_version: str,
    servers: SharedServers,
    unique_name: Name,
    raw_peer: OpenPeer,
) -> None:
    name = unique_name("refused")
    url = await servers.url(newest_version)
    peer = await raw_peer(url)
    await peer.create_stream(name=name, subjects=[f"kept{name}.>"])
    await peer.create_stream(name=f"second{name}", subjects=[f"second.{name}", f"in{name}.b.*"])
    ours = rule(name, source.format(n=name), destination.format(n=name), name="r")
    with pytest.raises(BridgeError) as refusal:
        await Sidecar(settings_for(url, ours, fail_fast=True)).start()
    assert isinstance(refusal.value, ConfigError | RuleRefusedError)
    assert str(refusal.value).startswith("rule 'r': ")
    assert expected.format(n=name) in str(refusal.value)
    await peer.api(f"STREAM.DELETE.second{name}")


async def test_a_partition_of_zero_where_it_ends_servers(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    name = unique_name("zero")
    url = await servers.url("2.10.27")
    await (await raw_peer(url)).create_stream(name=name, subjects=[f"kept{name}.>"])
    ours = rule(name, f"in{name}.*", f"kept{name}.{{{{partition(0,1)}}}}")
    with pytest.raises(ConfigError, match=r"partition of 0 crashes servers of 2\.10\.27"):
        await Sidecar(settings_for(url, ours, dialect="native", fail_fast=True)).start()


async def test_a_stream_that_comes_goes_and_comes_back(
    twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    name = unique_name("comes")
    url = await servers.url(twin_version)
    peer = await raw_peer(url)
    # In memory: a file store that is created right behind its deletion may hold the old messages (2.10 to 2.15).
    config = {"name": name, "subjects": [f"kept{name}.>"], "storage": "memory"}
    subject = f"in{name}.x"
    async with running(settings_for(url, renaming(name))) as sidecar:
        (supervisor,) = sidecar.supervisors
        assert supervisor.state == "waiting"
        for number in range(1, 4):
            # Without the stream a publisher gets 'no responders' at once, as without the rule.
            with pytest.raises(nats.errors.NoRespondersError):
                await peer.client.request(subject, b"too early", timeout=LIMIT)
            assert not supervisor.ready
            await peer.create_stream(**config)
            await until(lambda: supervisor.ready)
            (run,) = sidecar.runs
            assert (await peer.store(subject.encode(), b"x"))["seq"] == 1
            assert run.status()["paused_because"] is None
            await peer.api(f"STREAM.DELETE.{name}")
            await until(lambda: supervisor.state == "waiting")
            await until(lambda number=number: supervisor.counters()["pauses"] == number)  # type: ignore[misc]
            await until(lambda run=run: run._subscription is None)  # type: ignore[misc]
            assert f"stream '{name}' does not exist" in run.status()["paused_because"]
    assert sidecar.error is None


async def test_streams_that_change_under_the_rule(
    twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    name = unique_name("changes")
    url = await servers.url(twin_version)
    peer = await raw_peer(url)
    config = {"name": name, "subjects": [f"kept{name}.a"]}
    await peer.create_stream(**config)
    async with running(settings_for(url, renaming(name))) as sidecar:
        run = sidecar.runs[0]
        wrong = await peer.store(f"in{name}.b".encode())
        assert f"becomes 'kept{name}.b', which is none of the stream's subjects" in wrong["error"]["description"]
        await peer.api(f"STREAM.UPDATE.{name}", config | {"subjects": [f"kept{name}.*"]})
        await until(lambda: run._target.subjects == (f"kept{name}.*".encode(),))  # type: ignore[attr-defined]
        assert (await peer.store(f"in{name}.b".encode()))["seq"] == 1
        # Another stream that takes the publishers' subjects would answer them, too.
        await peer.create_stream(name=f"other{name}", subjects=[f"in{name}.b"])
        await until(lambda: run.state == "waiting" and run._subscription is None)  # type: ignore[attr-defined]
        assert f"is taken by stream 'other{name}' already" in run.status()["paused_because"]
        assert (await peer.store(f"in{name}.b".encode()))["stream"] == f"other{name}"
        await peer.api(f"STREAM.DELETE.other{name}")
        await until(lambda: run.ready)
        assert (await peer.store(f"in{name}.b".encode()))["seq"] == 2


async def test_the_stream_s_own_transform_acts_behind_ours(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    name = unique_name("twice")
    url = await servers.url("2.15.3")
    peer = await raw_peer(url)
    own = {"src": f"kept{name}.*", "dest": f"again{name}.$1"}
    await peer.create_stream(name=name, subjects=[f"kept{name}.>"], subject_transform=own)
    with capture_logs() as logs:
        async with running(settings_for(url, renaming(name))):
            await peer.store(f"in{name}.x".encode())
    (message,) = await kept(peer, name)
    assert message.subject == f"again{name}.x".encode()
    (warning,) = [entry for entry in logs if entry["event"] == "rule.second_transform"]
    assert warning["native"] == f"kept{name}.* to again{name}.$1"


async def test_a_server_restart(newest_version: str, native_server: Servers, raw_peer: OpenPeer) -> None:
    async with native_server(newest_version) as server:
        await (await raw_peer(server.url)).create_stream(name="S", subjects=["keptS.>"])
        async with running(settings_for(server.url, renaming("S"))) as sidecar:
            run = sidecar.runs[0]
            assert (await (await raw_peer(server.url)).store(b"inS.x"))["seq"] == 1
            await asyncio.to_thread(server.restart, kill=True)
            await until(lambda: run.counters.as_dict()["reconnects"] >= 1 and run.ready)
            assert (await (await raw_peer(server.url)).store(b"inS.x"))["seq"] == 2


async def test_what_cannot_be_written_is_dropped_and_counted(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = unique_name("full")
    url = await servers.url("2.15.3")
    peer = await raw_peer(url)
    await peer.create_stream(name=name, subjects=[f"kept{name}.>"])
    async with running(settings_for(url, renaming(name))) as sidecar:
        monkeypatch.setattr(ingress_run, "_MOST_WAITING", -1)
        peer.publish(f"in{name}.x".encode())
        await until(lambda: sidecar.runs[0].counters.as_dict()["overloaded"] == 1)
        monkeypatch.undo()
        assert (await peer.store(f"in{name}.x".encode()))["seq"] == 1


@pytest.mark.parametrize(
    ("permissions", "expected"),
    [
        ('subscribe: {deny: "inS.>"}', "allow the user to subscribe to 'inS.>' with queue group 'nats-bridge_S'"),
        ('publish: {deny: "keptS.>"}', "allow the user to publish to the subjects of stream 'S'"),
    ],
)
async def test_permissions(
    permissions: str, expected: str, native_server: Servers, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.write_text("p")
    users = f"{{user: u, password: p}}, {{user: limited, password: p, permissions: {{{permissions}}}}}"
    async with native_server("2.15.3", config=f"authorization: {{users: [{users}]}}") as server:
        peer = await raw_peer(server.url.replace("://", "://u:p@"))
        await peer.create_stream(name="S", subjects=["keptS.>"])
        connection = {"servers": [server.url], "user": "limited", "password_file": str(password)}
        sidecar = Sidecar(settings_for(server.url, renaming("S"), connections={"default": connection}, fail_fast=True))
        try:
            await sidecar.start()
            peer.publish(b"inS.x")
            async with asyncio.timeout(LIMIT):
                await sidecar.finished.wait()
            assert expected in str(sidecar.error)
        except RuleRefusedError as error:
            assert expected in str(error)  # noqa: PT017  one of the two comes at the start, the other later
        finally:
            await sidecar.stop()
