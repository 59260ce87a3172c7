"""Another client changes the configuration of a rule's durable consumer."""

from __future__ import annotations

from typing import Any

import pytest
import structlog

from nats_bridge.consuming import lag, reader
from tests.live.copies import Copies
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecar_process import Scene, differing
from tests.live.sidecars import running, settings_for
from tests.live.tiers import by_turns
from tests.live.until import LIMIT, until

DELIVERIES = ["at_most_once", "at_least_once"]
VERSIONS = ["2.9.10", pytest.param("2.10.27", marks=pytest.mark.exhaustive), "2.15.3"]
pytestmark = pytest.mark.usefixtures("quick_heartbeats")


async def _scene(peer: RawPeer, name: str, *, everything: bool = True) -> Scene:
    """A stream, all of whose subjects the rule selects, or not; only then its consumer has a filter."""
    return await Scene.make(peer, name, subjects=[f"{name}.>", *([] if everything else [f"other{name}"])])


async def _edit(here: Scene, name: str = "nats-bridge_rule", **change: Any) -> None:
    config = (await here.peer.api(f"CONSUMER.INFO.{here.name}.{name}"))["config"]
    body = {"stream_name": here.name, "config": config | change}
    assert "error" not in await here.peer.api(f"CONSUMER.DURABLE.CREATE.{here.name}.{name}", body)


async def _is_repaired(here: Scene, **change: Any) -> bool:
    config = (await here.durable()).get("config", change)
    return all(config.get(name) != value for name, value in change.items())


@by_turns("version, delivery, everything", VERSIONS, DELIVERIES, [True, False])
async def test_a_filter_that_selects_nothing_of_the_rule(
    version: str, delivery: str, everything: bool, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(version)
    here = await _scene(await raw_peer(url), unique_name("edited"), everything=everything)
    change = {"filter_subject": f"{here.name}.none"}
    with structlog.testing.capture_logs() as log:
        async with running(settings_for(url, here.rule(delivery=delivery), dialect="native")) as bridge:
            await here.load.burst(20)
            await here.bridged.count(20)
            await _edit(here, **change)
            await here.load.burst(20)
            await here.bridged.count(40)
            assert await _is_repaired(here, **change)
            end = await here.end()
            await here.bridged.until_sequence(end)
            counted = bridge.supervisors[0].counters()
    (line,) = [line for line in log if line["event"] == "reader.consumer_edited"]
    assert (line["field"], line["found"]) == ("filter_subject", f"{here.name}.none")
    assert line["expected"] == (None if everything else f"{here.name}.>")
    assert line["left_out"] == counted["vanished"] == counted["lost"] == 0
    came = here.bridged.sequences
    assert list(dict.fromkeys(came)) == list(range(1, end + 1))
    if delivery == "at_most_once":
        assert len(came) == end
    assert len(differing(here.bridged, here.native)) <= counted["last_sequence_uncertain"]


@by_turns("version, delivery, everything", VERSIONS, DELIVERIES, [True, False])
async def test_a_filter_that_selects_some_messages(
    version: str,
    delivery: str,
    everything: bool,
    servers: SharedServers,
    unique_name: Name,
    raw_peer: OpenPeer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At most once: those it left out before it was noticed are counted as lost. At least once: nothing is."""
    url = await servers.url(version)
    here = await _scene(await raw_peer(url), unique_name("edited"), everything=everything)
    change = {"filter_subject": f"{here.name}.s1"}
    async with running(settings_for(url, here.rule(delivery=delivery), dialect="native")) as bridge:
        await here.load.burst(20)
        await here.bridged.count(20)
        with monkeypatch.context() as unseen:  # until the filter has left something out
            unseen.setattr(reader, "_COMPARED_BEATS", 10_000)
            unseen.setattr(lag, "QUIET", LIMIT)
            await _edit(here, **change)
            await here.load.burst(200)
        await until(lambda: _is_repaired(here, **change))
        end = await here.end()
        await here.bridged.until_sequence(end)
        counted = bridge.supervisors[0].counters()
    assert counted["vanished"] == 0
    came = here.bridged.sequences
    if delivery == "at_most_once":
        assert came == sorted(set(came))
        assert counted["lost"] == end - len(came) > 0
    else:
        assert sorted(set(came)) == list(range(1, end + 1))
        assert counted["lost"] == 0
    assert len(differing(here.bridged, here.native)) <= counted["last_sequence_uncertain"]


@by_turns(
    "version, delivery, change",
    VERSIONS,
    DELIVERIES,
    [
        {"headers_only": True},
        {"max_ack_pending": 1},
        {"deliver_group": "group"},
        {"inactive_threshold": 10**12},
        {"max_deliver": 3},
        {"rate_limit_bps": 10**6},
    ],
)
async def test_any_other_member(
    version: str, delivery: str, change: dict[str, Any], servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    if delivery == "at_most_once" and "max_ack_pending" in change:
        return  # the server refuses it
    url = await servers.url(version)
    here = await _scene(await raw_peer(url), unique_name("edited"))
    with structlog.testing.capture_logs() as log:
        async with running(settings_for(url, here.rule(delivery=delivery), dialect="native")) as bridge:
            await here.load.burst(20)
            await here.bridged.count(20)
            await _edit(here, **change)
            await until(lambda: _is_repaired(here, **change))
            await here.load.burst(20)
            end = await here.end()
            await here.bridged.until_sequence(end)
            assert bridge.supervisors[0].counters()["lost"] == 0
    assert {(line["field"], line["found"]) for line in log if line["event"] == "reader.consumer_edited"} == {
        *change.items()
    }
    assert list(dict.fromkeys(here.bridged.sequences)) == list(range(1, end + 1))
    assert differing(here.bridged, here.native) == []


@by_turns("version, delivery", VERSIONS, DELIVERIES)
async def test_another_consumer_of_its_name(
    version: str, delivery: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """Edited as many tools do it: deleted, and created again."""
    url = await servers.url(version)
    here = await _scene(await raw_peer(url), unique_name("edited"))
    async with running(settings_for(url, here.rule(delivery=delivery), dialect="native")):
        await here.load.burst(20)
        await here.bridged.count(20)
        config = (await here.durable())["config"] | {
            "deliver_subject": f"elsewhere{here.name}",
            "ack_policy": "explicit",
        }
        assert (await here.peer.api(f"CONSUMER.DELETE.{here.name}.nats-bridge_rule"))["success"]
        body = {"stream_name": here.name, "config": config}
        assert "error" not in await here.peer.api(f"CONSUMER.DURABLE.CREATE.{here.name}.nats-bridge_rule", body)
        end = await here.end()
        await here.bridged.until_sequence(end)
    assert list(dict.fromkeys(here.bridged.sequences)) == list(range(1, end + 1))


@by_turns("version, delivery, stopped", VERSIONS, DELIVERIES, [True, False])
async def test_an_edit_that_no_sidecar_sees(
    version: str, delivery: str, stopped: bool, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """The server of a running one looks past what its filter leaves out, and never looks back."""
    url = await servers.url(version)
    here = await _scene(await raw_peer(url), unique_name("edited"))
    settings = settings_for(url, here.rule(delivery=delivery), dialect="native")
    async with running(settings):
        await here.load.burst(20)
        await here.bridged.count(20)
        if not stopped:
            await _edit(here, filter_subject=f"{here.name}.none")
            await here.load.burst(20)
    if stopped:
        await _edit(here, filter_subject=f"{here.name}.none")
        await here.load.burst(20)
    with structlog.testing.capture_logs() as log:
        async with running(settings):
            end = await here.end()
            await here.bridged.until_sequence(end)
    (line,) = [line for line in log if line["event"] == "consumer.reconfigured"]
    assert line["fields"] == ["filter_subject"]
    assert here.bridged.sequences == list(range(1, end + 1))
    assert differing(here.bridged, here.native) == []


@by_turns("version, retention", VERSIONS, ["workqueue", "interest"])
async def test_the_consumer_of_copies_that_are_acknowledged(
    version: str, retention: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(version)
    here = await Copies.make(await raw_peer(url), unique_name("edited"), source={"retention": retention})
    with structlog.testing.capture_logs() as log:
        await _copy_while_edited(here, url, kept=40 if retention == "workqueue" else 30)
    (line,) = [line for line in log if line["event"] == "reader.consumer_edited"]
    assert (line["field"], line["found"], line["expected"]) == ("filter_subject", f"{here.name}.b", f"{here.name}.>")


async def _selects_again(here: Copies, name: str, subject: str) -> bool:
    config = (await here.peer.api(f"CONSUMER.INFO.{here.name}.{name}")).get("config", {})
    return bool(config) and config.get("filter_subject") != subject


async def _copy_while_edited(here: Copies, url: str, kept: int) -> None:
    """An interest stream keeps nothing that no consumer selects."""
    async with running(settings_for(url, here.rule(entry={"acknowledge": True}))):
        (consumer,) = (await here.peer.api(f"CONSUMER.LIST.{here.name}"))["consumers"]
        for number in range(20):
            await here.peer.store(f"{here.name}.a".encode(), b"%d" % number)
        await here.holds(20)
        config = consumer["config"] | {"filter_subject": f"{here.name}.b"}
        body = {"stream_name": here.name, "config": config}
        name = consumer["name"]
        answer = await here.peer.api(f"CONSUMER.DURABLE.CREATE.{here.name}.{name}", body)
        assert "error" not in answer, answer
        for number in range(20, 40):
            await here.peer.store(f"{here.name}.{'ab'[number % 2]}".encode(), b"%d" % number)
        await until(lambda: _selects_again(here, name, config["filter_subject"]))
        await here.holds(kept)
        assert (await here.peer.store(f"{here.name}.a".encode(), b"40"))["seq"] == 41
        await here.holds(kept + 1)
    numbers = [int(message.payload) for message in await here.stored()]
    assert sorted(numbers) == [
        number for number in range(41) if kept == 40 or number < 20 or number % 2 or number == 40
    ]
