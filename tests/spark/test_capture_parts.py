"""The parts of a capture that need no server: where chunks end, what a manifest says."""

from __future__ import annotations

import pytest

from nats_bridge_spark.capture.chunk_writing import end_of_chunk, tasks_for
from nats_bridge_spark.capture.facts import drops_messages
from nats_bridge_spark.capture.ledger import folder_of
from nats_bridge_spark.capture.manifest import Capture, Chunk, Gap
from nats_bridge_spark.errors import PipelineError


def test_where_chunks_end() -> None:
    def ends(first: int, last: int, remaining: int | None, average: int = 100, chunk: int = 10) -> int:
        return end_of_chunk(first, last, remaining=remaining, average=average, chunk=chunk)

    assert ends(1, 100, 100) == 10
    assert ends(1, 100, None) == 10
    assert ends(1, 100, 10) == 100
    assert ends(1, 100, 0) == 100
    assert ends(91, 100, 10) == 100
    assert ends(1, 1_000_000_000, 20) == 500_000_000
    assert ends(1, 100, 100_000) == 10
    assert ends(1, 100, 100, average=2**31) == 1
    assert ends(1, 100, 100, average=2**40, chunk=5) == 1


def test_how_many_tasks() -> None:
    assert tasks_for(1, average=100, most=8) == 1
    assert tasks_for(100_001, average=1, most=8) == 2
    assert tasks_for(10_000_000, average=1, most=8) == 8
    assert tasks_for(100, average=1_000_000, most=8) == 3
    assert tasks_for(0, average=1, most=8) == 1


def test_folders_are_sorted_as_their_sequences() -> None:
    assert folder_of(7) == "messages/first_sequence=000000000007"
    assert folder_of(7) < folder_of(10**11)


HELD = Capture("S", "2026-01-01T00:00:00Z", "2.10.27", "", ("a.*",), 5, 5)


def test_a_manifest_is_read_as_it_was_written() -> None:
    held = HELD.expecting(Chunk("messages/x", 5, 9, 4, 70, (("a.parquet", 40), ("b.parquet", 30)))).settled(
        appeared=True
    )
    held = held.without(Gap(10, 12)).expecting(Chunk("", 13, 20, 0))
    assert Capture.of_json(held.to_json(), "here") == held
    done = held.settled(appeared=True)
    assert (done.messages, done.next, done.last) == (4, 21, 20)
    assert [(chunk.first, chunk.last) for chunk in done.chunks] == [(5, 9), (13, 20)]
    assert held.settled(appeared=False).next == 13


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "here: not the manifest of a capture"),
        ("[]", "here: not the manifest of a capture"),
        ('{"format": "nats-bridge capture"}', "here: not the manifest of a capture"),
        (HELD.to_json().replace('"begin"', '"started"'), "here: not the manifest of a capture"),
        (
            HELD.to_json().replace('"version": 1', '"version": 2'),
            "here: version 2 of the format; this nats-bridge knows version 1",
        ),
    ],
)
def test_what_is_no_manifest(text: str, said: str) -> None:
    with pytest.raises(PipelineError) as error:
        Capture.of_json(text, "here")
    assert str(error.value) == said


@pytest.mark.parametrize(
    ("config", "drops"),
    [
        ({"max_msgs": -1, "max_bytes": -1, "max_age": 0, "max_msgs_per_subject": -1}, False),
        ({"max_msgs": 10, "discard": "old"}, True),
        ({"max_msgs": 10, "max_bytes": 10, "discard": "new"}, False),
        ({"max_msgs_per_subject": 1, "discard": "new"}, True),
        ({"max_msgs_per_subject": 1, "discard": "new", "discard_new_per_subject": True}, False),
        ({"max_age": 1, "discard": "new"}, True),
        ({"allow_rollup_hdrs": True}, True),
        ({"allow_msg_ttl": True}, True),
    ],
)
def test_which_streams_drop_messages(config: dict[str, object], drops: bool) -> None:
    assert drops_messages(config) is drops
