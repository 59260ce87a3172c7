"""`where`: rules that select messages by a header."""

from __future__ import annotations

from tests.live.copies import Copies, record_of
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecar_process import Scene, last_sequence_of
from tests.live.sidecars import running, settings_for
from tests.live.until import until

WHERE = {"header": "Region", "equals": "eu"}


def _block(region: str) -> bytes:
    return f"NATS/1.0\r\nRegion: {region}\r\n\r\n".encode()


async def test_republished_is_what_has_the_header(
    twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """What is left out is a predecessor all the same: `Nats-Last-Sequence` names what the stream holds."""
    here = await Scene.make(await raw_peer(await servers.url(twin_version)), unique_name("regions"))
    async with running(settings_for(await servers.url(twin_version), here.rule(where=WHERE))) as bridge:
        for block in (_block("eu"), _block("us"), b"", _block("eu"), _block("us") + _block("eu"), _block(" eu\t")):
            await here.peer.store(f"{here.name}.a".encode(), b"x", block)
        await here.bridged.until_sequence(6)
        assert bridge.runs[0].counters.as_dict()["unmatched"] == 2
    assert here.bridged.sequences == [1, 4, 5, 6]
    assert [last_sequence_of(message) for message in here.bridged.messages] == [0, 3, 4, 5]


async def test_copied_is_what_has_the_header_also_over_a_restart(
    twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(twin_version)
    here = await Copies.make(await raw_peer(url), unique_name("region"))
    settings = settings_for(url, here.rule(entry={"where": WHERE}))

    async def store(*regions: str) -> None:
        for region in regions:
            await here.peer.store(f"{here.name}.a".encode(), region.encode(), _block(region))

    await store("eu", "us", "eu", "us")
    async with running(settings) as bridge:
        await here.holds(2)
        await until(lambda: bridge.runs[0].counters.as_dict()["unselected"] == 2)
    await store("us", "eu", "us", "eu")
    async with running(settings) as bridge:
        await here.holds(4)
        await store("us", "eu")
        await here.holds(5)
        counted = bridge.runs[0].counters.as_dict()
        assert (counted["copied"], counted["asked_again"], counted["already_there"]) == (3, 0, 0)
    assert [record_of(message).sequence for message in await here.stored()] == [1, 3, 6, 8, 10]
