"""What a backfill refuses, and what it says then; most of it before Spark is started."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from nats_bridge.errors import BridgeError, ConfigError, RuleRefusedError
from nats_bridge.rules.leadership.leases import open_leases
from nats_bridge.settings import Settings
from nats_bridge_spark.backfill import history_copy
from nats_bridge_spark.errors import OptionError, PipelineError
from tests.live.copies import Copies
from tests.live.cut_wire import cut_wire
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecars import running, settings_for
from tests.spark.backfills import backfilled

if TYPE_CHECKING:
    pass


async def refusal(settings: Settings, rule: str = "rule", **wanted: Any) -> BridgeError:
    """What it says."""
    with pytest.raises(BridgeError) as caught:
        await backfilled(settings, rule, **wanted)
    return caught.value


@pytest.fixture
async def copies(servers: SharedServers, unique_name: Name, raw_peer: OpenPeer) -> Copies:
    """A source with ten messages, and a target."""
    made = await Copies.make(await raw_peer(await servers.url("2.10.27")), unique_name("refused"))
    for number in range(10):
        await made.peer.store(f"{made.name}.{number}".encode(), b"%d" % number)
    return made


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"name": "other", "kind": "republish", "stream": "S", "republish": {"dest": "d.>"}}, "known rules: other"),
        (
            {"name": "rule", "kind": "republish", "stream": "S", "republish": {"dest": "d.>"}},
            "let the sidecar begin with start: first",
        ),
        (
            {
                "name": "rule",
                "kind": "subject_transform",
                "stream": "S",
                "subject_transform": {"src": "a", "dest": "b"},
            },
            "changes messages before they are stored",
        ),
        (
            {"name": "rule", "kind": "advisories", "republish": {"src": "$JS.EVENT.ADVISORY.>", "dest": "x.>"}},
            "so there is no history",
        ),
    ],
)
async def test_rules_without_a_history(rule: dict[str, Any], said: str) -> None:
    error = await refusal(settings_for("nats://127.0.0.1:1", rule))
    assert isinstance(error, (OptionError, ConfigError))
    assert said in str(error)


async def test_a_source_that_the_rule_does_not_have(copies: Copies, servers: SharedServers) -> None:
    error = await refusal(settings_for(servers["2.10.27"].url, copies.rule()), sources=("NOPE",))
    assert str(error) == f"--source NOPE: rule 'rule' has no such source; it has {copies.name}"


async def test_a_target_that_does_not_exist(copies: Copies, servers: SharedServers) -> None:
    rule = copies.rule() | {"stream": "NOT_THERE"}
    error = await refusal(settings_for(servers["2.10.27"].url, rule))
    assert "stream 'NOT_THERE' does not exist" in str(error)


async def test_a_server_that_is_not_there(copies: Copies) -> None:
    nowhere = {"default": {"servers": ["nats://127.0.0.1:1"], "connect_timeout": 0.1}}
    error = await refusal(settings_for("", copies.rule(), connections=nowhere))
    assert "no server answers at nats://127.0.0.1:1" in str(error)
    assert error.exit_code == 3


async def test_a_rule_that_a_sidecar_works_on(copies: Copies, servers: SharedServers) -> None:
    settings = settings_for(servers["2.10.27"].url, copies.rule())
    async with running(settings):
        error = await refusal(settings)
    assert isinstance(error, PipelineError)
    assert "Stop the sidecar" in str(error)


async def test_a_rule_whose_lease_another_replica_holds(
    copies: Copies, servers: SharedServers, unique_name: Name
) -> None:
    bucket = unique_name("LEASES")
    settings = settings_for(servers["2.10.27"].url, copies.rule(), leadership={"bucket": bucket, "ttl": 0.5})
    patient = settings_for(servers["2.10.27"].url, copies.rule(), leadership={"bucket": bucket, "ttl": 600})
    assert settings.leadership is not None
    assert patient.leadership is not None
    # A first holder waits for as long as for one that is silent; the next one takes over what is released.
    (summary,) = await backfilled(settings, last=5)
    other = await open_leases(patient, patient.leadership)
    try:
        await other.lead(patient.rules[0])
        with pytest.raises(PipelineError, match=f"replica '{other.me}' holds its lease"):
            await backfilled(settings)
    finally:
        await other.close()
    (summary,) = await backfilled(settings)
    assert summary.copied == 5
    # The job has given it back: the sidecar leads.
    async with running(settings):
        await copies.peer.store(f"{copies.name}.live".encode(), b"live")
        await copies.holds(11)
    await copies.are_exact()


async def test_two_backfills_of_one_rule(copies: Copies, servers: SharedServers) -> None:
    url = servers["2.10.27"].url
    async with cut_wire(url) as wire:
        connections = {"default": {"servers": [url]}, "west": {"servers": [wire.url]}}
        settings = settings_for(url, copies.rule(to="west"), connections=connections)
        wire.fall_silent_after(copies.target.encode() + b".0")
        first = asyncio.create_task(backfilled(settings))
        try:
            await copies.holds(1)
            error = await refusal(settings_for(url, copies.rule()))
            assert "(or the other backfill)" in str(error)
        finally:
            wire.speak_again()
            await first
    await copies.are_exact()


async def test_a_range_that_would_leave_a_hole(copies: Copies, servers: SharedServers) -> None:
    settings = settings_for(servers["2.10.27"].url, copies.rule())
    (summary,) = await backfilled(settings, first=3, last=5)
    assert (summary.copied, summary.next_sequence) == (3, 6)
    with pytest.raises(OptionError, match=r"--from 8: .* so 6 to 7 would be missing"):
        await backfilled(settings, first=8)
    (summary,) = await backfilled(settings, first=1)
    assert (summary.copied, summary.next_sequence) == (5, 11)
    assert await copies.source_sequences() == [3, 4, 5, 6, 7, 8, 9, 10]


async def test_a_source_that_was_recreated(copies: Copies, servers: SharedServers) -> None:
    settings = settings_for(servers["2.10.27"].url, copies.rule())
    await backfilled(settings)
    await copies.peer.api(f"STREAM.DELETE.{copies.name}")
    await copies.peer.create_stream(name=copies.name, subjects=[f"{copies.name}.>"])
    await copies.peer.store(f"{copies.name}.a".encode(), b"new")
    with pytest.raises(RuleRefusedError, match="is a new one"):
        await backfilled(settings)
    (summary,) = await backfilled(settings_for(servers["2.10.27"].url, copies.rule(on_recreated="restart")))
    assert (summary.copied, summary.next_sequence) == (1, 2)


async def test_a_message_that_the_target_refuses_stops_the_job_or_is_skipped(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url("2.10.27")
    peer, name = await raw_peer(url), unique_name("large")
    here = await Copies.make(peer, name, target={"max_msg_size": 500})
    dead = await peer.collect(f"dead.{name}")
    for number in range(1, 8):
        await peer.store(f"{name}.{number}".encode(), b"x" * (1000 if number == 4 else 10))
    with pytest.raises(PipelineError, match=rf"message 4 of stream '{name}': with its headers it has"):
        await backfilled(settings_for(url, here.rule()))
    assert await here.source_sequences() == [1, 2, 3]
    (summary,) = await backfilled(settings_for(url, here.rule(on_rejected={"skip": f"dead.{name}"})))
    assert (summary.copied, summary.skipped) == (3, 1)
    assert await here.source_sequences() == [1, 2, 3, 5, 6, 7]
    assert [message[3] for message in await dead.count(1)] == [b"x" * 1000]


async def test_a_target_that_is_full_is_waited_for_only_so_long(
    copies: Copies, servers: SharedServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_for(servers["2.10.27"].url, copies.rule())
    await _updated(copies, max_msgs=4, discard="new")
    with monkeypatch.context() as impatient:
        impatient.setattr(history_copy, "PATIENCE", 0.5)
        with pytest.raises(PipelineError, match="accepts nothing at the moment"):
            await backfilled(settings)
    assert await copies.source_sequences() == [1, 2, 3, 4]
    await _updated(copies, max_msgs=-1, discard="new")
    await backfilled(settings)
    await copies.are_exact()


async def _updated(copies: Copies, **config: Any) -> None:
    body = {"name": copies.target, "subjects": [f"{copies.target}.>"], **config}
    answer = await copies.peer.api(f"STREAM.UPDATE.{copies.target}", body)
    assert "error" not in answer, answer
