"""The sidecar's clock jumps, forward and back, while it runs and between two starts: nothing is lost or duplicated."""

from __future__ import annotations

import time

import pytest

from tests.live.copies import Copies
from tests.live.cut_wire import cut_wire
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecar_process import Load, Seen
from tests.live.sidecars import running, settings_for
from tests.live.until import until

_DAY_NS = 24 * 3600 * 10**9


class _Clock:
    """The clock of the day, with an error."""

    def __init__(self) -> None:
        self._true_ns = time.time_ns
        self.error_ns = 0

    def time_ns(self) -> int:
        return self._true_ns() + self.error_ns


async def test_jumps_of_the_clock(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = await servers.url(newest_version)
    peer = await raw_peer(url)
    here = await Copies.make(peer, unique_name("clock"))
    rules, seen = [here.rule()], {}
    for delivery in ("at_most_once", "at_least_once"):
        seen[delivery] = await Seen.of(peer, f"{delivery}.{here.name}.>")
        republish = {"src": f"{here.name}.>", "dest": f"{delivery}.{here.name}.>"}
        rule = {"name": delivery, "stream": here.name, "republish": republish, "start": "first", "delivery": delivery}
        rules.append(rule)
    clock = _Clock()
    monkeypatch.setattr(time, "time_ns", clock.time_ns)
    load = Load(peer, here.name)
    async with cut_wire(url) as wire:
        for days in (0, 2, -3):
            async with running(settings_for(wire.url, *rules)) as bridge:
                for jump in (days, days - 1):
                    clock.error_ns = jump * _DAY_NS
                    await load.burst(500)
                    await here.holds(load.published)
                    for each in seen.values():
                        await each.until_sequence(load.published)
                    cuts = bridge.supervisors[1].counters()["reconnects"]
                    wire.cut()
                    await until(lambda cuts=cuts: bridge.supervisors[1].counters()["reconnects"] > cuts)  # type: ignore[misc]
    await here.are_exact()
    everything = list(range(1, load.published + 1))
    assert seen["at_most_once"].sequences == everything
    assert sorted(set(seen["at_least_once"].sequences)) == everything
