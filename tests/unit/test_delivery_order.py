"""Which deliveries a reader takes, misses and repeats; the example at the top of the module, and random histories."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.ack_reply import AckReply
from nats_bridge.consuming.delivery_order import (
    CheckStream,
    ConfirmAgain,
    Deliver,
    DeliveriesLost,
    DeliveryOrder,
    Missing,
    last_named,
    last_sent,
)
from nats_bridge.kinds.copying.counters import CopyCounters


def delivery(stream_sequence: int, number: int, times: int = 1) -> Delivered:
    return b"s", b"$JS.ACK.S.c.%d.%d.%d.1.0" % (times, stream_sequence, number), b"", b""


def beat(last_consumer: int, last_stream: int) -> bytes:
    return b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n\r\n" % (
        last_consumer,
        last_stream,
    )


def order_of(*, filtered: bool = False, redelivers: bool = False) -> DeliveryOrder:
    return DeliveryOrder(CopyCounters(), filtered=filtered, redelivers=redelivers)


class Reading:
    """A reader without I/O: it performs the steps, and reads the stream's messages again from a list."""

    def __init__(self, order: DeliveryOrder, held: list[int]) -> None:
        self.order = order
        self.held = held
        self.delivered: list[int] = []
        self.gaps: list[int | None] = []
        self.removed = 0
        self.checks = 0
        self.confirmed: list[bytes] = []

    def arrive(self, batch: list[Delivered], *, confirms: bool = False) -> None:
        last = self.order.following(batch)
        if last is not None:
            self._deliver(batch, again=False)
            return
        for step in self.order.sort_out(batch, lambda _: False, confirms=confirms):
            match step:
                case Deliver(messages) if messages:
                    self._deliver(messages, again=False)
                case Missing():
                    self.fill(step)
                case CheckStream():
                    self.checks += 1
                case ConfirmAgain(replies):
                    self.confirmed += replies
                case _:
                    pass

    def fill(self, missing: Missing) -> None:
        start, first = self.order.handled, self.order.next
        if missing.upto <= start:
            return
        found = [sequence for sequence in self.held if start < sequence <= missing.upto]
        if found:
            self._deliver([delivery(sequence, 0) for sequence in found], again=True)
        self.removed += self.order.filled(missing, start, first, len(found))

    def heartbeat(self, block: bytes) -> None:
        match self.order.heartbeat(block):
            case Missing() as missing:
                self.fill(missing)
                self.order.next = missing.following
            case CheckStream():
                self.checks += 1
            case None:
                pass

    def _deliver(self, batch: list[Delivered], *, again: bool) -> None:
        sequences = [AckReply.parse(message[1]).stream_sequence for message in batch]
        self.gaps.append(self.order.deliver(batch, sequences[-1], again=again))
        self.delivered += sequences


def test_the_example_at_the_top_of_the_module() -> None:
    order = order_of()
    reading = Reading(order, [1, 2, 5, 6, 7, 8, 9, 10, 11, 12])

    def row() -> tuple[int, int, int, int]:
        return order.handled, order.next, order.jumped, order.checkpoint.handled

    reading.arrive([delivery(1, 1), delivery(2, 2), delivery(5, 3)])
    assert row() == (5, 4, 2, 0)
    assert order.move_checkpoint(order.progress) == 2
    assert row() == (5, 4, 2, 5)
    reading.arrive([delivery(7, 5)])
    assert row() == (7, 6, 2, 5)
    reading.arrive([delivery(7, 6)])
    assert row() == (7, 7, 2, 5)
    reading.heartbeat(beat(8, 9))
    assert row() == (9, 9, 2, 5)
    reading.arrive([delivery(12, 9)])
    assert row() == (12, 10, 4, 5)
    order.return_to_checkpoint()
    assert row() == (5, 10, 2, 5)
    assert reading.delivered == [1, 2, 5, 6, 7, 8, 9, 12]
    assert reading.gaps == [0, None, None, None, 9]
    counters = order._counters
    assert (counters.repeated, counters.gaps, counters.recovered, counters.lost) == (1, 2, 3, 0)


@pytest.mark.parametrize(
    ("batch", "follows"),
    [
        ([delivery(4, 3)], True),
        ([delivery(4, 3), delivery(9, 4)], True),
        ([delivery(4, 4)], False),  # a delivery is missing
        ([delivery(4, 2)], False),
        ([delivery(3, 3)], False),  # a repeated message
        ([delivery(4, 3), delivery(5, 5)], False),
        ([delivery(5, 3), delivery(4, 4)], False),
        ([delivery(4, 3, times=2)], False),
        ([delivery(4, 3), delivery(5, 4, times=2)], False),
    ],
)
def test_only_a_batch_that_is_the_next_one_is_taken_at_once(batch: list[Delivered], follows: bool) -> None:
    order = order_of(redelivers=True)
    order.handled, order.next = 3, 3
    assert order.following(batch) == (AckReply.parse(batch[-1][1]).stream_sequence if follows else None)
    assert order.next == (3 + len(batch) if follows else 3)


def test_a_repeated_delivery_counts_only_if_the_server_redelivers() -> None:
    order = order_of()
    assert order.following([delivery(1, 1, times=2)]) == 1


@pytest.mark.parametrize(
    ("block", "step"),
    [
        (b"NATS/1.0 100 Idle Heartbeat\r\n\r\n", None),
        (beat(4, 9), None),
        (beat(5, 11), Missing(11, 6)),
        (beat(3, 9), CheckStream()),
    ],
)
def test_a_heartbeat_shows_what_is_missing_and_what_has_begun_again(block: bytes, step: object) -> None:
    order = order_of()
    order.handled, order.next = 9, 5
    assert order.heartbeat(block) == step
    assert order._counters.gaps == isinstance(step, Missing)


def test_what_a_stream_no_longer_holds_is_lost_up_to_what_was_sent() -> None:
    order = order_of()
    reading = Reading(order, [3])
    reading.arrive([delivery(6, 4)])  # 1 to 5 were three deliveries, and two had been removed before
    assert reading.delivered == [3, 6]
    assert (order._counters.recovered, order._counters.lost, reading.removed) == (1, 2, 2)
    assert reading.gaps == [0, 3]


def test_a_filter_leaves_unknown_what_was_removed() -> None:
    order = order_of(filtered=True)
    reading = Reading(order, [])
    reading.arrive([delivery(5, 1)])
    reading.arrive([delivery(9, 3)])
    assert (reading.gaps, reading.removed, order.jumped, order._counters.lost) == ([None, None], 0, 0, 1)


def test_a_repeated_message_is_confirmed_again_only_if_nothing_new_is() -> None:
    for batch, confirmed in (([delivery(2, 4)], 1), ([delivery(2, 4), delivery(4, 5)], 0)):
        reading = Reading(order_of(redelivers=True), [])
        reading.order.handled, reading.order.next = 3, 4
        reading.arrive(batch, confirms=True)
        assert len(reading.confirmed) == confirmed


def test_a_younger_message_with_a_lower_sequence_is_checked_once() -> None:
    order = order_of()
    order.handled, order.next = 9, 10
    steps: list[object] = []
    began_again: Callable[[AckReply], bool] = lambda ack: ack.stream_sequence < 9  # noqa: E731
    for step in order.sort_out([delivery(1, 10), delivery(2, 11)], began_again, confirms=False):
        steps.append(step)
        if step == CheckStream():
            order.resume(0)
    assert steps == [Deliver([]), CheckStream(), Deliver([delivery(1, 10), delivery(2, 11)])]


def test_a_round_ends_at_the_first_delivery_that_is_missing() -> None:
    order = order_of(redelivers=True)
    order.handled, order.next = 5, 6
    batch = [delivery(4, 6, times=2), delivery(5, 7, times=2), delivery(6, 8), delivery(9, 11)]
    assert list(order.sort_out_round(batch, 3, 4)) == [
        DeliveriesLost(),
        ConfirmAgain([batch[0][1]]),
        Deliver([batch[2]]),
    ]
    assert (order.next, order._counters.repeated) == (9, 2)


def test_a_round_ends_at_what_was_unacknowledged_before_it() -> None:
    order = order_of(redelivers=True)
    order.handled, order.next = 5, 1
    assert list(order.sort_out_round([delivery(3, 1)], 5, 5)) == [DeliveriesLost(), ConfirmAgain([]), Deliver([])]


def test_pending_is_what_was_sent_and_not_delivered() -> None:
    order = order_of()
    order.next = 5
    assert order.pending([]) == 0
    assert order.pending([last_sent([delivery(9, 7), (b"s", b"forged", b"", b"")]), last_named(beat(6, 8))]) == 3
    order.sent = 9
    assert order.pending([7]) == 5


def test_a_checkpoint_counts_each_removed_sequence_once() -> None:
    order = order_of()
    reading = Reading(order, [])
    reading.arrive([delivery(4, 1)])
    assert order.move_checkpoint(order.progress) == 3
    reading.arrive([delivery(7, 2)])
    order.give_up(1)
    assert (order._counters.lost, order.move_checkpoint(order.progress)) == (1, 1)
    reading.arrive([delivery(9, 3)])
    order.return_to_checkpoint()
    assert (order.handled, order.jumped, order.last_reply) == (7, order.checkpoint.jumped, b"")


def test_messages_after_the_progress_belong_to_the_next_checkpoint() -> None:
    order = order_of()
    reading = Reading(order, [])
    before = order.progress
    reading.arrive([delivery(4, 1)])
    assert (order.move_checkpoint(before), order.move_checkpoint(order.progress)) == (0, 3)


@given(
    held=st.sets(st.integers(1, 30), min_size=1).map(sorted),
    arrives=st.sets(st.integers(0, 29)),
    sizes=st.lists(st.integers(1, 5), min_size=40, max_size=40),
    repeats=st.lists(st.tuples(st.integers(0, 29), st.integers(0, 29)), max_size=3),
)
def test_every_message_is_delivered_once_and_in_order(
    held: list[int], arrives: set[int], sizes: list[int], repeats: list[tuple[int, int]]
) -> None:
    """Whatever deliveries are missing or repeated; a heartbeat follows the last one."""
    order = order_of(redelivers=True)
    reading = Reading(order, held)
    sent: list[int] = []
    for index, sequence in enumerate(held):
        sent.append(sequence)
        sent += [held[max(index - back, 0)] for at, back in repeats if at == index]
    coming = [delivery(sequence, number) for number, sequence in enumerate(sent, 1) if number - 1 in arrives]
    while coming:
        size = sizes.pop()
        reading.arrive(coming[:size])
        coming = coming[size:]
    reading.heartbeat(beat(len(sent), held[-1]))
    assert reading.delivered == held
    if len(sent) == len(held):
        assert order._counters.lost == 0
        assert reading.removed + order.jumped == held[-1] - len(held)
