"""Work-queue and interest streams: watched without taking, removing or keeping a message; refused where impossible."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from structlog.testing import capture_logs

from nats_bridge.app.sidecar import Sidecar
from nats_bridge.errors import RuleRefusedError
from tests.live.cut_wire import cut_wire
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecar_process import Scene, differing
from tests.live.sidecars import running, settings_for
from tests.live.until import LIMIT, until

KINDS = ["workqueue", "interest"]
WATCHING = {"durable": False}
# What a work queue needs consent for happens when a connection breaks, and in no other test than its own.
CONSENT: dict[str, dict[str, Any]] = {"workqueue": WATCHING | {"allow_side_effects": True}, "interest": WATCHING}


async def add_worker(here: Scene, name: str, subject: str = "") -> str:
    """A pull consumer with a worker."""
    config: dict[str, Any] = {"durable_name": name, "ack_policy": "explicit"}
    if subject:
        config["filter_subject"] = subject
    request = {"stream_name": here.name, "config": config}
    answer = await here.peer.api(f"CONSUMER.DURABLE.CREATE.{here.name}.{name}", request)
    assert "error" not in answer, answer
    return name


async def work_off(here: Scene, worker: str, count: int) -> list[bytes]:
    """Take and acknowledge so many messages, and wait until the server has handled it; their payloads."""
    seen = await here.peer.collect(f"work{here.name}{worker}")
    body = json.dumps({"batch": count}).encode()
    here.peer.publish(
        f"$JS.API.CONSUMER.MSG.NEXT.{here.name}.{worker}".encode(), body, b"", f"work{here.name}{worker}".encode()
    )
    messages = await seen.count(count)
    await asyncio.gather(*(here.peer.request_raw(reply, b"+ACK") for _, reply, _, _ in messages))
    return [payload for _, _, _, payload in messages]


async def stored(here: Scene) -> int:
    return int((await here.peer.api(f"STREAM.INFO.{here.name}"))["state"]["messages"])


@pytest.mark.parametrize("kind", KINDS)
async def test_watching_changes_nothing(
    kind: str, twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(twin_version)
    here = await Scene.make(await raw_peer(url), unique_name(kind), retention=kind)
    worker = await add_worker(here, "worker")
    async with running(settings_for(url, here.rule(**CONSENT[kind]), dialect="native")) as bridge:
        for number in range(20):
            await here.peer.store(f"{here.name}.s{number % 3}".encode(), b"%d" % number)
        end = await here.end()
        await here.bridged.until_sequence(end)
        # Nothing was taken: everything is there, and the worker gets each message once.
        assert await stored(here) == 21
        assert await work_off(here, worker, 21) == [b"%d" % number for number in range(20)] + [b""]
        await until(lambda: _holds(here, 0))
        assert bridge.error is None
    assert here.bridged.sequences == list(range(1, end + 1))
    assert differing(here.bridged, here.native) == []
    assert [consumer["name"] for consumer in await here.consumers()] == ["worker"]


@pytest.mark.parametrize("kind", KINDS)
async def test_messages_that_only_we_would_see_are_left_alone(
    kind: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name(kind), retention=kind)
    await add_worker(here, "eu", f"{here.name}.eu.*")
    wide = here.rule(**WATCHING)
    narrow = here.rule(
        **CONSENT[kind], republish={"src": f"{here.name}.eu.*", "dest": f"bridge{here.name}.eu.{{{{wildcard(1)}}}}"}
    )
    with pytest.raises(RuleRefusedError, match=f"no other consumer takes '{here.name}.>'"):
        await Sidecar(settings_for(url, wide, fail_fast=True)).start()
    async with running(settings_for(url, narrow)):
        here.peer.publish(f"{here.name}.us.1".encode(), b"not ours")
        await here.peer.store(f"{here.name}.eu.1".encode(), b"ours")
        await here.bridged.count(1)
    assert [payload for _, _, _, payload in here.bridged.messages] == [b"ours"]
    # A work queue keeps what no consumer takes, an interest stream never stored it.
    assert await stored(here) == (2 if kind == "workqueue" else 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            {"durable": True},
            "a durable consumer would keep messages in the queue while the sidecar is down; set durable: false",
        ),
        ({"durable": False, "delivery": "at_least_once"}, "delivery at_least_once needs a consumer"),
        ({"durable": False}, "no other consumer takes"),
    ],
)
async def test_refused_with_the_reason(
    kind: str, options: dict[str, Any], reason: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name(kind), retention=kind)
    if "no other" not in reason:
        await add_worker(here, "worker")
    before = [consumer["name"] for consumer in await here.consumers()]
    sidecar = Sidecar(settings_for(url, here.rule(**options), fail_fast=True))
    with pytest.raises(RuleRefusedError) as refused:
        await sidecar.start()
    assert reason in str(refused.value)
    without_position = kind == "workqueue" and options["durable"]  # which the server refuses in any case
    assert ("allow_side_effects: true" in str(refused.value)) is not without_position
    assert [consumer["name"] for consumer in await here.consumers()] == before


@pytest.mark.parametrize("kind", KINDS)
async def test_a_rule_that_allows_side_effects_runs_alone(
    kind: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name(kind), retention=kind)
    async with running(settings_for(url, here.rule(durable=False, allow_side_effects=True))) as bridge:
        for number in range(5):
            await here.peer.store(f"{here.name}.s".encode(), b"%d" % number)
        await here.bridged.count(5)
        await until(lambda: _holds(here, 0))
        counters = bridge.runs[0].counters
    assert here.bridged.sequences == [1, 2, 3, 4, 5]
    # Whether the predecessor still existed when the server read it, is unknown outside.
    assert counters.last_sequence_uncertain == 4


async def test_a_work_queue_needs_consent(servers: SharedServers, unique_name: Name, raw_peer: OpenPeer) -> None:
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("consent"), retention="workqueue")
    await add_worker(here, "worker")
    with pytest.raises(RuleRefusedError, match="while the sidecar's connection breaks would stay in the queue"):
        await Sidecar(settings_for(url, here.rule(**WATCHING), fail_fast=True)).start()


async def test_an_interest_stream_keeps_nothing_when_the_connection_breaks(
    twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """A work queue would keep it indefinitely, and therefore needs consent.

    The worker acknowledges while the sidecar is away: on a 2.10.27 an acknowledgement that meets the deletion of a
    consumer can leave its message in the stream, whichever client deletes it.
    """
    url = await servers.url(twin_version)
    here = await Scene.make(await raw_peer(url), unique_name("breaks"), retention="interest")
    worker = await add_worker(here, "worker")
    async with cut_wire(url) as wire:
        connections = {"default": {"servers": [wire.url]}}
        async with running(settings_for(url, here.rule(**WATCHING), connections=connections)) as bridge:
            await here.peer.store(f"{here.name}.s".encode())
            await here.bridged.count(1)
            wire.hold_back()
            wire.cut()
            for _ in range(5):
                await here.peer.store(f"{here.name}.s".encode())
            await work_off(here, worker, 6)
            wire.let_through()
            await until(lambda: _holds(here, 0))
            await until(lambda: bridge.runs[0].ready)
            await here.peer.store(f"{here.name}.s".encode())
            await here.bridged.until_sequence(7)


async def _holds(here: Scene, messages: int) -> bool:
    return await stored(here) == messages


async def test_what_is_accepted_is_said_whenever_it_begins(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("said"), retention="interest")
    with capture_logs() as logs:
        async with running(settings_for(url, here.rule(durable=False, allow_side_effects=True))) as bridge:
            for name in ("one", "two"):
                await add_worker(here, name)
            # With one left nothing is changed any more; without, it is again.
            await here.peer.api(f"CONSUMER.DELETE.{here.name}.two")
            await until(lambda: bridge.runs[0]._side_effects is None)
            await here.peer.api(f"CONSUMER.DELETE.{here.name}.one")
            await until(lambda: bridge.runs[0]._side_effects is not None)
    said = [entry["meaning"] for entry in logs if entry["event"] == "rule.side_effects"]
    assert len(said) == 2
    assert all("is an interest stream and no other consumer takes" in each for each in said)


async def test_the_last_other_consumer_goes_away(servers: SharedServers, unique_name: Name, raw_peer: OpenPeer) -> None:
    """From then on watching would change the stream, so the rule ends, and says why."""
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("last"), retention="interest")
    await add_worker(here, "worker")
    async with running(settings_for(url, here.rule(**WATCHING), fail_fast=True)) as bridge:
        await here.peer.store(f"{here.name}.s".encode())
        await here.bridged.count(1)
        await here.peer.api(f"CONSUMER.DELETE.{here.name}.worker")
        async with asyncio.timeout(LIMIT):
            await bridge.finished.wait()
        assert isinstance(bridge.error, RuleRefusedError)
        assert "no other consumer takes" in str(bridge.error)
