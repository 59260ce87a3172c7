"""`exclude`: subjects that a rule leaves out, decided before any transform."""

from __future__ import annotations

from tests.live.copies import Copies, record_of
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecar_process import Scene, last_sequence_of
from tests.live.sidecars import running, settings_for
from tests.live.until import until


async def test_excluded_subjects_are_not_republished(
    twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """The others are as ever: what is left out changes no last sequence of theirs."""
    here = await Scene.make(await raw_peer(await servers.url(twin_version)), unique_name("some"))
    rule = here.rule(exclude=[f"{here.name}.secret.>", f"{here.name}.*.hidden"])
    async with running(settings_for(await servers.url(twin_version), rule)) as bridge:
        for subject in ("a", "secret.b", "a", "x.hidden", "x.shown", "a"):
            await here.peer.store(f"{here.name}.{subject}".encode(), subject.encode())
        await here.bridged.until_sequence(await here.end())
        assert bridge.runs[0].counters.as_dict()["unmatched"] == 2
    assert here.bridged.sequences == [1, 3, 5, 6, 7]
    assert [last_sequence_of(message) for message in here.bridged.messages] == [0, 1, 0, 3, 0]


async def test_excluded_subjects_are_left_out_before_the_transforms(
    twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(twin_version)
    here = await Copies.make(await raw_peer(url), unique_name("not"))
    for subject in ("a", "secret.b", "c", "secret.d.e"):
        await here.peer.store(f"{here.name}.{subject}".encode(), subject.encode())
    async with running(settings_for(url, here.rule(entry={"exclude": [f"{here.name}.secret.>"]}))) as bridge:
        await here.holds(2)
        await until(lambda: bridge.runs[0].counters.as_dict()["unselected"] == 2)
    assert [record_of(message).sequence for message in await here.stored()] == [1, 3]
