"""Native copying through the sidecar: what a server's own mirror or source stores is what it would store natively."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from nats_bridge.bridge.app.preflight import check_server
from nats_bridge.bridge.permissions import ConnectionGrants, grants_of
from nats_bridge.bridge.settings import Settings
from nats_bridge.native_servers import NativeServer
from nats_bridge.native_servers.native_server import HOST, WEB_LISTENER
from nats_bridge.transforms.header_block import remove
from nats_bridge.transforms.republish import StoredMessage
from nats_bridge.transforms.source_record import HEADER
from tests.live.native_copies import TRANSFORMS, Pair, external, pair, publish_oddities
from tests.live.raw_messages import OpenPeer
from tests.live.sidecars import failure_of, running
from tests.live.until import until

Servers = Callable[..., NativeServer]


async def test_a_mirror_is_byte_for_byte_what_a_native_one_with_transforms_is(
    native_server: Servers, raw_peer: OpenPeer, twin_version: str
) -> None:
    async with pair(native_server, raw_peer, twin_version) as two:
        await two.at_source.create_stream(name="ORDERS", subjects=["orders.*", "more.>"])
        mirror = {"name": "ORDERS", "subject_transforms": TRANSFORMS}
        await publish_oddities(two.at_source, 100)  # the deletions, too, before anything is copied
        await two.at_source.create_stream(name="NATIVE", mirror=mirror)
        await two.at_target.create_stream(name="COPY", mirror={"name": "ORDERS", "external": external()})
        async with two.bridged():
            await two.stored("COPY", 100)
            for number in range(3):
                await two.at_source.store(b"orders.late", b"late %d" % number)
            copies = await two.stored("COPY", 103)

        assert copies == await two.native("NATIVE", 103)


async def test_through_a_websocket_too(native_server: Servers, raw_peer: OpenPeer, twin_version: str) -> None:
    web = f"websocket {{{WEB_LISTENER}, no_tls: true}}"
    async with pair(native_server, raw_peer, twin_version, config=web) as two:
        await two.at_source.create_stream(name="ORDERS", subjects=["orders.*", "more.>"])
        await publish_oddities(two.at_source, 50)
        for size in (100, 125, 126, 65_000, 70_000, 900_000):
            await two.at_source.store(b"orders.large", bytes(range(256)) * (size // 256) + b"x" * (size % 256))
        mirror = {"name": "ORDERS", "subject_transforms": TRANSFORMS}
        await two.at_source.create_stream(name="NATIVE", mirror=mirror)
        await two.at_target.create_stream(name="COPY", mirror={"name": "ORDERS", "external": external()})
        async with two.bridged(servers=[f"ws://{HOST}:{two.target.web_port}"]):
            copies = await two.stored("COPY", 56)
        assert copies == await two.native("NATIVE", 56)


async def test_sources_store_what_native_ones_do_but_for_the_records_names(
    native_server: Servers, raw_peer: OpenPeer, twin_version: str
) -> None:
    async with pair(native_server, raw_peer, twin_version) as two:
        await two.at_source.create_stream(name="ORDERS", subjects=["orders.*", "more.>"])
        await publish_oddities(two.at_source, 60)
        native = {"name": "ORDERS", "subject_transforms": TRANSFORMS}
        await two.at_source.create_stream(name="NATIVE", sources=[native])
        await two.at_target.create_stream(name="COPY", sources=[{"name": "ORDERS", "external": external()}])
        held = (await two.at_source.api("STREAM.INFO.ORDERS"))["state"]["messages"]
        async with two.bridged():
            copies = await two.stored("COPY", held)

        assert list(map(_bare, copies)) == list(map(_bare, await two.native("NATIVE", held)))


# Since 2.14.10 and 2.15.3 leaf nodes check permissions on ACK subjects, too, and this kind is to be removed.
@pytest.mark.parametrize("twin_version", ["2.10.27"])
async def test_the_printed_permissions_are_enough(
    native_server: Servers, raw_peer: OpenPeer, twin_version: str, tmp_path: Path
) -> None:
    rule = {"kind": "native_copy", "name": "r", "stream": "ORDERS", "prefix": "bridge.orders", "leaf": "leaf"}
    connections = {name: {"servers": ["nats://h:1"]} for name in ("default", "leaf")}
    grants = grants_of(Settings.model_validate({"connections": connections, "rules": [rule]}))
    password = tmp_path / "password"
    password.write_text("pw", "utf-8")
    allowed = {each.connection: _users_of(each) for each in grants}
    configs = {"config": allowed["leaf"], "source_config": allowed["default"]}
    async with pair(native_server, raw_peer, twin_version, **configs) as two:
        await two.at_source.create_stream(name="ORDERS", subjects=["orders.*"])
        await two.at_target.create_stream(name="COPY", mirror={"name": "ORDERS", "external": external()})
        document = two.document()
        for connection in document["connections"].values():
            connection |= {"user": "one", "password_file": str(password)}
        with capture_logs() as log:
            async with running(Settings.model_validate(document)) as sidecar:
                for number in range(400):  # large enough for flow control
                    two.at_source.publish(b"orders.%d" % number, b"x" * 8000)
                copies = await two.stored("COPY", 400)
                assert [each.subject for each in copies] == [b"west.%d.new" % n for n in range(400)]
                assert not [entry for entry in log if entry["event"] == "connection.refused"]
                # The leaf may not answer other clients, and the server's violation for that does not end the rule.
                two.at_target.publish(b"bridge.orders.API.STREAM.INFO.ORDERS", b"", b"", b"_INBOX.of.another")
                await two.at_source.store(b"orders.more")
                await two.reaches("COPY", 401)
                assert sidecar.error is None


async def test_messages_that_no_filter_selects_are_left_out_here_where_the_server_cannot(
    native_server: Servers, raw_peer: OpenPeer, twin_version: str
) -> None:
    async with pair(native_server, raw_peer, twin_version, source_version="2.9.10") as two:
        await two.at_source.create_stream(name="ORDERS", subjects=["orders.*", "more.>", "none.*"])
        await two.at_target.create_stream(name="COPY", mirror={"name": "ORDERS", "external": external()})
        async with two.bridged({"exclude": ["orders.secret"]}) as sidecar:
            for number in range(300):
                await two.at_source.store((b"orders.a", b"none.b", b"more.c", b"orders.secret")[number % 4])
            await two.at_source.store(b"orders.last")
            copies = await two.stored("COPY", 301)
            assert [each.sequence for each in copies] == [*(n for n in range(1, 301) if n % 4 in (1, 3)), 301]
            (run,) = sidecar.runs
            assert run.counters.as_dict()["unselected"] == 150
            assert run.counters.as_dict()["consumers"] == 1  # renumbered: the server saw no gap


@pytest.mark.parametrize("version", ["2.9.10", pytest.param("2.10.27", marks=pytest.mark.exhaustive)])
async def test_a_header_that_stalls_native_copying_is_taken_out(
    native_server: Servers, raw_peer: OpenPeer, version: str
) -> None:
    async with pair(native_server, raw_peer, version) as two:
        await two.at_source.create_stream(name="ORDERS", subjects=["orders.*"])
        await two.at_source.store(b"orders.1", b"", b"NATS/1.0\r\nNats-Expected-Stream: ORDERS\r\n\r\n")
        await two.at_source.store(b"orders.2", b"", b"NATS/1.0\r\nA: b\r\nNats-Expected-Stream: ORDERS\r\n\r\n")
        await two.at_target.create_stream(name="COPY", mirror={"name": "ORDERS", "external": external()})
        async with two.bridged({"remove_headers": ["Nats-Expected-Stream"]}) as sidecar:
            copies = await two.stored("COPY", 2)
            assert [each.header_block for each in copies] == [b"", b"NATS/1.0\r\nA: b\r\n\r\n"]
            assert sidecar.runs[0].counters.as_dict()["headers_removed"] == 2


async def test_an_at_sign_in_a_stored_subject(native_server: Servers, raw_peer: OpenPeer, twin_version: str) -> None:
    async with pair(native_server, raw_peer, twin_version) as two:
        await two.at_source.create_stream(name="ORDERS", subjects=["orders.*"])
        await two.at_source.store(b"orders.a@b")
        await two.at_target.create_stream(name="COPY", mirror={"name": "ORDERS", "external": external()})
        written = {"subject_transforms": [{"src": "orders.*", "dest": "at@.{{wildcard(1)}}"}]}
        if twin_version.startswith(("2.9.", "2.10.")):
            assert "'at@.{{wildcard(1)}}' holds an '@'" in str(await _failure(two, written))
            assert "'west.a@b.new' holds an '@'" in str(await _failure(two, {}))
        else:
            async with two.bridged(written):
                assert [each.subject for each in await two.stored("COPY", 1)] == [b"at@.a@b"]


async def test_what_the_source_is_asked_for_by_others_is_refused(
    native_server: Servers, raw_peer: OpenPeer, newest_version: str
) -> None:
    async with pair(native_server, raw_peer, newest_version) as two:
        await two.at_source.create_stream(name="ORDERS", subjects=["orders.*"])
        async with two.bridged() as sidecar:
            await until(lambda: sidecar.runs[0].ready)
            for request, code in (
                ("STREAM.DELETE.ORDERS", 400),
                ("CONSUMER.CREATE.OTHER", 404),
                ("STREAM.INFO.OTHER", 404),
            ):
                answer = await two.at_target.request_raw(f"bridge.orders.API.{request}".encode())
                assert answer is not None
                assert json.loads(answer)["error"]["code"] == code
            info = await two.at_target.request_raw(b"bridge.orders.API.STREAM.INFO.ORDERS")
            assert info is not None
            assert json.loads(info)["config"]["name"] == "ORDERS"


async def test_check_prints_the_stream_to_create_and_asks_the_listener(
    native_server: Servers, raw_peer: OpenPeer, newest_version: str
) -> None:
    async with pair(native_server, raw_peer, newest_version) as two:
        await two.at_source.create_stream(name="ORDERS", subjects=["orders.*"])
        settings = Settings.model_validate(two.document())
        findings = [finding.text for finding in await check_server(settings, None) if finding.rule]
        mirror = {"name": "ORDERS", "mirror": {"name": "ORDERS", "external": external()}}
        assert findings[1] == f"the stream to create there: {json.dumps(mirror)}"
        two.target.stop()
        (finding,) = [finding for finding in await check_server(settings, None) if finding.rule]
        assert (finding.ok, finding.code) == (False, "server_unreachable")


async def test_of_two_replicas_one_serves(native_server: Servers, raw_peer: OpenPeer, newest_version: str) -> None:
    async with pair(native_server, raw_peer, newest_version) as two:
        await two.at_source.create_stream(name="ORDERS", subjects=["orders.*"])
        await two.at_target.create_stream(name="COPY", sources=[{"name": "ORDERS", "external": external()}])
        document = {**two.document(), "leadership": {"ttl": 2}}
        settings = Settings.model_validate(document)
        async with AsyncExitStack() as first, running(settings) as second:
            leader = await first.enter_async_context(running(settings))
            await until(lambda: any(run.ready for each in (leader, second) for run in each.runs))
            for number in range(20):
                await two.at_source.store(b"orders.%d" % number)
            await two.stored("COPY", 20)
            served = [sum(run.counters.as_dict()["delivered"] for run in each.runs) for each in (leader, second)]
            assert sorted(served) == [0, 20]
            await first.aclose()
            await until(lambda: any(run.ready for run in second.runs))
            await two.at_source.store(b"orders.more")
            assert [each.sequence for each in await two.stored("COPY", 21)] == list(range(1, 22))


def _users_of(granted: ConnectionGrants) -> str:
    """A server's configuration with a user `one` who is allowed exactly that; without a user everything is allowed."""
    allowed = {way: {"allow": granted.subjects(way)} for way in ("publish", "subscribe")}
    users = [{"user": "all", "password": "pw"}, {"user": "one", "password": "pw", "permissions": allowed}]
    return f"authorization: {json.dumps({'users': users})}\nno_auth_user: all"


async def _failure(two: Pair, rule: dict[str, Any]) -> BaseException:
    return await failure_of(Settings.model_validate(two.document(rule)))


def _bare(message: StoredMessage) -> tuple[bytes, bytes, bytes, int]:
    return message.subject, remove(message.header_block, HEADER), message.payload, message.sequence
