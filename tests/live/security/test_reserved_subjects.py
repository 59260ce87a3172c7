"""No message can choose a command to the server, on any path and in any form; `docs/security.md` says so."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from nats_bridge.app.preflight import with_server
from nats_bridge.jobs.stream_facts import look_up
from nats_bridge.permissions.granting import as_text, grants_of
from nats_bridge.settings import Settings
from nats_transforms.reserved import is_reserved
from tests.live.commands import command_here
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Servers
from tests.live.sidecars import running, settings_for
from tests.live.until import until

DELETION = b"$JS.API.STREAM.DELETE.VICTIM"
COMMANDS = (
    DELETION,
    b"$JS.hub.API.STREAM.DELETE.VICTIM",
    b"$JS.ACK.VICTIM.c.1.1.1.1.0",
    b"$JS.FC.VICTIM.c.x",
    b"$JS.SNAPSHOT.ACK.VICTIM.x",
    b"$JS.EVENT.ADVISORY.STREAM.DELETED.VICTIM",
    b"_R_.x.y",
    b"_GR_.x.y.z",
    b"$GR.x.y.z",
)
HARMLESS = b"news.a"


@dataclass(slots=True)
class Stage:
    """Two accounts of one server, joined by nothing but the sidecar. B holds the stream VICTIM.

    Attributes:
        url: the server's.
        a: what the author of messages may use.
        b: an observer in the target's account.
        connections: of the sidecar.
    """

    url: str
    a: RawPeer
    b: RawPeer
    connections: dict[str, Any]

    def settings(self, **rule: Any) -> Settings:
        return settings_for("", {"name": "rule", "from": "a", "to": "b", **rule}, connections=self.connections)

    async def victim_lives(self) -> bool:
        return "error" not in await self.b.api("STREAM.INFO.VICTIM")


@pytest.fixture
async def stage(twin_version: str, native_server: Servers, raw_peer: OpenPeer, tmp_path: Path) -> AsyncIterator[Stage]:
    async with opened(twin_version, native_server, raw_peer, tmp_path) as made:
        yield made


@asynccontextmanager
async def opened(
    version: str, native_server: Servers, raw_peer: OpenPeer, folder: Path, permissions: str = ""
) -> AsyncIterator[Stage]:
    users = "".join(
        f"{name.upper()}: {{jetstream: enabled, users: ["
        f"{{user: {name}, password: p}}, {{user: own_{name}, password: p {permissions if name == 'b' else ''}}}]}}\n"
        for name in "ab"
    )
    password = folder / "password"
    password.write_text("p")
    async with native_server(version, config=f"accounts {{\n{users}}}\n") as server:
        host = server.url.removeprefix("nats://")
        a, b = [await raw_peer(f"nats://{name}:p@{host}") for name in "ab"]
        await b.create_stream(name="VICTIM", subjects=["victim"], storage="memory")
        named = {
            name: {"servers": [server.url], "user": f"own_{name}", "password_file": str(password)} for name in "ab"
        }
        yield Stage(server.url, a, b, named)


@pytest.mark.parametrize("delivery", ["at_most_once", "at_least_once"])
async def test_a_republish_rule_publishes_no_command(stage: Stage, delivery: str) -> None:
    await stage.a.create_stream(name="IN", subjects=["in.>"], storage="memory")
    received = await stage.b.collect(">")
    rule = {"stream": "IN", "republish": {"src": "in.*.>", "dest": "{{wildcard(1)}}.>"}, "delivery": delivery}
    with capture_logs() as logs:
        async with running(stage.settings(**rule)) as sidecar:
            for subject in (*COMMANDS, DELETION, HARMLESS):
                await stage.a.store(b"in." + subject)
            await until(lambda: any(message[0] == HARMLESS for message in received.messages))
            counters = sidecar.runs[0].counters.as_dict()
            assert counters["reserved"] == len(COMMANDS) + 1
            assert (counters["republished"], counters["suppressed"], counters["unmatched"]) == (1, 0, 0)
            assert await stage.victim_lives()
    commands = {message[0] for message in received.messages if is_reserved(message[0]) and b"VICTIM" in message[0]}
    assert not commands - {b"$JS.API.STREAM.INFO.VICTIM"}  # asked by this test
    (said,) = [line for line in logs if line["event"] == "rule.reserved_subject"]
    assert said["subject"] == "in.$JS.API.STREAM.DELETE.VICTIM"
    assert said["reason"] == "'$JS.API.STREAM.DELETE.VICTIM' is a command to the server, which no message may choose"


async def test_an_ingress_rule_refuses_commands(stage: Stage) -> None:
    """With four tokens, as a destination that may begin like the source would be a loop."""
    await stage.a.create_stream(name="S", subjects=["news.*.STREAM.S"], storage="memory")
    transform = {"src": "in.*.*", "dest": "{{wildcard(1)}}.{{wildcard(2)}}.STREAM.S"}
    rule = {"name": "rule", "from": "a", "kind": "subject_transform", "stream": "S", "subject_transform": transform}
    commands = {b"in." + b".".join(subject.split(b".")[:2]) for subject in COMMANDS if b".hub." not in subject}
    async with running(settings_for("", rule, connections=stage.connections)) as sidecar:
        for subject in commands:
            answer = json.loads(await stage.a.request_raw(subject) or b"")
            assert answer["error"]["description"].endswith("is a command to the server, which no message may choose")
        assert (await stage.a.store(b"in.news.a"))["seq"] == 1
        assert sidecar.runs[0].counters.as_dict()["refused"] == len(commands) == 8


async def test_an_ingress_rule_has_no_stream_answer_on_a_command(stage: Stage) -> None:
    """Before 2.14.10 and 2.15.3 a PubAck on such a reply deletes the message with its sequence, or purges up to it."""
    await stage.a.create_stream(name="LOST", subjects=["lost"], storage="memory")
    await stage.a.store(b"lost", b"1")
    await stage.a.create_stream(name="S", subjects=["news.*"], storage="memory")
    rule = {
        "kind": "subject_transform",
        "stream": "S",
        "subject_transform": {"src": "in.*", "dest": "news.{{wildcard(1)}}"},
    }
    settings = settings_for("", {"name": "rule", "from": "a", **rule}, connections=stage.connections)
    replies = (b"$JS.API.STREAM.MSG.DELETE.LOST", b"$JS.API.STREAM.PURGE.LOST", b"$JS.ACK.S.c.1.1.1.1.0", b"$JS.FC.S.c")
    with capture_logs() as logs:
        async with running(settings) as sidecar:
            sent = [(b"in.a", reply, b"", b"") for reply in replies]
            sidecar.runs[0]._on_batch(sent)  # as an older server delivers them; newer ones take none from a publisher
            assert (await stage.a.store(b"in.b"))["seq"] == 1
            counters = sidecar.runs[0].counters.as_dict()
    assert (counters["refused"], counters["answered"], counters["passed_on"]) == (len(replies), 0, 1)
    assert (await stage.a.api("STREAM.INFO.LOST"))["state"]["messages"] == 1
    (said,) = [line for line in logs if line["event"] == "rule.message_refused"]
    assert said["reason"] == "'in.a' wants its answer on '$JS.FC.S.c', where no stream answers"


async def test_a_publisher_behind_a_service_import_gets_an_error(
    twin_version: str, native_server: Servers, raw_peer: OpenPeer
) -> None:
    """Servers let no client pass on the reply of a service import: until now the message was lost without an answer."""
    config = """accounts {
      A: {jetstream: enabled, users: [{user: a, password: p}], exports: [{service: "in.>"}]}
      B: {users: [{user: b, password: p}], imports: [{service: {account: A, subject: "in.>"}}]}
    }
    no_auth_user: a
    """
    async with native_server(twin_version, config=config) as server:
        a = await raw_peer(server.url)
        b = await raw_peer(f"nats://b:p@{server.url.removeprefix('nats://')}")
        await a.create_stream(name="S", subjects=["news.*"], storage="memory")
        transform = {"src": "in.*", "dest": "news.{{wildcard(1)}}"}
        rule = {"name": "rule", "kind": "subject_transform", "stream": "S", "subject_transform": transform}
        async with running(settings_for(server.url, rule)) as sidecar:
            answer = json.loads(await b.request_raw(b"in.a", b"x") or b"")
            assert "where no stream answers" in answer["error"]["description"]
            assert sidecar.runs[0].counters.as_dict()["answered"] == 1


async def test_a_copying_rule_rejects_commands(stage: Stage) -> None:
    """The stream would take none of them either; the reason is the command."""
    await stage.a.create_stream(name="IN", subjects=["in.>"], storage="memory")
    await stage.b.create_stream(name="OUT", subjects=["news.>"], storage="memory")
    letters = await stage.b.collect("dead")
    entry = {"name": "IN", "subject_transforms": [{"src": "in.*.>", "dest": "{{wildcard(1)}}.>"}], "from": "a"}
    rule = {"kind": "sources", "stream": "OUT", "on_rejected": {"skip": "dead"}, "sources": [entry]}
    settings = settings_for("", {"name": "rule", "to": "b", **rule}, connections=stage.connections)
    async with running(settings) as sidecar:
        for subject in (*COMMANDS, HARMLESS):
            await stage.a.store(b"in." + subject)
        await until(lambda: sidecar.runs[0].counters.as_dict()["copied"] == 1)
        assert sidecar.runs[0].counters.as_dict()["rejected"] == len(COMMANDS)
        assert await stage.victim_lives()
    assert len(letters.messages) == len(COMMANDS)
    for message in letters.messages:
        assert b"is a command to the server, which no message may choose" in message[2]


async def test_an_advisories_rule_publishes_no_command(stage: Stage) -> None:
    """The names of streams and consumers are the author's, who may choose $JS and API."""
    received = await stage.b.collect("$JS.API.>")
    kind = {"kind": "advisories", "republish": {"src": "$JS.EVENT.ADVISORY.CONSUMER.*.*.*", "dest": "$2.$3.$1"}}
    with capture_logs() as logs:
        async with running(stage.settings(**kind)) as sidecar:
            stage.a.publish(b"$JS.EVENT.ADVISORY.CONSUMER.DELETED.$JS.API", b"{}")
            stage.a.publish(b"$JS.EVENT.ADVISORY.CONSUMER.DELETED.S.C", b"{}")
            await until(lambda: sidecar.runs[0].counters.as_dict()["received"] == 2)
            await until(lambda: sidecar.runs[0].counters.as_dict()["republished"] == 1)
            assert sidecar.runs[0].counters.as_dict()["reserved"] == 1
    assert not [message for message in received.messages if message[0] == b"$JS.API.DELETED"]
    assert [line["subject"] for line in logs if line["event"] == "rule.reserved_subject"] == [
        "$JS.EVENT.ADVISORY.CONSUMER.DELETED.$JS.API"
    ]


async def test_redrive_puts_no_letter_back_on_a_command(stage: Stage, tmp_path: Path) -> None:
    await stage.b.create_stream(name="DLQ", subjects=["dlq"], storage="memory")
    for subject in COMMANDS:
        block = b"NATS/1.0\r\nNats-Subject: %b\r\nNats-Stream: VICTIM\r\nNats-Sequence: 1\r\n\r\n" % subject
        block = block[:-2] + b"Nats-Bridge-Advisory: io.nats.jetstream.advisory.v1.max_deliver\r\n\r\n"
        await stage.b.store(b"dlq", b"letter", block)
    rule = {"name": "any", "kind": "watch", "connection": "b"}
    file = tmp_path / "bridge.json"
    file.write_text(json.dumps({"connections": stage.connections, "rules": [rule]}))
    ran = await command_here("redrive", "DLQ", "-c", str(file), "--server", "b", "--apply", "--json")
    assert ran.code == 1
    outcomes = [each["outcome"] for each in json.loads(ran.out)["selected"]]
    assert len(outcomes) == len(COMMANDS)
    for subject, outcome in zip(COMMANDS, outcomes, strict=True):
        assert outcome == f"its subject '{subject.decode()}' is a command to the server, which no message may choose"
    assert await stage.victim_lives()


async def test_the_printed_permissions_deny_commands_and_are_enough(
    twin_version: str, native_server: Servers, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    rule = {
        "stream": "IN",
        "start": "first",
        "republish": {"src": "in.*.>", "dest": "{{wildcard(1)}}.>"},
        "delivery": "at_least_once",
    }
    async with opened(twin_version, native_server, raw_peer, tmp_path) as open_stage:
        await open_stage.a.create_stream(name="IN", subjects=["in.>"])
        known = await with_server(open_stage.settings(**rule), None, look_up)
        granted = {each.connection: each for each in grants_of(open_stage.settings(**rule), known)}
    assert "$JS.API.STREAM.DELETE.*" in granted["b"].denied
    assert granted["a"].denied == ()
    limited = as_text([granted["b"]])
    async with opened(twin_version, native_server, raw_peer, tmp_path, limited) as stage:
        await stage.a.create_stream(name="IN", subjects=["in.>"])
        received = await stage.b.collect("news.>")
        async with running(stage.settings(**rule)) as sidecar:
            for subject in (*COMMANDS, HARMLESS):
                await stage.a.store(b"in." + subject)
            await received.count(1)
            assert sidecar.runs[0].counters.as_dict()["reserved"] == len(COMMANDS)
        # The server holds the sidecar's user to it as well.
        own = await raw_peer(f"nats://own_b:p@{stage.url.removeprefix('nats://')}")
        refusals: list[str] = []

        async def refused(error: Exception) -> None:
            refusals.append(str(error))

        own.client._error_cb = refused
        own.publish(DELETION)
        await until(lambda: bool(refusals))
        assert "permissions violation for publish" in refusals[0].lower()
        assert await stage.victim_lives()
