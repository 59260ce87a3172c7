"""What a copying rule does when it cannot continue as usual: refused messages, new sources, impossible rules."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from structlog.testing import capture_logs

from nats_bridge.app import readiness_watch
from nats_bridge.app.sidecar import Sidecar
from nats_bridge.client.tasks import end_tasks
from nats_bridge.errors import BridgeError, RuleRefusedError
from nats_transforms import header_block
from tests.live.copies import Copies
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, Servers, SharedServers
from tests.live.sidecars import failure_of, running, settings_for
from tests.live.until import until


async def test_a_message_that_is_refused_stops_the_rule_at_that_message(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(newest_version)
    here = await Copies.make(await raw_peer(url), unique_name("stop"), target={"max_msg_size": 400})
    for size in (10, 20, 500, 30):
        await here.peer.store(f"{here.name}.x".encode(), b"x" * size)
    for _ in range(2):  # a restart does not get past it either
        error = await failure_of(settings_for(url, here.rule()))
        assert isinstance(error, RuleRefusedError)
        assert f"refuses message 3 of stream '{here.name}'" in str(error)
        assert "more than the 400 that the target takes" in str(error)
        assert await here.source_sequences() == [1, 2]
    await here.peer.api(
        f"STREAM.UPDATE.{here.target}", {"name": here.target, "subjects": [f"{here.target}.>"], "max_msg_size": 1000}
    )
    async with running(settings_for(url, here.rule())):
        await here.holds(4)
    await here.are_exact()


@pytest.mark.parametrize("captured", [True, False])
async def test_a_message_that_is_refused_goes_to_the_dead_letters(
    captured: bool, newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(newest_version)
    here = await Copies.make(await raw_peer(url), unique_name("skip"), target={"max_msg_size": 400})
    dead = f"dead{here.name}"
    if captured:
        await here.peer.create_stream(name=dead, subjects=[dead])
    letters = await here.peer.collect(dead)
    own = b"NATS/1.0\r\nNats-Msg-Id: mine\r\nX: y\r\n\r\n"
    for size in (10, 500, 30):
        await here.peer.store(f"{here.name}.x".encode(), b"x" * size, own if size == 500 else b"")
    async with running(settings_for(url, here.rule(on_rejected={"skip": dead}))) as bridge:
        await here.holds(2)
        ((_, _, block, payload), *more) = await letters.count(1)
        assert not more
        assert payload == b"x" * 500
        assert header_block.read(block, b"Nats-Sequence") == b"2"
        assert header_block.read(block, b"Nats-Stream") == here.name.encode()
        assert header_block.read(block, b"X") == b"y"
        assert header_block.read(block, b"Nats-Bridge-Msg-Id") == b"mine"
        reason = header_block.read(block, b"Nats-Bridge-Rejected")
        assert reason is not None
        assert b"more than the 400 that the target takes" in reason
        await until(lambda: bridge.runs[0].counters.as_dict()["rejected"] == 1)
    assert await here.source_sequences() == [1, 3]


async def test_dead_letters_that_no_stream_takes_stop_the_rule(
    twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(twin_version)
    here = await Copies.make(await raw_peer(url), unique_name("untaken"), target={"max_msg_size": 400})
    await here.peer.store(f"{here.name}.x".encode(), b"x" * 500)
    error = await failure_of(settings_for(url, here.rule(on_rejected={"skip": f"dead{here.name}"})))
    assert "does not take it: no stream answers (503)" in str(error)


async def test_what_only_the_server_can_refuse_is_asked_alone(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """A wrong TTL where TTLs are allowed: nothing behind it is stored before the server has spoken."""
    url = await servers.url("2.15.3")
    here = await Copies.make(await raw_peer(url), unique_name("ttl"), target={"allow_msg_ttl": True})
    for ttl in (b"5m", b"soon", b"6m"):
        await here.peer.store(f"{here.name}.x".encode(), ttl)  # 2.15 itself takes no wrong TTL
    await here.peer.api(f"STREAM.DELETE.{here.name}")
    await here.peer.create_stream(name=here.name, subjects=[f"{here.name}.>"])
    old = await raw_peer(await servers.url("2.10.27"))
    source = await Copies.make(old, here.name)
    for ttl in (b"5m", b"soon", b"", b"6m"):
        block = b"NATS/1.0\r\nNats-TTL: %b\r\n\r\n" % ttl if ttl else b""
        await old.store(f"{here.name}.x".encode(), ttl, block)
    connections = {"default": {"servers": [url]}, "old": {"servers": [await servers.url("2.10.27")]}}
    rule = here.rule(entry={"from": "old"})
    error = await failure_of(settings_for(url, rule, connections=connections))
    assert "invalid per-message TTL (10165)" in str(error)
    assert [message.payload for message in await here.stored()] == [b"5m"]
    del source


@pytest.mark.usefixtures("quick_heartbeats")
@pytest.mark.parametrize("running_during", [True, False])
async def test_a_source_that_was_recreated_is_noticed(
    running_during: bool, newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(newest_version)
    here = await Copies.make(await raw_peer(url), unique_name("new"))
    for number in range(5):
        await here.peer.store(f"{here.name}.x".encode(), b"old%d" % number)

    async def recreate() -> None:
        await here.peer.api(f"STREAM.DELETE.{here.name}")
        await here.peer.create_stream(name=here.name, subjects=[f"{here.name}.>"], storage="memory")
        for number in range(7):
            await here.peer.store(f"{here.name}.x".encode(), b"new%d" % number)

    async with running(settings_for(url, here.rule())) as bridge:
        await here.holds(5)
        if running_during:
            await recreate()
            await until(lambda: bridge.error is not None)
            assert f"stream '{here.name}' is a new one" in str(bridge.error)
    if not running_during:
        await recreate()
    with pytest.raises(RuleRefusedError, match="set on_recreated: restart"):
        async with running(settings_for(url, here.rule())):
            pass
    assert len(await here.stored()) == 5
    for _ in range(2):  # after that, the new one is the known one
        async with running(settings_for(url, here.rule(on_recreated="restart"))):
            await here.holds(12)
        assert [m.payload for m in await here.stored()][5:] == [b"new%d" % number for number in range(7)]
    async with running(settings_for(url, here.rule())):
        await here.peer.store(f"{here.name}.x".encode(), b"newer")
        await here.holds(13)


IMPOSSIBLE: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "no subjects": (
        {"subjects": None, "sources": [{"name": "other"}]},
        {},
        "has no subjects, so nothing can be published to it",
    ),
    "another subject": ({"subjects": ["elsewhere.{name}.>"]}, {}, "has no subject for"),
    "a start beyond the end": ({}, {"entry": {"opt_start_seq": 7}}, "opt_start_seq 7 is beyond its end"),
    "a native mirror": ({"subjects": None, "mirror": {"name": "other"}}, {}, "is a native mirror"),
    "no acknowledgements": ({"no_ack": True}, {}, "has no_ack"),
    "native sources of the same": ({"sources": [{"name": "{name}"}]}, {}, "sources it natively already"),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
async def test_impossible_rules_are_refused_before_anything_is_copied(
    case: str, newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    target, more, reason = IMPOSSIBLE[case]
    url = await servers.url(newest_version)
    name = unique_name("no")
    config = json.loads(json.dumps(target).replace("{name}", name))
    here = await Copies.make(await raw_peer(url), name, target=config)
    for _ in range(3):
        await here.peer.store(f"{here.name}.x".encode(), b"x")
    before = (await here.state())["messages"] if case != "native sources of the same" else None
    with pytest.raises(BridgeError) as caught:
        async with running(settings_for(url, here.rule(**more))):
            pass
    assert reason in str(caught.value)
    assert str(caught.value).startswith("rule 'rule': ")
    if before is not None:
        assert (await here.state())["messages"] == before


async def test_a_source_with_consumers_retention_is_refused(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url("2.15.3")
    here = await Copies.make(await raw_peer(url), unique_name("queue"), source={"retention": "workqueue"})
    with pytest.raises(RuleRefusedError, match="set acknowledge: true in the source"):
        async with running(settings_for(url, here.rule())):
            pass


async def test_starts(twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer) -> None:
    """opt_start_seq and opt_start_time count while the target holds no copy, and never again."""
    url = await servers.url(twin_version)
    here = await Copies.make(await raw_peer(url), unique_name("starts"))
    for number in range(1, 7):
        await here.peer.store(f"{here.name}.x".encode(), b"%d" % number)
    async with running(settings_for(url, here.rule(entry={"opt_start_seq": 4}))):
        await here.holds(3)
    assert await here.source_sequences() == [4, 5, 6]
    async with running(settings_for(url, here.rule(entry={"opt_start_seq": 2}))):
        await here.peer.store(f"{here.name}.x".encode(), b"7")
        await here.holds(4)
    assert await here.source_sequences() == [4, 5, 6, 7]
    message = await here.peer.api(f"STREAM.MSG.GET.{here.name}", {"seq": 5})
    other = Copies(here.peer, here.peer, here.name)
    other.target = f"U{here.name}"
    await here.peer.create_stream(name=other.target, subjects=[f"{other.target}.>"])
    entry = {"opt_start_time": message["message"]["time"]}
    async with running(settings_for(url, other.rule(entry=entry))):
        await other.holds(3)
    assert await other.source_sequences() == [5, 6, 7]


async def test_native_sources_of_the_same_end_a_running_rule(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """A handoff while the sidecar runs, by mistake: it must not continue in parallel to the server."""
    url = await servers.url(newest_version)
    here = await Copies.make(await raw_peer(url), unique_name("taken"))
    config = {"name": here.target, "subjects": [f"{here.target}.>"]}
    async with running(settings_for(url, here.rule())) as bridge:
        await here.peer.api(f"STREAM.UPDATE.{here.target}", config | {"sources": [{"name": here.name}]})
        await until(lambda: bridge.error is not None)
        assert "sources it natively already" in str(bridge.error)


async def test_other_changes_of_the_target_are_taken_note_of(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(newest_version)
    here = await Copies.make(await raw_peer(url), unique_name("change"), target={"max_msg_size": 400})
    config = {"name": here.target, "subjects": [f"{here.target}.>"], "max_msg_size": 2000}
    async with running(settings_for(url, here.rule())) as bridge:
        await here.peer.api(f"STREAM.UPDATE.{here.target}", config)
        await until(lambda: bridge.runs[0].counters.as_dict()["rounds"] >= 2)
        await here.peer.store(f"{here.name}.x".encode(), b"x" * 1000)
        await here.holds(1)


async def test_the_rule_waits_for_a_mapping_of_the_target_subjects_to_end(
    newest_version: str, native_server: Servers, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness_watch, "_PATIENCE", 0.1)
    monkeypatch.setattr(readiness_watch, "EVERY_SECOND", 0.05)
    account = """accounts {A: {jetstream: enabled, users: [{user: a, password: a}], mappings: {"TS.>": "away.>"}}}
no_auth_user: a"""
    async with native_server(newest_version, config=account) as server:
        here = await Copies.make(await raw_peer(server.url), "S")
        sidecar = Sidecar(settings_for(server.url, here.rule()))
        with capture_logs() as logs:
            starting = asyncio.create_task(sidecar.start())
            try:
                await until(lambda: bool(sidecar.supervisors) and "mapping" in str(sidecar.supervisors[0].waiting_for))
                await until(lambda: any(entry["event"] == "rule.not_ready" for entry in logs))
            finally:
                await end_tasks(starting)
                await sidecar.stop()
