"""Whether the origin's server selects or the rule does: the copies are the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conformance.servers import SharedServers
from tests.live.copies import Copies
from tests.live.raw_messages import OpenPeer
from tests.live.sidecars import running, settings_for
from tests.live.until import until


@pytest.mark.parametrize(("storage", "one_in", "asked"), [("file", 2, False), ("file", 20, True), ("memory", 2, True)])
async def test_a_file_store_is_not_asked_to_select_much(
    storage: str,
    one_in: int,
    asked: bool,
    twin_version: str,
    servers: SharedServers,
    unique_name: Callable[[str], str],
    raw_peer: OpenPeer,
) -> None:
    url = await servers.url(twin_version)
    here = await Copies.make(await raw_peer(url), unique_name("select"), origin={"storage": storage})
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
    assert await here.origin_sequences() == [number for number in range(1, 101) if number % one_in == 0]
