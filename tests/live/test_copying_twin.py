"""The twin test of copying: a native target and a bridged one, fed by the same streams, hold the same messages.

Subjects, application headers, payloads, source records and the order per source are equal to the byte. The bridged
target is on a server of its own, since the copies of a plain source have the subjects of the origin.
"""

from __future__ import annotations

import base64
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from bridge.copying.counters import CopyCounters
from conformance.servers import NativeServer, SharedServers
from tests.live.copied_messages import CopiedMessage, by_entry, copied, everything, last_sequence, taken_apart
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.sidecars import running, settings_for
from tests.live.until import until
from transforms.dialect import Dialect, dialect
from transforms.republish import StoredMessage
from transforms.source_record import HEADER, TWIN_HEADER, first_record
from transforms.sourcing import Copied, compile_sourcing

BEFORE, DURING = 120, 120

BLOCKS = [
    b"",
    b"NATS/1.0\r\nA: 1\r\nA: 2\r\na:3\r\nEmpty:\r\n\r\n",
    b"NATS/1.0\r\nx-lower:v\r\nX-Spaces:   two  words  \r\n\r\n",
    b"NATS/1.0\r\nNats-Stream: fake\r\nNats-Sequence: 9\r\nNats-Msg-Size: 17\r\n\r\n",
    b"NATS/1.0\r\nKV-Operation: DEL\r\n\r\n",
    "NATS/1.0\r\nName: Zoë, 日本\r\n\r\n".encode(),
    b"NATS/1.0\r\nLatin: \xe9\xff\r\n\r\n",
    b"NATS/1.0\r\nLong: " + b"y" * 3000 + b"\r\n\r\n",
    b"NATS/1.0\r\ntraceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n\r\n",
    b"Foo: bar\r\n\r\n",
    b"NATS/1.0\r\n\r\n",
    b"NATS/1.0 503 Not Today\r\nA: b\r\n\r\n",
    b"NATS/1.0\r\nNats-Msg-Id: {id}\r\nB: 1\r\n\r\n",
    b"NATS/1.0\r\nnats-msg-id: lower\r\n\r\n",
]
EXPECTATIONS = b"NATS/1.0\r\nB: 1\r\nNats-Expected-Stream: {s}\r\nC: 2\r\n\r\n"
CHAIN = b"NATS/1.0\r\nA: 1\r\nNats-Stream-Source: X 7 > >\r\nNats-Stream-Sourced: no\r\n\r\n"
PAYLOADS = [b"", b"x", b"\r\n", b"MSG fake 1 5\r\n", bytes(range(256)), b"p" * 128, b"q" * 70_000]
SUFFIXES = ["x.a", "x.bcd", "y.a", "y.é", "z.日本.f", "other", "deep.er.and.deeper", "x.e-f"]


@dataclass(frozen=True, slots=True)
class Shape:
    """What is copied; `{a}` and `{b}` stand for the origins."""

    entries: list[dict[str, Any]]
    subjects: list[str]
    origins: str = "a"
    config: dict[str, Any] = field(default_factory=dict)
    target: dict[str, Any] = field(default_factory=dict)
    mirror: bool = False
    rollups: bool = False


TRANSFORMS: dict[str, Shape] = {
    "first match wins": Shape(
        [
            {
                "name": "{a}",
                "subject_transforms": [
                    {"src": "{a}.x.a", "dest": "t{a}.one"},
                    {"src": "{a}.y.*", "dest": "t{a}.two.$1"},
                    {"src": "{a}.z.>", "dest": "t{a}.three.>"},
                    {"src": "{a}.deep.*.*.*", "dest": "t{a}.{{{{partition(7,1,2)}}}}.{{{{splitfromleft(3,2)}}}}.$1"},
                ],
            }
        ],
        ["t{a}.>"],
    ),
    "filter only": Shape([{"name": "{a}", "subject_transforms": [{"src": "{a}.*.a", "dest": ""}]}], ["{a}.>"]),
    "split": Shape(
        [{"name": "{a}", "subject_transforms": [{"src": "{a}.x.*", "dest": "t{a}.{{{{split(1,-)}}}}.end"}]}],
        ["t{a}.>"],
    ),
    "same stream twice": Shape(
        [{"name": "{a}", "filter_subject": "{a}.x.*"}, {"name": "{a}", "filter_subject": "{a}.y.*"}], ["{a}.>"]
    ),
    "same stream twice, overlapping names of copies": Shape(
        [
            {"name": "{a}", "subject_transforms": [{"src": "{a}.x.*", "dest": "t{a}.$1"}]},
            {"name": "{a}", "subject_transforms": [{"src": "{a}.y.*", "dest": "t{a}.$1"}]},
        ],
        ["t{a}.>"],
    ),
    "mirror with transforms": Shape(
        [
            {
                "name": "{a}",
                "subject_transforms": [
                    {"src": "{a}.x.*", "dest": "t{a}.$1.x"},
                    {"src": "{a}.y.*", "dest": ""},
                ],
            }
        ],
        ["t{a}.>", "{a}.>"],
        mirror=True,
    ),
    "bucket": Shape(
        [{"name": "{a}", "subject_transforms": [{"src": "{a}.>", "dest": "$KV.t{a}.>"}]}],
        ["$KV.t{a}.>"],
        config={"allow_rollup_hdrs": True, "max_msgs_per_subject": 2},
        target={"allow_rollup_hdrs": True, "max_msgs_per_subject": 2},
        rollups=True,
    ),
}
SHAPES: dict[str, Shape] = {
    "plain": Shape([{"name": "{a}"}], ["{a}.>"]),
    "plain, three per subject": Shape(
        [{"name": "{a}"}], ["{a}.>"], config={"storage": "memory"}, target={"max_msgs_per_subject": 3}
    ),
    "filter_subject": Shape([{"name": "{a}", "filter_subject": "{a}.*.a"}], ["{a}.>"]),
    "two streams": Shape([{"name": "{a}"}, {"name": "{b}", "filter_subject": "{b}.x.>"}], ["{a}.>", "{b}.>"], "ab"),
    "mirror": Shape([{"name": "{a}"}], ["{a}.>"], mirror=True),
    "mirror with a filter": Shape([{"name": "{a}", "filter_subject": "{a}.*.a"}], ["{a}.>"], mirror=True),
    "rollups": Shape(
        [{"name": "{a}"}],
        ["{a}.>"],
        config={"allow_rollup_hdrs": True},
        target={"allow_rollup_hdrs": True},
        rollups=True,
    ),
    **TRANSFORMS,
}


def filled(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, str):
        return value.format(**names)
    if isinstance(value, dict):
        return {key: filled(each, names) for key, each in value.items()}
    return [filled(each, names) for each in value] if isinstance(value, list) else value


class Origins:
    """The origin streams, and seeded messages for them."""

    def __init__(self, peer: RawPeer, names: dict[str, str], shape: Shape, native: Dialect, seed: str) -> None:
        self._peer = peer
        self._names = [names[letter] for letter in shape.origins]
        self._random = random.Random(zlib.crc32(seed.encode()))
        self._shape = shape
        self._native = native
        self._published = 0
        self._blocks = list(BLOCKS)
        if native.mirroring_strips_expectations if shape.mirror else native.sourcing_strips_expectations:
            self._blocks.append(EXPECTATIONS)
        if not native.source_record_is_refused_from_clients and not shape.mirror:
            self._blocks.append(CHAIN)

    async def create(self) -> None:
        for name in self._names:
            await self._peer.create_stream(name=name, subjects=[f"{name}.>"], **self._shape.config)

    async def publish(self, messages: int, *followed: tuple[RawPeer, str], holes: bool = False) -> None:
        """Publish; `followed` are targets that copy all of it meanwhile."""
        # Of what is there already, the last messages may be deleted.
        newest = (await everything(self._peer, self._names[0]))[-1].sequence if followed else 0
        for _ in range(messages):
            self._published += 1
            name, suffix = self._random.choice(self._names), self._random.choice(SUFFIXES)
            block = self._random.choice(self._blocks)
            block = block.replace(b"{id}", b"%d" % self._published).replace(b"{s}", name.encode())
            if self._shape.rollups and self._random.random() < 0.05:
                block = b"NATS/1.0\r\nNats-Rollup: %b\r\n\r\n" % self._random.choice([b"sub", b"sub", b"all"])
                if not self._native.stream_fields_of_2_10:
                    # There consumers now and then skip what they have not delivered: kd/messages/skipped.
                    for peer, target in followed:
                        await until(partial(_has_copied, peer, target, newest))
            payload = self._random.choices(PAYLOADS, weights=[4, 8, 4, 4, 4, 8, 1])[0]
            answer = await self._peer.store(f"{name}.{suffix}".encode(), payload, block)
            assert "error" not in answer, answer
            newest = int(answer["seq"])
            if holes and self._random.random() < 0.08:
                await self._peer.api(f"STREAM.MSG.DELETE.{name}", {"seq": answer["seq"]})

    async def end(self) -> None:
        """One last message for every entry of every shape."""
        for name in self._names:
            for suffix in SUFFIXES[:4]:
                await self._peer.store(f"{name}.{suffix}".encode(), b"the end")

    async def stored(self) -> dict[str, list[StoredMessage]]:
        return {name: await everything(self._peer, name) for name in self._names}


def engine(entries: list[dict[str, Any]], stored: dict[str, list[StoredMessage]], mirrors: bool) -> list[CopiedMessage]:
    """What the newest server would hold."""
    copies = []
    for entry in entries:
        sourcing = compile_sourcing(entry, mirrors=mirrors)
        for message in stored[entry["name"]]:
            copy = sourcing.apply(message)
            if isinstance(copy, Copied):
                copies.append(taken_apart(StoredMessage(copy.subject, copy.header_block, copy.payload, 0, 0)))
    return copies


async def _has_copied(peer: RawPeer, target: str, sequence: int) -> bool:
    """Whether the newest copy in a target is of this message of its one origin, or of a later one."""
    last = await last_sequence(peer, target)
    answer = await peer.api(f"STREAM.MSG.GET.{target}", {"seq": last})
    if "message" not in answer:
        return False
    block = base64.b64decode(answer["message"].get("hdrs") or "")
    record = first_record(block, HEADER) or first_record(block, TWIN_HEADER)
    return record is not None and record.sequence >= sequence


async def ended(peer: RawPeer, stream: str, expected: list[CopiedMessage]) -> None:
    """Wait until the last copy of every entry is there."""
    last = {copies[-1].place for copies in by_entry(expected).values()}
    assert all(copies[-1].payload == b"the end" for copies in by_entry(expected).values())
    last_subjects = {subject for subject, _ in last}
    inbox = peer.client.new_inbox()
    arriving = await peer.collect(inbox)
    answer = await peer.api(
        f"CONSUMER.CREATE.{stream}",
        {"stream_name": stream, "config": {"deliver_subject": inbox, "ack_policy": "none"}},
    )
    assert "error" not in answer, answer

    def there() -> bool:
        found = [
            taken_apart(StoredMessage(subject, block, payload, 0, 0))
            for subject, _, block, payload in arriving.messages
            if payload == b"the end"
        ]
        # A native mirror writes no records, so that only subjects tell.
        return last <= {copy.place for copy in found} or (
            last_subjects <= {copy.subject for copy in found if not copy.record}
        )

    await until(there)


@pytest.mark.parametrize("name", SHAPES)
async def test_a_native_target_and_a_bridged_one_hold_the_same(
    name: str,
    twin_version: str,
    servers: SharedServers,
    native_server: Callable[..., NativeServer],
    unique_name: Callable[[str], str],
    raw_peer: OpenPeer,
    record_property: Callable[[str, object], None],
) -> None:
    shape, native = SHAPES[name], dialect(twin_version)
    is_native = native.stream_fields_of_2_10 or name not in TRANSFORMS
    url = await servers.url(twin_version)
    peer = await raw_peer(url)
    names = {letter: unique_name(f"origin{letter}") for letter in "ab"}
    target = unique_name("copy")
    entries = filled(shape.entries, names)
    origins = Origins(peer, names, shape, native, f"{name} {twin_version}")
    await origins.create()
    # Holes leave no trace in a source, and no message in a mirror.
    await origins.publish(BEFORE, holes=True)
    made = {"mirror": entries[0]} if shape.mirror else {"sources": entries}
    if is_native:
        await peer.create_stream(name=target, **shape.target, **made)
    async with native_server(twin_version) as west:
        far = await raw_peer(west.url)
        await far.create_stream(name=target, subjects=filled(shape.subjects, names), **shape.target)
        settings = settings_for(
            url,
            {"name": "twin", "kind": "mirror" if shape.mirror else "sources", "stream": target, "to": "west", **made},
            connections={"default": {"servers": [url]}, "west": {"servers": [west.url]}},
            dialect="native" if is_native else "2.15",
        )
        async with running(settings) as sidecar:
            followed = ((far, target), (peer, target)) if is_native else ((far, target),)
            await origins.publish(DURING, *followed)
            await origins.end()
            stored = await origins.stored()
            engines = engine(entries, stored, shape.mirror)
            await ended(far, target, engines)
            if is_native:
                await ended(peer, target, engines)
            counters = sidecar.runs[0].counters
            assert isinstance(counters, CopyCounters)
            if not shape.rollups:
                await until(lambda: counters.copied == len(engines))
        actual = await copied(far, target)
        expected = await copied(peer, target) if is_native else engines
        await far.close()
        assert len(actual) > 20 or shape.rollups
        record_property("compared", len(actual))
        assert (counters.lost, counters.rejected, counters.duplicates) == (0, 0, 0)
        if shape.mirror and is_native:
            # A native mirror writes no records; its messages have the origin's sequences.
            records = [copy.sequence for copy in actual]
            assert records == [message.sequence for message in await everything(peer, target)]
            assert _contents(actual) == _contents(expected)
        else:
            mine, theirs = by_entry(actual), by_entry(expected)
            assert mine.keys() == theirs.keys()
            assert len(mine) == len(entries)
            for entry, copies in theirs.items():
                assert mine[entry] == copies


def _contents(copies: list[CopiedMessage]) -> list[tuple[bytes, bytes, bytes]]:
    return [(copy.subject, copy.block, copy.payload) for copy in copies]
