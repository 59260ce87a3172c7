"""A stream loses its end and grows again, while deliveries go on and the connection to another server stays.

So a new leader without the newest messages looks. Here the stream's server is a leaf, which the sidecar reaches
through a hub. Its stream is set back, and its consumer is not.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nats_bridge.consuming import lost_end
from nats_conformance.native_servers import NativeServer, free_port
from nats_conformance.native_servers.native_server import HOST
from tests.live.faults.power_cut import LostEnd
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.sidecar_process import sequence_of
from tests.live.sidecars import running, settings_for
from tests.live.until import until

KEPT, LOST, NEW = 50, 50, 70


@pytest.fixture
def any_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch counts as the first one after a pause, because the servers of this test are back at once."""
    monkeypatch.setattr(lost_end, "_PAUSED_BEATS", 0.0)
    monkeypatch.setattr(lost_end, "_PAUSES", 1000)


async def _store(peer: RawPeer, messages: int) -> None:
    for number in range(messages):
        await peer.store(b"s.a", b"%d" % number)


@pytest.mark.usefixtures("any_pause", "quick_reconnects")
@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
async def test_new_messages_under_sequences_that_were_read(
    delivery: str, newest_version: str, native_server: Callable[..., NativeServer], enduring_peer: OpenPeer
) -> None:
    port = free_port()
    hub = native_server(newest_version, config=f'leafnodes {{listen: "{HOST}:{port}"}}', jetstream=False).start()
    remote = (
        f'leafnodes {{remotes: [{{url: "nats-leaf://{HOST}:{port}"}}], reconnect: "100ms"}}\njetstream {{domain: leaf}}'
    )
    leaf = native_server(newest_version, config=remote).start()
    peer, other = await enduring_peer(leaf.url), await enduring_peer(hub.url)
    await peer.create_stream(name="S", subjects=["s.>"])
    seen = await other.collect("out.>")
    republish = {"src": "s.>", "dest": "out.>"}
    rule = {"name": "r", "stream": "S", "republish": republish, "start": "first", "delivery": delivery, "durable": True}
    connections = {"default": {"servers": [hub.url], "domain": "leaf"}}
    end = LostEnd(leaf, peer, "S")
    await _store(peer, KEPT)
    await end.sync()
    async with running(settings_for(hub.url, rule, connections=connections)) as sidecar:
        counters = sidecar.supervisors[0].counters
        await _store(peer, LOST)
        await seen.count(KEPT + LOST)
        await end.lose(_store(peer, NEW))
        again = list(range(KEPT + 1, KEPT + NEW + 1))
        if delivery == "at_least_once":
            await until(lambda: counters()["shorter_streams"] == 1)
            await until(lambda: [sequence_of(message) for message in seen.messages[-NEW:]] == again)
            return
        # A check that was faster than the deliveries lets the rule read everything again, and nothing is lost.
        await until(lambda: len(seen.messages) + counters()["lost"] == KEPT + LOST + NEW)
        assert counters()["shorter_streams"] == (counters()["lost"] == 0)
