"""Clients that try to have the bridge do with its permissions something that they may not do."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from nats_bridge.jobs.failover.plan import make_plan
from nats_bridge.settings import Settings
from nats_conformance.native_servers import NativeServer
from tests.live.commands import command_here
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Servers
from tests.live.sidecars import running
from tests.live.stored_messages import stored_messages
from tests.live.tiers import OLDEST_AND_NEWEST, by_turns
from tests.live.until import until

ACCOUNT = """
accounts {
  A: {
    jetstream: enabled
    users: [
      {user: bridge, password: b}
      {user: client, password: c, permissions: {publish: [%s], subscribe: ["_INBOX.>"]}}
    ]
  }
}
"""
REPUBLISH = {"name": "r", "kind": "republish", "stream": "SRC", "republish": {"src": "in.>", "dest": "out.>"}}
RULES: dict[str, dict[str, Any]] = {
    "at_most_once": REPUBLISH,
    "at_least_once": {**REPUBLISH, "delivery": "at_least_once"},
    "copies": {
        "name": "c",
        "kind": "sources",
        "stream": "DST",
        "sources": [{"name": "SRC", "subject_transforms": [{"src": "in.>", "dest": "out.>"}]}],
    },
    "acknowledged": {
        "name": "c",
        "kind": "sources",
        "stream": "DST",
        "sources": [{"name": "SRC", "subject_transforms": [{"src": "in.>", "dest": "out.>"}], "acknowledge": True}],
    },
}


class Guarded:
    """A server with streams SRC, DST and VICTIM, and two users: the bridge's, and a client with few permissions."""

    def __init__(self, admin: RawPeer, client: RawPeer, url: str, directory: Path) -> None:
        self.admin = admin
        self.client = client
        self.url = url
        self.directory = directory

    @classmethod
    @asynccontextmanager
    async def start(
        cls, server: NativeServer, raw_peer: OpenPeer, directory: Path, **source: Any
    ) -> AsyncIterator[Guarded]:
        async with server:
            admin = await raw_peer(server.url.replace("//", "//bridge:b@"))
            client = await raw_peer(server.url.replace("//", "//client:c@"))
            for name, subjects in (("SRC", "in.>"), ("DST", "out.>"), ("VICTIM", "victim.>")):
                more = source if name == "SRC" else {}
                await admin.create_stream(**{"name": name, "subjects": [subjects], "storage": "memory", **more})
            await admin.store(b"victim.a", b"precious")
            yield cls(admin, client, server.url, directory)

    def settings(self, *rules: dict[str, Any]) -> Settings:
        """A configuration of the sidecar, which has the bridge's user."""
        password = self.directory / "password"
        password.write_text("b")
        connection = {"servers": [self.url], "user": "bridge", "password_file": password}
        document = {"connections": {"default": connection}, "http": {"listen": ""}, "rules": list(rules)}
        return Settings.model_validate(document)

    async def holds(self, stream: str, messages: int) -> None:
        """Wait until a stream has so many messages."""

        async def there() -> bool:
            return int((await self.admin.api(f"STREAM.INFO.{stream}"))["state"]["messages"]) >= messages

        await until(there)

    async def deliver_subject(self) -> bytes:
        """The inbox of the only consumer of SRC, which any client may see that may read its info."""
        (consumer,) = (await self.admin.api("CONSUMER.LIST.SRC"))["consumers"]
        return str(consumer["config"]["deliver_subject"]).encode()


def guarded_server(native_server: Servers, version: str, *allowed: str) -> NativeServer:
    return native_server(version, config=ACCOUNT % ", ".join(f'"{each}"' for each in allowed))


STALLED = b"NATS/1.0 100 Idle Heartbeat\r\nNats-Consumer-Stalled: %b\r\n\r\n"
FORGED = {
    "flow_control": (b"$JS.API.STREAM.DELETE.VICTIM", b"NATS/1.0 100 FlowControl Request\r\n\r\n"),
    "stalled": (b"", STALLED % b"$JS.API.STREAM.DELETE.VICTIM"),
    "stalled_and_more": (b"", STALLED % b"$JS.FC.SRC.x 2\n"),
    "ahead": (b"", b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 99\r\nNats-Last-Stream: 99\r\n\r\n"),
    "delivery": (b"$JS.API.STREAM.DELETE.VICTIM", b""),
    "no_reply": (b"", b""),
}


@by_turns("twin_version, forged, rule", OLDEST_AND_NEWEST, FORGED, RULES)
async def test_what_another_client_publishes_to_the_inbox_of_a_rule_does_nothing(
    twin_version: str, native_server: Servers, raw_peer: OpenPeer, tmp_path: Path, rule: str, forged: str
) -> None:
    server = guarded_server(native_server, twin_version, "in.>", "_INBOX.>")
    retention = "workqueue" if rule == "acknowledged" else "limits"
    async with Guarded.start(server, raw_peer, tmp_path, retention=retention) as guarded:
        commands = await guarded.admin.collect("$JS.API.STREAM.DELETE.>")
        async with running(guarded.settings(RULES[rule])) as sidecar:
            await guarded.admin.store(b"in.x", b"before")
            await guarded.holds("DST", 1)
            reply, block = FORGED[forged]
            guarded.client.publish(await guarded.deliver_subject(), b"" if block else b"x", block, reply)
            await guarded.client.flushed()
            for number in range(5):
                await guarded.admin.store(b"in.x", b"%d" % number)
            await guarded.holds("DST", 6)
            assert sidecar.error is None
            assert sidecar.runs[0].counters.as_dict()["reconnects"] == 0
        await guarded.admin.flushed()
        assert commands.messages == []
        await guarded.holds("VICTIM", 1)


TRACED = b"NATS/1.0 %b\r\nNats-Trace-Dest: $JS.API.STREAM.PURGE.VICTIM\r\nNats-Trace-Only: true\r\n\r\n"


@pytest.mark.parametrize("rule", ["at_most_once", "at_least_once", "copies"])
async def test_a_message_is_traced_with_its_publisher_s_permissions_alone(
    newest_version: str, native_server: Servers, raw_peer: OpenPeer, tmp_path: Path, rule: str
) -> None:
    """Behind a status, servers (2.12 to 2.15) overlook the header, and store it without the status."""
    server = guarded_server(native_server, newest_version, "in.>")
    async with Guarded.start(server, raw_peer, tmp_path) as guarded:
        commands = await guarded.admin.collect("$JS.API.STREAM.PURGE.>")
        async with running(guarded.settings(RULES[rule])):
            guarded.client.publish(b"in.x", b"traced", TRACED % b"503")
            guarded.client.publish(b"in.x", b"behind")
            await guarded.client.flushed()
            await guarded.holds("DST", 2)
        await guarded.admin.flushed()
        assert commands.messages == []
        await guarded.holds("VICTIM", 1)


async def test_a_message_of_a_server_that_knows_no_tracing_is_not_traced(
    native_server: Servers, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    """A server of 2.11 takes the trace for a request to purge everything."""
    source = guarded_server(native_server, "2.10.27", "in.>")
    target = guarded_server(native_server, "2.11.17", "nothing")
    async with Guarded.start(source, raw_peer, tmp_path) as here, Guarded.start(target, raw_peer, tmp_path) as there:
        settings = here.settings({**RULES["copies"], "sources": [{**RULES["copies"]["sources"][0], "from": "far"}]})
        near = settings.connections["default"]
        settings = settings.model_copy(
            update={"connections": {"far": near, "default": near.model_copy(update={"servers": [there.url]})}}
        )
        commands = await there.admin.collect("$JS.API.STREAM.PURGE.>")
        async with running(settings):
            here.client.publish(b"in.x", b"traced", TRACED.replace(b" %b", b""))
            here.client.publish(b"in.x", b"behind")
            await here.client.flushed()
            await there.holds("DST", 2)
        await there.admin.flushed()
        assert commands.messages == []
        await there.holds("VICTIM", 1)


async def test_a_consumer_commanding_the_server_is_not_moved_to_another_account(
    native_server: Servers, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    """Servers before 2.15.3 let a client create it in an account where it may do that."""
    server = guarded_server(native_server, "2.10.27", "in.>")
    async with Guarded.start(server, raw_peer, tmp_path) as guarded:
        config = {"durable_name": "d", "ack_policy": "explicit", "deliver_subject": "$JS.API.STREAM.PURGE.VICTIM"}
        answer = await guarded.admin.api("CONSUMER.DURABLE.CREATE.SRC.d", {"stream_name": "SRC", "config": config})
        assert "error" not in answer, answer
        settings = guarded.settings(RULES["copies"])
        async with running(settings):
            await guarded.admin.store(b"in.x", b"x")
            await guarded.holds("DST", 1)
        plan = await make_plan(settings, "default", "default", "SRC", None)
        (stream,) = plan.streams
        assert "each message would be a command to the server" in str(stream.as_dict())
        assert not [move for move in stream.moves if move.request is not None]


@pytest.mark.parametrize("command", [("watch",), ("init", "--from", "COPY")], ids=lambda command: command[0])
async def test_the_name_of_a_stream_does_not_act_on_a_terminal(
    newest_version: str, native_server: Servers, raw_peer: OpenPeer, command: tuple[str, ...]
) -> None:
    """Servers take control characters in names; U+009B begins commands of terminals, as ESC [ does."""
    async with native_server(newest_version) as server:
        peer = await raw_peer(server.url)
        await peer.create_stream(name="E\x07\x9b31mVIL", subjects=["in.>"], storage="memory")
        await peer.create_stream(name="COPY", storage="memory", sources=[{"name": "E\x07\x9b31mVIL"}])
        ran = await command_here(*command, "--server", server.url)
        shown = ran.out + ran.err
        assert "E 31mVIL" in shown
        assert shown.replace("\n", "").isprintable()


INGRESS = {"src": "pub.*", "dest": "out.{{split(1,-)}}"}
"""A message to `pub.x` is passed on; one to `pub.--` is refused, and its publisher gets an error."""


@pytest.mark.parametrize("request_to", ["PURGE", "MSG.DELETE", "DELETE"])
@pytest.mark.parametrize("subject", [b"pub.x", b"pub.--"])
async def test_no_answer_to_a_publisher_commands_the_server(
    native_server: Servers, raw_peer: OpenPeer, tmp_path: Path, subject: bytes, request_to: str
) -> None:
    """Servers of 2.10 and 2.11 take a PubAck for a request to purge everything below its sequence."""
    server = guarded_server(native_server, "2.11.17", "pub.>")
    rule = {"name": "i", "kind": "subject_transform", "stream": "DST", "subject_transform": INGRESS}
    async with Guarded.start(server, raw_peer, tmp_path) as guarded:
        await guarded.admin.store(b"out.before")
        commands = await guarded.admin.collect(f"$JS.API.STREAM.{request_to}.VICTIM")
        async with running(guarded.settings(rule)) as sidecar:
            reply = b"$JS.API.STREAM.%b.VICTIM" % request_to.encode()
            guarded.client.publish(subject, b"x", b"", reply)
            guarded.client.publish(b"pub.last", b"x")
            await guarded.client.flushed()
            await until(lambda: sidecar.runs[0].counters.as_dict()["received"] == 2)
        await guarded.admin.flushed()
        assert commands.messages == []
        await guarded.holds("VICTIM", 1)


async def test_an_advisory_names_only_messages_of_the_stream_in_its_subject(
    newest_version: str, native_server: Servers, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    """A client that may publish advisories of one stream does not read another one with the bridge's permissions."""
    subject = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.SRC"
    server = guarded_server(native_server, newest_version, f"{subject}.*")
    republish = {"src": f"{subject}.*", "dest": "out.{{wildcard(1)}}"}
    rule = {"name": "a", "kind": "advisories", "attach_message": True, "republish": republish}
    async with Guarded.start(server, raw_peer, tmp_path) as guarded:
        advisory = {"id": "x", "stream": "VICTIM", "consumer": "w", "stream_seq": 1, "deliveries": 3}
        async with running(guarded.settings(rule)):
            guarded.client.publish(f"{subject}.w".encode(), json.dumps(advisory).encode())
            await guarded.client.flushed()
            await guarded.holds("DST", 1)
        (letter,) = await stored_messages(guarded.admin, "DST", 1)
        assert letter.payload != b"precious"
