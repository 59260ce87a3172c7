"""The twin test: one stream, republished by its server and by the bridge, compared message by message.

Same stream, same stored messages, so subject (apart from its first token), header bytes, payload and order must be
equal to the byte.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Awaitable, Callable, Iterator
from itertools import product
from typing import Any

import pytest

from tests.drawn.messages import draw_block, draw_payload, headers
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecars import running, settings_for
from tests.live.tiers import OLDEST_AND_NEWEST
from tests.live.until import until

MESSAGES = 400

STREAMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "file": {"storage": "file"},
    "one per subject": {"max_msgs_per_subject": 1},
    "three per subject": {"max_msgs_per_subject": 3},
    "seven messages": {"max_msgs": 7},
    "seven messages, two per subject": {"max_msgs": 7, "max_msgs_per_subject": 2},
    "seven messages, one per subject": {"max_msgs": 7, "max_msgs_per_subject": 1},
    "rollups": {"allow_rollup_hdrs": True},
    "rollups, nine messages": {"allow_rollup_hdrs": True, "max_msgs": 9, "max_msgs_per_subject": 4},
}
RULES: dict[str, dict[str, Any]] = {
    "everything": {"src": "{s}.>", "dest": "{out}.>"},
    "headers only": {"src": "{s}.>", "dest": "{out}.>", "headers_only": True},
    "one subject of many": {"src": "{s}.orders.*", "dest": "{out}.$1"},
    "functions": {
        "src": "{s}.*.*",
        "dest": "{out}.{{{{partition(5,1,2)}}}}.{{{{wildcard(2)}}}}.{{{{splitfromleft(1,2)}}}}",
    },
}


def _filled(rule: dict[str, Any], name: str, out: str) -> dict[str, Any]:
    return {key: value.format(s=name, out=out) if isinstance(value, str) else value for key, value in rule.items()}


async def _publish(peer: RawPeer, name: str, seed: int, rollups: bool, taken: Callable[[int], Awaitable[None]]) -> None:
    """Store a seeded mix of messages, waiting for `taken` after each."""
    source = random.Random(seed)
    subjects = [f"{name}.{kind}.{item}" for kind in ("orders", "users", "日本") for item in ("a", "bcd", "e-f", "é")]
    subjects += [f"{name}.single", f"{name}.x.y.z"]
    for number in range(MESSAGES):
        subject = source.choice(subjects).encode()
        block, payload = draw_block(source, number), draw_payload(source)
        if source.random() < 0.05:
            block = headers(f"Nats-Msg-Id: id-{source.randrange(8)}")
        if rollups and source.random() < 0.06:
            block = headers(f"Nats-Rollup: {source.choice(['sub', 'sub', 'all'])}")
        answer = await peer.store(subject, payload, block)
        await taken(int(answer["seq"]))


def _combinations() -> Iterator[Any]:
    """In `make test` each stream meets two rules, one on each version, and each rule half of the streams."""
    versions = [each if isinstance(each, str) else each.values[0] for each in OLDEST_AND_NEWEST]
    for (row, stream), (column, rule) in product(enumerate(STREAMS), enumerate(RULES)):
        turn = None if (row + column) % 2 else versions[0 if (row // 2 + column // 2) % 2 else -1]
        for version in versions:
            yield pytest.param(version, stream, rule, marks=[] if version == turn else pytest.mark.exhaustive)


@pytest.mark.parametrize(("twin_version", "stream", "rule"), [*_combinations()])
async def test_bridge_republishes_what_the_server_republishes(
    stream: str,
    rule: str,
    twin_version: str,
    servers: SharedServers,
    unique_name: Name,
    raw_peer: OpenPeer,
    record_property: Callable[[str, object], None],
) -> None:
    name = unique_name("twin")
    url = await servers.url(twin_version)
    peer = await raw_peer(url)
    try:
        native_rule = _filled(RULES[rule], name, f"native{name}")
        bridge_rule = _filled(RULES[rule], name, f"bridge{name}")
        # The last message on its own subject shows that everything before it has been seen.
        config = {"storage": "memory", **STREAMS[stream]}
        await peer.create_stream(name=name, subjects=[f"{name}.>"], republish=native_rule, **config)
        native = await peer.collect(f"native{name}.>")
        bridged = await peer.collect(f"bridge{name}.>")
        # Messages from before the bridge starts: their last sequences must be known to it.
        for item in ("a", "bcd"):
            await peer.store(f"{name}.orders.{item}".encode(), b"before")
        settings = settings_for(url, {"name": name, "stream": name, "republish": bridge_rule}, dialect="native")
        async with running(settings) as sidecar:
            run = sidecar.runs[0]

            async def taken(sequence: int) -> None:
                # Where a stream keeps next to nothing, a message can be gone before any consumer has had it; then
                # no outside process can know it. Here the bridge is given the time to see each one.
                if STREAMS[stream].keys() & {"max_msgs", "max_msgs_per_subject", "allow_rollup_hdrs"}:
                    await bridged.count(len(native.messages) - 2)
                    await until(lambda: bool(run._filter) or run.position >= sequence)

            await _publish(peer, name, zlib.crc32(f"{stream} {rule}".encode()), "rollups" in stream, taken)
            end = (await peer.store(f"{name}.orders.end".encode(), b"the end"))["seq"]
            await native.until_sequence(end)
            await bridged.until_sequence(end)
        expected = [
            (subject.removeprefix(b"native"), block, payload) for subject, _, block, payload in native.messages[2:]
        ]
        actual = [(subject.removeprefix(b"bridge"), block, payload) for subject, _, block, payload in bridged.messages]
        assert actual == expected
        assert len(actual) > 50
        record_property("compared", len(actual))
        counters = run.counters
        assert counters.republished == len(actual)
        assert counters.looped == counters.too_large == counters.last_sequence_uncertain == 0
    finally:
        await peer.api(f"STREAM.DELETE.{name}")
