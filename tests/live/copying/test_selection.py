"""Whether the source's server selects or the rule does: the copies are the same."""

from __future__ import annotations

from typing import Any

import pytest

from tests.live.copies import Copies
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecars import running, settings_for
from tests.live.tiers import with_all
from tests.live.until import until


@pytest.mark.parametrize(("storage", "one_in", "asked"), [("file", 2, False), ("file", 20, True), ("memory", 2, True)])
async def test_a_file_store_is_not_asked_to_select_much(
    storage: str,
    one_in: int,
    asked: bool,
    twin_version: str,
    servers: SharedServers,
    unique_name: Name,
    raw_peer: OpenPeer,
) -> None:
    url = await servers.url(twin_version)
    here = await Copies.make(await raw_peer(url), unique_name("select"), source={"storage": storage})
    for number in range(1, 101):
        here.peer.publish(f"{here.name}.{'a' if number % one_in == 0 else 'b'}".encode(), b"%d" % number)
    await here.peer.store(f"{here.name}.b".encode(), b"end")
    entry = {"subject_transforms": [{"src": f"{here.name}.a", "dest": f"{here.target}.a"}]}
    async with running(settings_for(url, here.rule(entry=entry))) as bridge:
        await here.holds(100 // one_in)
        consumers: list[dict[str, Any]] = (await here.peer.api(f"CONSUMER.LIST.{here.name}")).get("consumers") or []
        filters = [consumer["config"].get("filter_subject") for consumer in consumers]
        assert filters == [f"{here.name}.a" if asked else None]
        if not asked:
            await until(lambda: bridge.runs[0].counters.as_dict()["unselected"] == 101 - 100 // one_in)
    assert await here.source_sequences() == [number for number in range(1, 101) if number % one_in == 0]


async def test_a_filter_may_reach_across_the_streams_subjects(
    twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """2.9 takes only filters for a consumer that lie within one subject of its stream."""
    url = await servers.url(twin_version)
    name = unique_name("across")
    here = await Copies.make(
        await raw_peer(url), name, source={"subjects": [f"{name}.a.>", f"{name}.b.>"], "storage": "memory"}
    )
    entry = {"subject_transforms": [{"src": f"{name}.*.x", "dest": f"{here.target}.{{{{wildcard(1)}}}}"}]}
    republish = {"name": "monitor", "stream": name, "republish": {"src": f"{name}.*.x", "dest": f"out{name}.$1"}}
    republished = await here.peer.collect(f"out{name}.>")
    async with running(settings_for(url, here.rule(entry=entry), republish)):
        for subject in ("a.x", "a.y", "b.x"):
            await here.peer.store(f"{name}.{subject}".encode(), b"")
        await here.holds(2)
        await republished.count(2)
    assert [message[0] for message in republished.messages] == [f"out{name}.a".encode(), f"out{name}.b".encode()]
    assert await here.source_sequences() == [1, 3]


@pytest.mark.parametrize("version", ["2.9.10", *with_all("2.10.27", "2.11.17", "2.12.15"), "2.14.10", "2.15.3"])
async def test_filters_that_overlap_for_older_servers_alone(
    version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """Before 2.14.10 and 2.15.3 a consumer cannot have both: there a token such as `*x` may be any other."""
    url = await servers.url(version)
    here = await Copies.make(await raw_peer(url), unique_name("first"), source={"storage": "memory"})
    for subject in ("*x.a", "b.c", "b.a", "*x.c"):
        await here.peer.store(f"{here.name}.{subject}".encode())
    transforms = [
        {"src": f"{here.name}.*x.>", "dest": f"{here.target}.star.>"},
        {"src": f"{here.name}.b.c", "dest": f"{here.target}.plain"},
    ]
    async with running(settings_for(url, here.rule(entry={"subject_transforms": transforms}))):
        await here.holds(3)
        consumers: list[dict[str, Any]] = (await here.peer.api(f"CONSUMER.LIST.{here.name}")).get("consumers") or []
        filters = [each["config"].get("filter_subjects") for each in consumers]
        wanted = [each["src"] for each in transforms]
        assert filters == [wanted if version in ("2.14.10", "2.15.3") else None]
    assert await here.source_sequences() == [1, 2, 4]
