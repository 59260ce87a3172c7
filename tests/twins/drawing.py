"""What a round plays: a stream, its readers, and the steps that change it, all drawn from a seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from nats_bridge.transforms.dialect import Dialect, dialect

__all__ = ["END", "Batch", "Delete", "Publish", "Purge", "Shape", "Step", "draw", "steps"]

END = "end"
"""The last token of the subject of a round's last message."""

_BLOCKS = [
    b"",
    b"NATS/1.0\r\nA: 1\r\nA: 2\r\na: 3\r\n\r\n",
    b"NATS/1.0\r\nx-lower:v\r\nX-Spaces:   two  words  \r\nEmpty:\r\n\r\n",
    b"NATS/1.0\r\nNats-Stream: liar\r\nNats-Sequence: 1\r\nNats-Last-Sequence: 9\r\n\r\n",
    b"NATS/1.0\r\nLatin: \xe9\xff\r\nTab:\tvalue\t\r\n\r\n",
    b"NATS/1.0\r\ntraceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n\r\n",
    b"NATS/1.0 503 Not Today\r\nA: b\r\n\r\n",
]
_PAYLOADS = [b"", b"x", b"\r\nMSG fake 1 5\r\n", bytes(range(256)), b"p" * 2000]
_FAR, _PAST = "@at 2099-01-01T00:00:00Z", "@at 2020-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Shape:
    """A stream and its readers, for one round.

    Attributes:
        name: of the stream; its subjects begin with it.
        config: the stream's configuration, without its republish.
        republish: its native republish; the bridge's differs in the first token of `dest` only.
        entry: the source of the copies.
        target: what the copies' streams have beside their sources.
        features: what the steps use: `ttl`, `markers`, `counters`, `batches`, `schedules`, `rollups`, `removals`.
        burst: how many messages are published before an answer is awaited.
    """

    name: str
    config: dict[str, Any]
    republish: dict[str, Any]
    entry: dict[str, Any]
    target: dict[str, Any]
    features: frozenset[str]
    burst: int

    @property
    def copies(self) -> bool:
        """Whether native sourcing is played: that of 2.12 stalls at schedules."""
        return "stalling schedules" not in self.features


@dataclass(frozen=True, slots=True)
class Publish:
    """Store one message."""

    subject: str
    block: bytes = b""
    payload: bytes = b""


@dataclass(frozen=True, slots=True)
class Batch:
    """Store messages as one atomic batch (2.12)."""

    messages: tuple[Publish, ...]


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete one of the newest messages: the one so many before the last."""

    back: int


@dataclass(frozen=True, slots=True)
class Purge:
    """Purge: the members of the request."""

    how: dict[str, Any] = field(default_factory=dict)


Step: TypeAlias = Publish | Batch | Delete | Purge


def draw(name: str, version: str, chance: random.Random) -> Shape:
    """Draw a stream that the version takes."""
    knows = dialect(version)
    features, config = _features(knows, chance)
    config |= {"subjects": [f"{name}.>"], "storage": chance.choice(["memory", "file"])}
    if "counters" not in features:
        # Limits that remove messages: as many as rounds without.
        config |= chance.choice(
            [{}, {}, {"max_msgs_per_subject": chance.choice([1, 2, 5])}, {"max_msgs": chance.choice([40, 400])}]
        )
    republish = {"src": f"{name}.>", "dest": f"{{}}.{name}.>", "headers_only": chance.random() < 0.2}
    entry: dict[str, Any] = {"name": name}
    if chance.random() < 0.7:
        entry["subject_transforms"] = [{"src": f"{name}.*.>", "dest": f"T{name}.{{{{wildcard(1)}}}}.>"}]
    target: dict[str, Any] = {"subjects": [f"T{name}.>"]}
    if config.get("allow_rollup_hdrs"):
        target["allow_rollup_hdrs"] = True  # or native sourcing stalls at the first one
    if "counters" in features and chance.random() < 0.5:
        target["allow_msg_counter"] = True
    return Shape(name, config, republish, entry, target, frozenset(features), chance.choice([1, 8, 64]))


def _features(knows: Dialect, chance: random.Random) -> tuple[set[str], dict[str, Any]]:
    if knows.stream_fields_of_2_12 and chance.random() < 0.2:
        return {"counters"}, {"allow_msg_counter": True}
    features: set[str] = set()
    config: dict[str, Any] = {}
    if chance.random() < 0.5:
        features.add("removals")
    if chance.random() < 0.3:
        features.add("rollups")
        config["allow_rollup_hdrs"] = True
    if knows.stream_fields_of_2_11 and chance.random() < 0.4:
        features.add("ttl")
        config["allow_msg_ttl"] = True
        if chance.random() < 0.5:
            features.add("markers")
            config |= {"subject_delete_marker_ttl": 3_600_000_000_000, "allow_rollup_hdrs": True}
    if knows.stream_fields_of_2_12 and chance.random() < 0.3:
        features.add("batches")
        config["allow_atomic"] = True
    if knows.stream_fields_of_2_12 and chance.random() < 0.3:
        features |= {"schedules"} if knows.stream_fields_of_2_14 else {"schedules", "stalling schedules"}
        config |= {"allow_msg_schedules": True, "allow_msg_ttl": True, "allow_rollup_hdrs": True}
    return features, config


def steps(shape: Shape, messages: int, chance: random.Random) -> Iterator[Step]:
    """Draw so many publications, and what happens among them; the last one is to `END`."""
    name, features = shape.name, shape.features
    subjects = [f"{name}.{kind}.{item}" for kind in ("orders", "users", "日本") for item in ("a", "bcd", "é")]
    batches = left = 0
    for number in range(messages):
        subject = chance.choice(subjects)
        if "counters" in features:
            yield Publish(subject, b"NATS/1.0\r\nNats-Incr: %+d\r\nA: b\r\n\r\n" % chance.randint(-9, 9))
            continue
        block, payload = chance.choice(_BLOCKS), b"%d %b" % (number, chance.choice(_PAYLOADS))
        draw = chance.random()
        if draw < 0.03 and "removals" in features:
            yield Delete(chance.choice([0, 0, 1, 2, 9]))
        elif draw < 0.05 and "removals" in features:
            how = [{}, {"keep": 2}, {"filter": subject}, {"filter": subject, "keep": 1}]
            yield Purge(chance.choice(how[1:] if chance.random() < 0.9 else how))
        elif draw < 0.10 and "rollups" in features:
            block = _block(f"Nats-Rollup: {chance.choice(['sub', 'sub', 'sub', 'all'])}", "A: b")
        elif draw < 0.20 and "ttl" in features:
            block = _block(f"Nats-TTL: {chance.choice(['1s', '1h', 'never'])}", "A: b")
        elif draw < 0.25 and "batches" in features and not left:
            batches += 1
            yield Batch(tuple(_batched(subjects, f"{name}-{batches}", chance)))
            continue
        elif draw < 0.28 and "schedules" in features:
            when, due = chance.choice([_FAR, _FAR, _PAST]), f"{name}.fired.{chance.choice('ab')}"
            subject = f"{name}.schedules.{number}"
            block = _block(f"Nats-Schedule: {when}", f"Nats-Schedule-Target: {due}", "A: b")
        yield Publish(subject, block, payload)
    end = b"NATS/1.0\r\nNats-Incr: 1\r\n\r\n" if "counters" in features else b""
    yield Publish(f"{name}.{END}.{END}", end)


def _batched(subjects: list[str], batch: str, chance: random.Random) -> Iterator[Publish]:
    size = chance.randint(1, 5)
    for number in range(1, size + 1):
        lines = [f"Nats-Batch-Id: {batch}", f"Nats-Batch-Sequence: {number}", "A: b"]
        if number == size:
            lines.append("Nats-Batch-Commit: 1")
        yield Publish(chance.choice(subjects), _block(*lines), b"%d of %b" % (number, batch.encode()))


def _block(*lines: str) -> bytes:
    return b"NATS/1.0\r\n" + b"".join(line.encode() + b"\r\n" for line in lines) + b"\r\n"
