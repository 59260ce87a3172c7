"""What a round plays: a stream, its readers, and the steps that change it, all drawn from a seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from nats_transforms.dialect import Dialect, dialect
from tests.drawn.messages import draw_block, draw_payload, headers

END = "end"
"""The last token of the subject of a round's last message."""

_FAR, _PAST = "@at 2099-01-01T00:00:00Z", "@at 2020-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Shape:
    """A stream and its readers, for one round.

    Attributes:
        name: of the stream; its subjects begin with it.
        config: the stream's configuration, without its republish.
        republish: its native republish; the bridge's differs in the first token of `dest` only.
        entry: the source of the copies.
        target: what the copies' streams have in addition to their sources.
        features: what the steps use: `ttl`, `markers`, `limit markers`, `counters`, `batches`, `fast batches`,
            `schedules`, `rollups`, `removals`; `priority group` for a consumer next to the rules.
        worker: the consumer next to the rules, which pulls and acknowledges; empty for none.
        burst: how many messages are published before an answer is awaited.
    """

    name: str
    config: dict[str, Any]
    republish: dict[str, Any]
    entry: dict[str, Any]
    target: dict[str, Any]
    features: frozenset[str]
    worker: dict[str, Any]
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
class FastBatch:
    """Store messages as one fast batch (2.14), whose commit is its last message, or comes behind it."""

    name: str
    messages: tuple[Publish, ...]
    commit_behind: bool


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete one of the newest messages: the one so many before the last."""

    back: int


@dataclass(frozen=True, slots=True)
class Purge:
    """Purge: the members of the request."""

    how: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Expiry:
    """Wait until what was stored on a subject has expired."""

    subject: str


Step: TypeAlias = Publish | Batch | Expiry | FastBatch | Delete | Purge


def draw(name: str, version: str, chance: random.Random) -> Shape:
    """Draw a stream that the version takes."""
    knows = dialect(version)
    features, config = _features(knows, chance)
    config |= {"subjects": [f"{name}.>"], "storage": chance.choice(["memory", "file"])}
    if not {"counters", "limit markers"} & features:
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
    worker = _worker(knows, chance)
    if worker:
        features.add("priority group")
    return Shape(name, config, republish, entry, target, frozenset(features), worker, chance.choice([1, 8, 64]))


def _worker(knows: Dialect, chance: random.Random) -> dict[str, Any]:
    """A consumer with a priority group (2.11; the policy `prioritized`: 2.12), in a third of the rounds."""
    if not knows.stream_fields_of_2_11 or chance.random() > 0.3:
        return {}
    policies = ["overflow", "pinned_client", *(["prioritized"] if knows.stream_fields_of_2_12 else [])]
    return {"ack_policy": "explicit", "priority_groups": ["g"], "priority_policy": chance.choice(policies)}


def _features(knows: Dialect, chance: random.Random) -> tuple[set[str], dict[str, Any]]:
    if knows.stream_fields_of_2_12 and chance.random() < 0.2:
        return {"counters"}, {"allow_msg_counter": True}
    if knows.stream_fields_of_2_11 and chance.random() < 0.15:
        # As a bucket with markers is: keys expire while the round runs, and so do their markers.
        history = chance.choice([1, 1, 5, 64])
        limits = {"max_msgs_per_subject": history, "allow_msg_ttl": True, "subject_delete_marker_ttl": 1_000_000_000}
        return {"limit markers"}, {**limits, "allow_rollup_hdrs": True, "deny_delete": True, "discard": "new"}
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
    if knows.stream_fields_of_2_14 and chance.random() < 0.3:
        features.add("fast batches")
        config["allow_batched"] = True
    if knows.stream_fields_of_2_12 and chance.random() < 0.3:
        features |= {"schedules"} if knows.stream_fields_of_2_14 else {"schedules", "stalling schedules"}
        config |= {"allow_msg_schedules": True, "allow_msg_ttl": True, "allow_rollup_hdrs": True}
    return features, config


def steps(shape: Shape, messages: int, chance: random.Random) -> Iterator[Step]:
    """Draw so many publications, and what happens among them; the last one is to `END`."""
    name, features = shape.name, shape.features
    subjects = [f"{name}.{kind}.{item}" for kind in ("orders", "users", "日本") for item in ("a", "bcd", "é")]
    batches = 0
    for number in range(messages):
        subject = chance.choice(subjects)
        if "counters" in features:
            yield Publish(subject, b"NATS/1.0\r\nNats-Incr: %+d\r\nA: b\r\n\r\n" % chance.randint(-9, 9))
            continue
        if "limit markers" in features:
            if number == messages // 2:
                yield Publish(f"{name}.expiring.key", headers("Nats-TTL: 1s"))
                yield Expiry(f"{name}.expiring.key")
            yield _change(subject, number, chance)
            continue
        block, payload = draw_block(chance, number), b"%d %b" % (number, draw_payload(chance))
        draw = chance.random()
        if draw < 0.03 and "removals" in features:
            yield Delete(chance.choice([0, 0, 1, 2, 9]))
        elif draw < 0.05 and "removals" in features:
            how = [{}, {"keep": 2}, {"filter": subject}, {"filter": subject, "keep": 1}]
            yield Purge(chance.choice(how[1:] if chance.random() < 0.9 else how))
        elif draw < 0.10 and "rollups" in features:
            block = headers(f"Nats-Rollup: {chance.choice(['sub', 'sub', 'sub', 'all'])}", "A: b")
        elif draw < 0.20 and "ttl" in features:
            block = headers(f"Nats-TTL: {chance.choice(['1s', '1h', 'never'])}", "A: b")
        elif draw < 0.25 and "batches" in features:
            batches += 1
            yield Batch(tuple(_batched(subjects, f"{name}-{batches}", chance)))
            continue
        elif draw < 0.28 and "fast batches" in features:
            batches += 1
            yield _fast(subjects, f"{name}-{batches}", chance, messages + 100 * batches)
            continue
        elif draw < 0.31 and "schedules" in features:
            when, due = chance.choice([_FAR, _FAR, _PAST]), f"{name}.fired.{chance.choice('ab')}"
            subject = f"{name}.schedules.{number}"
            block = headers(f"Nats-Schedule: {when}", f"Nats-Schedule-Target: {due}", "A: b")
        yield Publish(subject, block, payload)
    end = b"NATS/1.0\r\nNats-Incr: 1\r\n\r\n" if "counters" in features else b""
    yield Publish(f"{name}.{END}.{END}", end)


def _change(key: str, number: int, chance: random.Random) -> Publish:
    """A put, most with a TTL, a delete or a purge of a key, the purge with a TTL too."""
    what = chance.random()
    if what < 0.05:
        return Publish(key, headers("KV-Operation: DEL"))
    if what < 0.15:
        lines = ["KV-Operation: PURGE", "Nats-Rollup: sub", *(["Nats-TTL: 1s"] if what < 0.1 else [])]
        return Publish(key, headers(*lines))
    ttl = chance.choice(["1s", "1s", "2s", "1h", ""])
    return Publish(key, headers(f"Nats-TTL: {ttl}") if ttl else b"", b"%d" % number)


def _fast(subjects: list[str], batch: str, chance: random.Random, first: int) -> FastBatch:
    size = chance.randint(2, 12)
    messages = (
        Publish(
            chance.choice(subjects), draw_block(chance, first + number), b"%d of fast %b" % (number, batch.encode())
        )
        for number in range(1, size + 1)
    )
    return FastBatch(batch, tuple(messages), chance.random() < 0.5)


def _batched(subjects: list[str], batch: str, chance: random.Random) -> Iterator[Publish]:
    size = chance.randint(1, 5)
    for number in range(1, size + 1):
        lines = [f"Nats-Batch-Id: {batch}", f"Nats-Batch-Sequence: {number}", "A: b"]
        if number == size:
            lines.append("Nats-Batch-Commit: 1")
        yield Publish(chance.choice(subjects), headers(*lines), b"%d of %b" % (number, batch.encode()))
