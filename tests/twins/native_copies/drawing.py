"""What a round copies: a stream, what is selected of it, and the steps that change it, all drawn from a seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from nats_bridge.transforms.dialect import dialect
from tests.twins.drawing import Batch, Delete, Publish, Purge

_ROOT = "s"
_CUTS = {"src": "s.cut.*", "dest": "c.{{splitfromleft(1,2)}}.{{wildcard(1)}}"}
_TRANSFORMS = [
    {"src": "s.orders.*", "dest": "west.{{wildcard(1)}}.new"},
    {"src": "s.users.>", "dest": "people.>"},
    {"src": "s.deep.*.*", "dest": "d.{{wildcard(2)}}.{{wildcard(1)}}"},
    _CUTS,
    {"src": "s.part.*", "dest": "p.{{partition(7,1)}}.{{wildcard(1)}}"},
    {"src": "s.as-it-is.>", "dest": ""},
]
"""None makes one subject of two: what a rollup removes would depend on when it is copied."""
_ITEMS = ["a", "bcd", "é", "日本", "x-y_z"]
_BLOCKS = [
    b"",
    b"",
    b"NATS/1.0\r\nA: 1\r\nA: 2\r\na: 3\r\n\r\n",
    b"NATS/1.0\r\nx-lower:v\r\nX-Spaces:   two  words  \r\nEmpty:\r\n\r\n",
    b"NATS/1.0\r\nLatin: \xe9\xff\r\nTab:\tvalue\t\r\n\r\n",
    b"NATS/1.0\r\nNats-Stream: liar\r\nNats-Sequence: 1\r\nNats-Last-Sequence: 9\r\n\r\n",
    b"NATS/1.0\r\ntraceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n\r\n",
    b"NATS/1.0 503 Not Today\r\nA: b\r\n\r\n",
    b"NATS/1.0\r\nNats-Msg-Id: own-%d\r\n\r\n",
    b"NATS/1.0\r\nA: \xff\r\nNats-Msg-Id: also-%d\r\nB: c\r\n\r\n",
]
_PAYLOADS = [b"", b"x", b"\r\nLMSG fake 1 5\r\n", bytes(range(256)), b"p" * 2000]
_EXPECTED = "Nats-Expected-Stream"
_FAR = "@at 2099-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Shape:
    """A stream, and what is copied of it.

    Attributes:
        selected: `filter_subject` or `subject_transforms` of the rule, and of the wholly native copy.
        asked: `filter_subject` of the mirror and the source themselves, on both sides.
        config: what the stream has in addition to its subjects.
        target: what streams that copy it have in addition.
        of_sources: what the one with `sources` has in addition to that.
        removed: the rule's `remove_headers`.
        last: a message that is always selected; its payload is given when it is stored.
        features: `rollups`, `ttl`, `removals`, `expectations` (`Nats-Expected-Stream`), `limits`, `batches`,
            `schedules`; or `counters`, alone.
    """

    selected: dict[str, Any]
    asked: dict[str, Any]
    config: dict[str, Any]
    target: dict[str, Any]
    of_sources: dict[str, Any]
    removed: tuple[str, ...]
    last: Publish
    features: frozenset[str]


Step: TypeAlias = Publish | Batch | Delete | Purge


def draw(version: str, source_version: str, chance: random.Random) -> Shape:
    """Draw a stream that the source's server takes, and that the other one can copy.

    Args:
        version: of the server that copies.
        source_version: of the source's server, which makes the wholly native copy.
        chance: decides everything.
    """
    knows, copier = dialect(source_version), dialect(version)
    selected: dict[str, Any] = {}
    asked: dict[str, Any] = {}
    last = f"{_ROOT}.orders.end"
    form = chance.random()
    if form < 0.7:
        some = chance.sample(_TRANSFORMS[1:], chance.randint(0, 5))
        selected = {"subject_transforms": chance.sample([_TRANSFORMS[0], *some], len(some) + 1)}
    elif form < 0.8:
        selected = {"filter_subject": f"{_ROOT}.orders.*"}
    elif form < 0.9:
        asked = {"filter_subject": f"{_ROOT}.orders.*"}
    if copier.stream_fields_of_2_12 and chance.random() < 0.2:
        counted = {"allow_msg_counter": True}
        if "subject_transforms" in selected:  # a cut character, another sum (kd/native-copy/counter-subjects)
            selected = {"subject_transforms": [each for each in selected["subject_transforms"] if each is not _CUTS]}
        end = Publish(last, _block("Nats-Incr: 1"))
        return Shape(selected, asked, counted, {}, chance.choice([{}, counted]), (), end, frozenset({"counters"}))
    features: set[str] = set()
    config: dict[str, Any] = {}
    target: dict[str, Any] = {}
    removed: tuple[str, ...] = ()
    if chance.random() < 0.6:
        features.add("removals")
    if chance.random() < 0.3:
        features.add("rollups")
        config["allow_rollup_hdrs"] = target["allow_rollup_hdrs"] = True
    if knows.stream_fields_of_2_11 and chance.random() < 0.3:
        features.add("ttl")
        config["allow_msg_ttl"] = True
        if copier.stream_fields_of_2_11 and chance.random() < 0.5:
            target["allow_msg_ttl"] = True
    # 2.10 stops at it, natively.
    if knows.stream_fields_of_2_11 and chance.random() < 0.3:
        features.add("expectations")
        if not copier.stream_fields_of_2_11:
            removed = (_EXPECTED,)
    if chance.random() < 0.2:
        features.add("limits")
        config |= chance.choice([{"max_msgs_per_subject": 20}, {"max_msgs": 200}])
    if copier.stream_fields_of_2_12 and chance.random() < 0.3:
        features.add("batches")
        config["allow_atomic"] = True
    # 2.12 stops at one, natively.
    if copier.stream_fields_of_2_14 and chance.random() < 0.3:
        features.add("schedules")
        config["allow_msg_schedules"] = True
    return Shape(selected, asked, config, target, {}, removed, Publish(last), frozenset(features))


def steps(shape: Shape, stream: str, first: int, messages: int, chance: random.Random) -> Iterator[Step]:
    """Draw so many publications, and what happens among them.

    Args:
        shape: what is copied.
        stream: the stream's name.
        first: the number of the first publication, which no other one has.
        messages: how many.
        chance: decides everything.
    """
    features = shape.features
    # Where the copies expire, too, what they still hold would depend on the moment.
    lives = [] if "allow_msg_ttl" in shape.target else ["1s"]
    for number in range(first, first + messages):
        subject = _subject(chance)
        if "counters" in features:
            yield Publish(subject, _block(f"Nats-Incr: {chance.randint(-9, 9):+d}", "A: b"))
            continue
        block = chance.choice(_BLOCKS)
        payload = b"%d %b" % (number, chance.choice(_PAYLOADS))
        drawn = chance.random()
        if drawn < 0.01 and "removals" in features:
            yield Delete(chance.choice([0, 0, 1, 2, 9, 30]))
        elif drawn < 0.013 and "removals" in features:
            how: list[dict[str, Any]] = [{"keep": 20}, {"filter": subject}, {"filter": subject, "keep": 1}]
            yield Purge(chance.choice(how if chance.random() < 0.95 else [{}]))
        elif drawn < 0.04 and "rollups" in features:
            block = _block(f"Nats-Rollup: {'all' if chance.random() < 0.05 else 'sub'}", "A: b")
        elif drawn < 0.12 and "ttl" in features:
            block = _block(f"Nats-TTL: {chance.choice(['1h', 'never', *lives])}", "A: b")
        elif drawn < 0.15 and "expectations" in features:
            block = _block("A: b", f"{_EXPECTED}: {stream}", *(["C: d"] if chance.random() < 0.5 else []))
        elif drawn < 0.18 and "batches" in features:
            yield Batch(tuple(_batched(f"{stream}-{number}", chance)))
            continue
        elif drawn < 0.21 and "schedules" in features:
            subject = f"{_ROOT}.as-it-is.plan.{number}"
            block = _block(f"Nats-Schedule: {_FAR}", f"Nats-Schedule-Target: {_ROOT}.as-it-is.due", "A: b")
        yield Publish(subject, block % number if b"%d" in block else block, payload)


def _subject(chance: random.Random) -> str:
    kind = chance.choice(["orders", "orders", "users", "deep", "cut", "part", "as-it-is", "none"])
    items = [chance.choice(_ITEMS) for _ in range(2 if kind == "deep" else 1)]
    if kind in ("users", "as-it-is") and chance.random() < 0.3:
        items.append(chance.choice(_ITEMS))
    return ".".join([_ROOT, kind, *items])


def _batched(batch: str, chance: random.Random) -> Iterator[Publish]:
    size = chance.randint(1, 5)
    for number in range(1, size + 1):
        lines = ["A: b", f"Nats-Batch-Id: {batch}", f"Nats-Batch-Sequence: {number}"]
        more = ["Nats-Batch-Commit: 1"] if number == size else []
        yield Publish(_subject(chance), _block(*lines, *more), b"%d of %b" % (number, batch.encode()))


def _block(*lines: str) -> bytes:
    return b"NATS/1.0\r\n" + b"".join(line.encode() + b"\r\n" for line in lines) + b"\r\n"
