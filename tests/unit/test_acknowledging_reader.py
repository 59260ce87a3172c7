"""What a reader acknowledges when deliveries are missing among redelivered ones. The connection is a stand-in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from nats_bridge.client.wire import Delivered
from nats_bridge.client.write_fence import ALWAYS_OPEN
from nats_bridge.consuming.acknowledging_reader import AcknowledgingReader
from nats_bridge.kinds.copying.counters import CopyCounters


class Sink:
    """Keeps the sequences that were delivered."""

    def __init__(self) -> None:
        self.sequences: list[int] = []

    def accept(self, batch: list[Delivered], _: int | None) -> None:
        self.sequences += [int(reply.split(b".")[5]) for _, reply, _, _ in batch]

    def vanished(self, _: int) -> None:
        return


def delivered(times: int, stream_sequence: int, consumer_sequence: int) -> Delivered:
    return b"s", b"$JS.ACK.S.c.%d.%d.%d.1.0" % (times, stream_sequence, consumer_sequence), b"", b""


async def test_a_missing_delivery_before_a_redelivered_one_begins_another_round() -> None:
    """Otherwise the missing message is acknowledged when it is redelivered, and never copied."""
    written: list[bytes] = []
    client = SimpleNamespace(is_connected=True, write_raw=lambda data, _=None: written.append(data))
    connection = SimpleNamespace(client=client, name="default", api=SimpleNamespace())
    plan = SimpleNamespace(rule="rule", stream="S", position="acknowledged", filters=(), work_queue=True, direct=False)
    sink, broken = Sink(), list[str]()
    consumer = SimpleNamespace(plan=plan, name="c", fence=ALWAYS_OPEN, has_sent=lambda _: True)
    reader = AcknowledgingReader(
        cast(Any, connection), cast(Any, consumer), cast(Any, sink), CopyCounters(), lambda _: None, broken.append
    )
    reader._life.happened("open")
    reader._life.happened("opened")
    reader._life.happened("idle")
    reader._on_batch([delivered(1, 98, 1), delivered(1, 99, 2)])
    assert reader.acknowledge(99) == 2  # and the server does not get that of 98
    # Message 100 was the third delivery, which did not arrive.
    reader._on_batch([delivered(2, 98, 4)])
    await reader.idle()
    assert broken == ["deliveries of the source did not arrive"]
    assert sink.sequences == [98, 99]
