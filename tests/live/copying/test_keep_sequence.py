"""Mirrors whose copies have the source's sequence numbers."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from nats_bridge.errors import RuleRefusedError
from nats_transforms import header_block
from tests.live.copies import Copies
from tests.live.cut_wire import cut_wire
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecar_process import Load, sidecar_processes
from tests.live.sidecars import failure_of, running, settings_for
from tests.live.stored_messages import stored_messages
from tests.live.tiers import EACH
from tests.live.until import until


def mirror(here: Copies, **more: Any) -> dict[str, Any]:
    """A rule that keeps sequences, with a filler subject."""
    return {
        "name": "rule",
        "kind": "mirror",
        "stream": here.target,
        "mirror": {
            "name": here.name,
            "subject_transforms": [{"src": f"{here.name}.>", "dest": f"{here.target}.>"}],
            **more.pop("entry", {}),
        },
        "keep_sequence": True,
        "filler_subject": f"{here.target}.filler",
        **more,
    }


async def are_equal(here: Copies) -> None:
    """Both streams hold the same payloads and headers of publishers under the same sequences, gaps included."""
    streams = []
    for stream in (here.name, here.target):
        info = await here.peer.api(f"STREAM.INFO.{stream}", {"deleted_details": True})
        found = await stored_messages(here.peer, stream, int(info["state"]["messages"]))
        streams.append(
            [
                (
                    message.sequence,
                    message.subject.partition(b".")[2],
                    message.payload,
                    header_block.remove(message.header_block, b"Nats-Msg-Id"),
                )
                for message in found
            ]
        )
    assert streams[1] == streams[0]


async def reaches(here: Copies, last: int, messages: int) -> None:
    """Wait until the target ends with this sequence and holds so many messages: no filler is left among them."""

    async def there() -> bool:
        state = await here.state()
        return (int(state["last_seq"]), int(state["messages"])) == (last, messages)

    await until(there)


async def delete(here: Copies, *sequences: int) -> None:
    for sequence in sequences:
        answer = await here.peer.api(f"STREAM.MSG.DELETE.{here.name}", {"seq": sequence})
        assert answer.get("success"), answer


async def test_deleted_messages_are_gaps_in_the_copy_too(
    twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(twin_version)
    here = await Copies.make(await raw_peer(url), unique_name("gaps"))
    await Load(here.peer, here.name).burst(500)
    await delete(here, 1, 2, 3, 100, 101, 300, 499)
    async with running(settings_for(url, mirror(here))) as bridge:
        await reaches(here, 500, 493)
        await Load(here.peer, here.name).burst(100)
        await reaches(here, 600, 593)
        counters = bridge.runs[0].counters
        await until(lambda: (counters.as_dict()["copied"], counters.as_dict()["fillers"]) == (593, 7))
    await are_equal(here)


@pytest.mark.parametrize("twin_version", EACH)
async def test_kills_keep_the_numbers(
    twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url(twin_version)
    here = await Copies.make(await raw_peer(url), unique_name("numbers"))
    load = Load(await raw_peer(url), here.name)
    chance = random.Random(twin_version)
    await load.burst(1500)
    await delete(here, *chance.sample(range(2, 1500), 100))
    async with sidecar_processes(tmp_path) as start:
        for _ in range(2):
            process = await start(url, mirror(here))
            await process.ready()
            before = int((await here.state())["last_seq"])
            burst = asyncio.create_task(load.burst(1500))

            async def further(least: int = before + chance.randrange(1, 1000)) -> bool:
                return int((await here.state())["last_seq"]) >= least

            await until(further)
            await process.kill()
            await burst
    async with running(settings_for(url, mirror(here))):
        await reaches(here, load.published, load.published - 100)
    await are_equal(here)


async def test_cuts_keep_the_numbers(
    twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(twin_version)
    here = await Copies.make(await raw_peer(url), unique_name("cuts"))
    load = Load(await raw_peer(url), here.name)
    chance = random.Random(twin_version)
    async with cut_wire(url) as wire, running(settings_for(wire.url, mirror(here))) as bridge:
        for _ in range(3):
            before = load.published
            burst = asyncio.create_task(load.burst(2000))
            await here.holds(before + chance.randrange(1, 1500))
            wire.cut()
            await burst
            await until(lambda: bridge.runs[0].ready)
        await here.holds(load.published)
        assert bridge.error is None
    await are_equal(here)


async def test_a_selection_keeps_the_numbers_of_the_source(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(newest_version)
    here = await Copies.make(await raw_peer(url), unique_name("some"))
    for number in range(20):
        await here.peer.store(f"{here.name}.{'a' if number % 3 else 'b'}".encode(), b"%d" % number)
    only = {"subject_transforms": [{"src": f"{here.name}.a", "dest": f"{here.target}.a"}]}
    async with running(settings_for(url, mirror(here, entry=only))):
        await reaches(here, 20, 13)
        await here.peer.store(f"{here.name}.a".encode(), b"last")
        await reaches(here, 21, 14)
    found = await here.stored()
    assert [message.sequence for message in found] == [n + 1 for n in range(20) if n % 3] + [21]


async def test_a_gap_without_a_filler_subject_is_a_clear_stop(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url("2.15.3")
    here = await Copies.make(await raw_peer(url), unique_name("nofiller"))
    await Load(here.peer, here.name).burst(10)
    await delete(here, 4, 5)
    said = str(await failure_of(settings_for(url, mirror(here, filler_subject=None))))
    assert "has no message 4 to 5 to copy" in said
    assert int((await here.state())["last_seq"]) == 3


async def test_a_local_message_is_a_clear_stop(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(newest_version)
    here = await Copies.make(await raw_peer(url), unique_name("mine"))
    await Load(here.peer, here.name).burst(10)
    async with running(settings_for(url, mirror(here))) as bridge:
        await here.holds(10)
        await here.peer.store(f"{here.target}.local".encode(), b"mine")
        await here.peer.store(f"{here.name}.x".encode(), b"theirs")
        await until(lambda: bridge.error is not None)
        assert "sequences can be kept no longer" in str(bridge.error)
    with pytest.raises(RuleRefusedError, match="sequences can be kept no longer"):
        async with running(settings_for(url, mirror(here))):
            pass


@pytest.mark.parametrize("start", ["sequence", "time"])
async def test_a_mirror_may_begin_later(
    start: str, twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(twin_version)
    here = await Copies.make(await raw_peer(url), unique_name("later"))
    await Load(here.peer, here.name).burst(10)
    third = (await here.peer.api(f"STREAM.MSG.GET.{here.name}", {"seq": 3}))["message"]["time"]
    entry = {"opt_start_seq": 3} if start == "sequence" else {"opt_start_time": third}
    async with running(settings_for(url, mirror(here, entry=entry))):
        await reaches(here, 10, 8)
        await Load(here.peer, here.name).burst(2)
        await reaches(here, 12, 10)
    await delete(here, 1, 2)
    await are_equal(here)


@pytest.mark.parametrize("feeding", ["sources", "subject_delete_marker_ttl"])
async def test_a_target_in_which_its_server_stores_messages_is_refused(
    feeding: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url("2.15.3")
    peer, name = await raw_peer(url), unique_name("feeds")
    await peer.create_stream(name=f"O{name}", subjects=[f"O{name}"])
    feeds = {"sources": [{"name": f"O{name}"}], "subject_delete_marker_ttl": 60_000_000_000}
    here = await Copies.make(peer, name, target={feeding: feeds[feeding], "allow_rollup_hdrs": True})
    said = str(await failure_of(settings_for(url, mirror(here))))
    assert f"stream '{here.target}' has {feeding}: its server stores messages there" in said
