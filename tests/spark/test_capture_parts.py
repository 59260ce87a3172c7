"""The parts of a capture that need no server: where chunks end, where a capture resumes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nats_bridge.client.stream_identity import MessageStamp
from nats_bridge_spark.capture import parquet_files
from nats_bridge_spark.capture.folder import Capture, CaptureExtent, Chunk, SavedStream
from nats_bridge_spark.capture.parquet_files import end_of_chunk, tasks_for
from nats_bridge_spark.errors import PipelineError
from nats_bridge_spark.source.stream_state import removes_messages


def test_where_chunks_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(first: int, last: int, remaining: int, average: int = 100) -> int:
        return end_of_chunk(first, last, remaining=remaining, average=average)

    monkeypatch.setattr(parquet_files, "MESSAGES", 10)

    assert ends(1, 100, 100) == 10
    assert ends(1, 100, 10) == 100
    assert ends(1, 100, 0) == 100
    assert ends(91, 100, 10) == 100
    assert ends(1, 1_000_000_000, 20) == 500_000_000
    assert ends(1, 100, 100, average=2**31) == 1
    assert ends(1, 100, 100, average=2**40) == 1


def test_how_many_tasks() -> None:
    assert tasks_for(1, average=100, most=8) == 1
    assert tasks_for(100_001, average=1, most=8) == 2
    assert tasks_for(10_000_000, average=1, most=8) == 8
    assert tasks_for(100, average=1_000_000, most=8) == 3
    assert tasks_for(0, average=1, most=8) == 1


_SAVED = SavedStream({"name": "S"}, None, "2.10.27", "2026-01-01T00:00:00Z")
_EXTENT = CaptureExtent("2026-01-01T00:00:00Z", ("a.*",), 5, (MessageStamp(5, 7),), 12, 20, ((10, 11),))
_TEXT = replace(_SAVED, extent=_EXTENT).to_json()


def test_what_is_saved_of_a_stream_is_read_as_it_was_written() -> None:
    for saved in (_SAVED, replace(_SAVED, extent=_EXTENT)):
        assert SavedStream.of_json(saved.to_json(), "here") == saved


@pytest.mark.parametrize(
    ("chunks", "covered", "next_", "missing"), [((), 12, 20, 13), ((Chunk(5, 9, 4), Chunk(12, 25, 10)), 26, 26, 5)]
)
def test_where_a_capture_resumes(chunks: tuple[Chunk, ...], covered: int, next_: int, missing: int) -> None:
    held = Capture(_SAVED, _EXTENT, chunks)
    assert (held.covered, held.next, held.last, held.missing) == (covered, next_, next_ - 1, missing)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "here: not the configuration of a captured stream"),
        ("[]", "here: not the configuration of a captured stream"),
        ('{"format": "nats-bridge stream"}', "here: not the configuration of a captured stream"),
        (_TEXT.replace('"begin"', '"started"'), "here: not the configuration of a captured stream"),
        (
            _TEXT.replace('"version": 2', '"version": 1'),
            "here: version 1 of the format; this nats-bridge knows version 2: ",
        ),
    ],
)
def test_what_is_not_read(text: str, said: str) -> None:
    with pytest.raises(PipelineError) as error:
        SavedStream.of_json(text, "here")
    assert str(error.value).startswith(said)


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
    assert removes_messages(config) is drops
