"""What a repair publishes: what the comparison says that the right side must have, or a reason why not."""

from __future__ import annotations

from typing import Any

import pytest

from nats_bridge.bridge.replication import Target, parts_of
from nats_bridge.pipeline.diff.comparing import Comparison
from nats_bridge.pipeline.diff.repair.copies import Copies
from nats_bridge.pipeline.diff.repair.steps import Step
from nats_bridge.pipeline.diff.rules import transform_of
from tests.spark.histories import block

RULE = transform_of("l.>", "r.>", "L")
MOVED = Comparison("provenance:right", bridged=True, source=b"L", rule=RULE)
TWINS = Comparison("provenance", bridged=True)
IDS = Comparison("id")
NEWEST = Comparison("subject", bridged=True, rule=RULE)


def made(comparison: Comparison, lines: bytes, subject: bytes = b"l.a", **config: Any) -> tuple[bytes, bytes] | str:
    """Subject and header block of what is published for message 7, which has 3 on the right; or the reason."""
    info = {
        "config": {"name": "R", "subjects": ["r.>"], **config},
        "state": {"messages": 0, "bytes": 0, "last_seq": 0},
        "created": "2026-11-24T00:00:00Z",
    }
    copies = Copies(comparison, "L", Target.of(info, "2.15.3"), 1000)
    found = copies.made(1, Step("append", "missing", "", 7, 3, subject, lines, b"data"))
    if isinstance(found, str):
        return found
    subject, header_block, data = parts_of(found[1])
    assert data == b"data"
    return subject, header_block


def test_a_copy_has_its_record_under_a_name_that_is_no_position() -> None:
    found = made(MOVED, block(b"A: 1", b"Nats-Expected-Stream: L"))
    assert not isinstance(found, str)
    subject, lines = found
    assert subject == b"r.a"
    assert b"\r\nA: 1\r\nNats-Msg-Id: bridge-" in lines
    assert b"\r\nNats-Repair-Source: L 7 " in lines
    assert b"-Source: " not in lines.replace(b"Nats-Repair-Source: ", b"")
    assert b"Nats-Expected-" not in lines


@pytest.mark.parametrize("name", [b"Nats-Stream-Source", b"Nats-Bridge-Source", b"Nats-Repair-Source"])
def test_a_copy_of_a_copy_names_the_same_message(name: bytes) -> None:
    found = made(TWINS, block(b"A: 1", name + b": S 9 > >"), b"r.a")
    assert not isinstance(found, str)
    assert b"\r\nNats-Repair-Source: S 9 > >\r\n" in found[1]
    assert found[1].count(b"-Source: ") == 1


def test_a_put_expects_what_was_compared() -> None:
    found = made(
        NEWEST, block(b"KV-Operation: DEL", b"Nats-Expected-Last-Subject-Sequence: 1", b"Nats-Stream-Source: S 9")
    )
    assert not isinstance(found, str)
    assert found[1].endswith(b"\r\nNats-Expected-Last-Subject-Sequence: 3\r\n\r\n")
    assert found[1].count(b"Nats-Expected-") == 1
    assert b"-Source: " not in found[1]


def test_a_publisher_s_id_stays_the_only_one() -> None:
    lines = block(b"Nats-Msg-Id: mine", b"A: 1")
    assert made(IDS, lines, b"r.a") == (b"r.a", lines)


@pytest.mark.parametrize(
    ("comparison", "lines", "subject", "config", "reason"),
    [
        (MOVED, block(b"Nats-Rollup: sub"), b"l.a", {"allow_rollup_hdrs": True}, "its Nats-Rollup would remove others"),
        (IDS, block(b"Nats-Msg-Id: 1", b"Nats-Stream-Source: S 9 > >"), b"r.a", {}, "it says where it comes from"),
        (IDS, block(b"Nats-Msg-Id: 1"), b"other", {}, "stream 'R' has no subject for 'other'"),
        (MOVED, block(b"A: " + b"x" * 1000), b"l.a", {}, "with its headers it has "),
        (NEWEST, block(b"A: " + b"x" * 910), b"l.a", {}, "with its headers it is larger than the 1000 bytes"),
        (NEWEST, block(b"Nats-Rollup: sub"), b"l.a", {}, "the right side's stream would change it"),
        (IDS, block(b"Nats-Msg-Id: 1", b"Nats-Incr: +1"), b"r.a", {}, "the right side's stream would change it"),
    ],
)
def test_what_is_not_published(
    comparison: Comparison, lines: bytes, subject: bytes, config: dict[str, Any], reason: str
) -> None:
    found = made(comparison, lines, subject, **config)
    assert isinstance(found, str)
    assert found[: len(reason)] == reason
