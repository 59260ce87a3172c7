"""What is copied in tests that compare copies: shapes of rules, and seeded messages with every kind of header block."""

from __future__ import annotations

import base64
import random
import zlib
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from nats_transforms.dialect import Dialect
from nats_transforms.republish import StoredMessage
from nats_transforms.source_record import HEADER, TWIN_HEADER, first_record
from tests.drawn.messages import draw_block, draw_payload, headers
from tests.live.copied_messages import everything, last_sequence
from tests.live.raw_messages import RawPeer
from tests.live.until import until

EXPECTATIONS = b"NATS/1.0\r\nB: 1\r\nNats-Expected-Stream: {s}\r\nC: 2\r\n\r\n"
CHAIN = b"NATS/1.0\r\nA: 1\r\nNats-Stream-Source: X 7 > >\r\nNats-Stream-Sourced: no\r\n\r\n"
SUFFIXES = ["x.a", "x.bcd", "y.a", "y.é", "z.日本.f", "other", "deep.er.and.deeper", "x.e-f"]


@dataclass(frozen=True, slots=True)
class Shape:
    """What is copied; `{a}` and `{b}` stand for the sources."""

    entries: list[dict[str, Any]]
    subjects: list[str]
    sources: str = "a"
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
        [{"name": "{a}", "subject_transforms": [{"src": "{a}.x.*", "dest": "t{a}.{{{{split(1,-)}}}}.end"}]}], ["t{a}.>"]
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
                "subject_transforms": [{"src": "{a}.x.*", "dest": "t{a}.$1.x"}, {"src": "{a}.y.*", "dest": ""}],
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


class Sources:
    """The source streams, and seeded messages for them."""

    def __init__(self, peer: RawPeer, names: dict[str, str], shape: Shape, native: Dialect, seed: str) -> None:
        self._peer = peer
        self._names = [names[letter] for letter in shape.sources]
        self._random = random.Random(zlib.crc32(seed.encode()))
        self._shape = shape
        self._native = native
        self._published = 0
        self._blocks = [b"NATS/1.0\r\nnats-msg-id: lower\r\n\r\n"]
        """In place of one in ten drawn blocks: an id to no server, and headers that some servers act on."""
        if native.mirroring_strips_expectations if shape.mirror else native.sourcing_strips_expectations:
            self._blocks.append(EXPECTATIONS)
        if not native.source_record_is_refused_from_clients and not shape.mirror:
            self._blocks.append(CHAIN)

    async def create(self) -> None:
        for name in self._names:
            await self._peer.create_stream(name=name, subjects=[f"{name}.>"], **self._shape.config)

    async def publish(self, messages: int, *followed: tuple[RawPeer, str], holes: bool = False) -> None:
        """Publish; `followed` are targets that copy all of it at the same time."""
        # Of the existing messages, the last ones may be deleted.
        newest = (await everything(self._peer, self._names[0]))[-1].sequence if followed else 0
        for _ in range(messages):
            self._published += 1
            name, suffix = self._random.choice(self._names), self._random.choice(SUFFIXES)
            block, payload = draw_block(self._random, self._published), draw_payload(self._random)
            if self._random.random() < 0.1:
                block = self._random.choice(self._blocks).replace(b"{s}", name.encode())
            if self._shape.rollups and self._random.random() < 0.05:
                block = headers(f"Nats-Rollup: {self._random.choice(['sub', 'sub', 'all'])}")
                if not self._native.stream_fields_of_2_10:
                    # There consumers now and then skip what they have not delivered: kd/messages/skipped.
                    for peer, target in followed:
                        await until(partial(_has_copied, peer, target, newest))
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


async def _has_copied(peer: RawPeer, target: str, sequence: int) -> bool:
    """Whether the newest copy in a target is of this message of its one source, or of a later one."""
    last = await last_sequence(peer, target)
    answer = await peer.api(f"STREAM.MSG.GET.{target}", {"seq": last})
    if "message" not in answer:
        return False
    block = base64.b64decode(answer["message"].get("hdrs") or "")
    record = first_record(block, HEADER) or first_record(block, TWIN_HEADER)
    return record is not None and record.sequence >= sequence
