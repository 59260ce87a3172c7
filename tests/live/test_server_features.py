"""What 2.11 to 2.15 added to streams, republished by the server and by the bridge, compared to the byte."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from nats_bridge.bridge.client.wire import Delivered
from nats_bridge.native_servers import SharedServers
from nats_bridge.transforms.dialect import dialect
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.sidecars import running, settings_for

LAST_SEQUENCE = re.compile(rb"(?<=\nNats-Last-Sequence: )[0-9]+")
MINUTE = 60_000_000_000


@pytest.fixture(params=[*(pytest.param(v, marks=pytest.mark.exhaustive) for v in ("2.12.15", "2.14.9")), "2.15.1"])
def version(request: pytest.FixtureRequest) -> str:
    """A server that knows counters, atomic batches and schedules."""
    return str(request.param)


async def of_ttls(peer: RawPeer, name: str, version: str) -> int:
    """A message with a TTL, one that expires, and the marker that it leaves."""
    await peer.store(f"{name}.kept".encode(), b"1", b"NATS/1.0\r\nNats-TTL: 1h\r\n\r\n")
    await peer.store(f"{name}.gone".encode(), b"2", b"NATS/1.0\r\nNats-TTL: 1s\r\n\r\n")
    return 3


async def of_counters(peer: RawPeer, name: str, version: str) -> int:
    """Two counters, one of them by an atomic batch."""
    for increment in (b"+5", b"-7"):
        await peer.store(f"{name}.a".encode(), b"", b"NATS/1.0\r\nNats-Incr: %b\r\n\r\n" % increment)
    batch = b"NATS/1.0\r\nNats-Incr: 1\r\nNats-Batch-Id: b\r\nNats-Batch-Sequence: %d\r\n%b\r\n"
    peer.publish(f"{name}.b".encode(), b"", batch % (1, b""))
    await peer.store(f"{name}.b".encode(), b"", batch % (2, b"Nats-Batch-Commit: 1\r\n"))
    return 4


async def of_schedules(peer: RawPeer, name: str, version: str) -> int:
    """A schedule that waits, one that is due, and what that one fires."""
    for when, subject in (("2099-01-01T00:00:00Z", "later"), ("2020-01-01T00:00:00Z", "now")):
        lines = f"NATS/1.0\r\nNats-Schedule: @at {when}\r\nNats-Schedule-Target: {name}.due\r\nA: 1\r\n\r\n"
        answer = await peer.store(f"{name}.{subject}".encode(), b"x", lines.encode())
        assert "error" not in answer, answer
    return 3


async def of_fast_batches(peer: RawPeer, name: str, version: str) -> int:
    """Three messages of a fast batch, which servers before 2.14 take for ordinary ones."""
    for number, operation in ((1, 0), (2, 1), (3, 2)):
        peer.publish(
            f"{name}.a".encode(), b"%d" % number, reply=f"{name}-answers.b.10.fail.{number}.{operation}.$FI".encode()
        )
    return 3


async def of_plain(peer: RawPeer, name: str, version: str) -> int:
    """Three ordinary messages."""
    for number in range(3):
        await peer.store(f"{name}.a".encode(), b"%d" % number)
    return 3


MIXES: dict[str, tuple[Any, dict[str, Any]]] = {
    "ttls": (
        of_ttls,
        {
            "allow_msg_ttl": True,
            "allow_rollup_hdrs": True,
            "max_msgs_per_subject": 1,
            "subject_delete_marker_ttl": MINUTE,
        },
    ),
    "counters": (of_counters, {"allow_msg_counter": True, "allow_atomic": True}),
    "schedules": (of_schedules, {"allow_msg_schedules": True}),
    "fast batches": (of_fast_batches, {"allow_batched": True}),
    "asynchronous persistence": (of_plain, {"persist_mode": "async", "storage": "file"}),
}


@pytest.mark.parametrize("mix", MIXES)
async def test_republished_as_the_server_republishes_it(
    mix: str, version: str, servers: SharedServers, unique_name: Callable[[str], str], raw_peer: OpenPeer
) -> None:
    """Markers may name another last sequence (kd/last-sequence/expiry), which is counted then."""
    store, config = MIXES[mix]
    if "allow_batched" in config and not dialect(version).stream_fields_of_2_14:
        config = {}
    name = unique_name("f")
    url = await servers.url(version)
    peer = await raw_peer(url)
    native_rule = {"src": f"{name}.>", "dest": f"native{name}.>"}
    await peer.create_stream(name=name, subjects=[f"{name}.>"], republish=native_rule, **config)
    native, bridged = await peer.collect(f"native{name}.>"), await peer.collect(f"bridge{name}.>")
    rule = {"name": name, "stream": name, "republish": {"src": f"{name}.>", "dest": f"bridge{name}.>"}}
    async with running(settings_for(url, rule, dialect="native")) as sidecar:
        count = await store(peer, name, version)
        await native.count(count)
        await bridged.count(count)
        counters = sidecar.runs[0].counters.as_dict()
    expected, actual = _shown(native.messages, b"native"), _shown(bridged.messages, b"bridge")
    assert len(expected) == count
    if counters["last_sequence_uncertain"]:
        expected, actual = ([(s, LAST_SEQUENCE.sub(b"", b), p) for s, b, p in each] for each in (expected, actual))
        assert mix == "ttls"
    assert actual == expected


async def test_a_paused_consumer_of_a_rule_delays_and_loses_nothing(
    newest_version: str, servers: SharedServers, unique_name: Callable[[str], str], raw_peer: OpenPeer
) -> None:
    """kd/messages/paused."""
    name = unique_name("p")
    url = await servers.url(newest_version)
    peer = await raw_peer(url)
    await peer.create_stream(name=name, subjects=[f"{name}.>"])
    bridged = await peer.collect(f"bridge{name}.>")
    rule = {"name": name, "stream": name, "republish": {"src": f"{name}.>", "dest": f"bridge{name}.>"}}
    async with running(settings_for(url, rule)) as sidecar:
        (consumer,) = (await peer.api(f"CONSUMER.NAMES.{name}"))["consumers"]
        pause = await peer.api(f"CONSUMER.PAUSE.{name}.{consumer}", {"pause_until": "2099-01-01T00:00:00Z"})
        assert pause["paused"]
        for number in range(1, 4):
            await peer.store(f"{name}.a".encode(), b"%d" % number)
        waiting = (await peer.api(f"CONSUMER.INFO.{name}.{consumer}"))["num_pending"]
        assert waiting == 3
        await peer.api(f"CONSUMER.PAUSE.{name}.{consumer}", {})
        await bridged.count(3)
        assert sidecar.runs[0].error is None
    assert [payload for _, _, _, payload in bridged.messages] == [b"1", b"2", b"3"]


def _shown(messages: list[Delivered], prefix: bytes) -> list[tuple[bytes, bytes, bytes]]:
    return [(subject.removeprefix(prefix), block, payload) for subject, _, block, payload in messages]
