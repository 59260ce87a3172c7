"""Tracks the order of deliveries of one reader by their sequences, without I/O.

The problem: deliveries can be missing, or arrive twice. Another client can change the consumer, which then leaves
messages out. Still the sink must receive each message once and in order, and each sequence that never arrives must be
counted once: as removed from the stream, recovered, or lost.

The idea: the reply subject of each delivery contains two numbers, the sequence of the message in the stream, and the
number of the delivery at its consumer.

* The numbers of deliveries have no gaps. So a delivery without the next number shows that others are missing. A
  heartbeat names the last delivery that was sent: it shows missing deliveries that no other delivery follows.
* The sequences of a stream have gaps, because messages are removed and filters select. So a jump in them means nothing
  by itself. A sequence that was read before shows a repeated message.
* A consumer that another client has changed also numbers its deliveries without gaps. The messages that it leaves out
  look like removed ones. So jumps are first only added up (`jumped`). They count as removed when the caller has seen
  that the consumer is unchanged, and moves the `checkpoint`. If it was changed, the messages after the checkpoint are
  read again (`return_to_checkpoint`), or counted as lost (`give_up`).

Example: the stream holds messages 1 to 12, but 3 and 4 were removed. `next` is the number of the next delivery.

    event                          handled  next  jumped  checkpoint
                                   0        1     0       0
    messages 1 2 5 as 1 2 3        5        4     2       0           the next ones: delivered at once
    the consumer is unchanged      5        4     2       5           the checkpoint moves: two were removed
    message 7 as 5                 5        4     2       5           delivery 4 is missing: `Missing`, up to 6
        message 6 is read again    6        5     2       5           recovered, then `Deliver`
                                   7        6     2       5
    message 7 as 6                 7        7     2       5           sequence 7 was read before: repeated
    heartbeat: last is 8, 9        7        7     2       5           deliveries 7 and 8 are missing: `Missing`, up to 9
        8 and 9 are read again     9        9     2       5
    message 12 as 9                12       10    4       5           a jump over 10 and 11: removed, or left out?
    the consumer has a filter      5        10    2       5           left out: replaced, and all after 5 read again

The caller

1. asks `following` about each batch. If that returns a sequence, it calls `deliver` and hands the batch to the sink;
2. otherwise it performs the steps of `sort_out` (or `sort_out_round`), each before it requests the next one. For
   `Missing` it reads the range again, calls `deliver` for each batch of it, and `filled` at the end;
3. passes heartbeats to `heartbeat`, and performs its step in the same way;
4. waits until the sink has finished a batch before it calls `deliver` again;
5. keeps `progress`, requests the consumer's configuration, and if that is unchanged moves the checkpoint to the kept
   progress. Messages that arrive in between may come from a consumer that was changed after the answer.

A lost connection changes nothing here. Deliveries that were lost with it show as missing ones later. If the caller
finds another stream, or a stream that lost its end, it calls `resume`. For another consumer it sets `next`. After both
it moves the checkpoint to the present progress.

Invariants, and the damage without them:

* Messages at or before `handled` are never delivered again: the sink would publish them twice.
* `handled` and `next` only grow, except for `resume`, `return_to_checkpoint`, and a consumer that begins again: missing
  deliveries would go unnoticed.
* `checkpoint` is never after `handled`: messages left out by a changed consumer would count as removed.
* Each sequence that was jumped without a filter is counted once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.ack_reply import ACK, AckReply, fields_after_count
from nats_bridge.observability.counters import ReaderCounters
from nats_transforms import header_block


@dataclass(frozen=True, slots=True)
class ReaderProgress:
    """How far a reader was at some time.

    Attributes:
        handled: `DeliveryOrder.handled` at that time.
        messages: the number of messages delivered until then.
        jumped: the number of sequences jumped until then.
    """

    handled: int = 0
    messages: int = 0
    jumped: int = 0


class Deliver(NamedTuple):
    """Deliver messages to the sink."""

    messages: list[Delivered]


class Missing(NamedTuple):
    """Read the missing messages again: up to stream sequence `upto`, and before delivery `following`."""

    upto: int
    following: int


class CheckStream(NamedTuple):
    """Check whether the stream is still the one that was read before."""


class ConfirmAgain(NamedTuple):
    """Acknowledge messages again that were delivered before: the first acknowledgement may be lost."""

    replies: list[bytes]


class DeliveriesLost(NamedTuple):
    """Begin another round: deliveries are missing, and only the consumer can send them again."""


SortingStep: TypeAlias = Deliver | Missing | CheckStream | ConfirmAgain | DeliveriesLost


class DeliveryOrder:
    """The sequences of one reader.

    Args:
        filtered: whether the consumer has filters: then a jump in the stream's sequences means nothing.
        redelivers: whether the server sends messages again that are not acknowledged.

    Attributes:
        handled: the stream sequence of the last message that was delivered to the sink, or found to be missing.
        earlier: `handled` before the last batch.
        next: the number of the consumer's next delivery.
        sent: the last delivery known to be sent, of a batch that is being sorted or read again.
        gap_after: the sequence before missing ones, if nothing was delivered since; None if none are missing.
        last_reply: the reply subject of the last message delivered; empty after `resume`.
        messages: the number of delivered messages.
        jumped: the number of sequences that no delivery had and no filter explains. They were removed from the stream,
            or a changed consumer left them out.
        checkpoint: the progress when the consumer was last known to be unchanged.
    """

    def __init__(self, counters: ReaderCounters, *, filtered: bool, redelivers: bool) -> None:
        self.handled = self.earlier = 0
        self.next = 1
        self.sent = 0
        self.gap_after: int | None = None
        self.last_reply = b""
        self.messages = self.jumped = 0
        self.checkpoint = ReaderProgress()
        self._counters = counters
        self._filtered = filtered
        self._redelivers = redelivers

    # -- the hot path ------------------------------------------------------------------------------------------------

    def following(self, batch: list[Delivered]) -> int | None:
        """Accept a batch if it is the next one. Return its last stream sequence, or None for any other batch.

        Args:
            batch: deliveries only; the first and the last decide.
        """
        steps = len(batch) - 1
        first = AckReply.parse(batch[0][1])
        last = AckReply.parse(batch[-1][1]) if steps else first
        if (
            first.consumer_sequence == self.next
            and last.consumer_sequence - first.consumer_sequence == steps
            and first.stream_sequence > self.handled
            and last.stream_sequence - first.stream_sequence >= steps
            and not (self._redelivers and _any_redelivered(batch))
        ):
            self.next = last.consumer_sequence + 1
            return last.stream_sequence
        return None

    def deliver(self, batch: list[Delivered], last: int, *, again: bool = False) -> int | None:
        """Note that a batch is delivered to the sink.

        Args:
            last: its last stream sequence.
            again: whether the batch is from a range that is read again, whose missing sequences `filled` counts.

        Returns:
            The last sequence before missing ones; None if none are missing, or if a filter hides that.
        """
        gap_after = None
        if not self._filtered:
            if jumped := last - self.handled - len(batch):
                gap_after = self.handled
                if not again:
                    self.jumped += jumped
            if self.gap_after is not None:
                gap_after, self.gap_after = self.gap_after, None
        self.messages += len(batch)
        self.earlier = self.handled  # the caller has awaited the batch before
        self.handled = last
        self.last_reply = batch[-1][1]
        return gap_after

    # -- deliveries that are not the next ones -----------------------------------------------------------------------

    def heartbeat(self, block: bytes) -> Missing | CheckStream | None:
        """Compare with the last delivery that a heartbeat or a flow control request reports.

        Return None if it has arrived.
        """
        delivered = header_block.read(block, b"Nats-Last-Consumer")
        if delivered is None:
            return None
        if int(delivered) < self.next - 1:
            return CheckStream()  # the consumer has begun again, perhaps with its stream
        if int(delivered) >= self.next:
            self._counters.gaps += 1
            return Missing(int(header_block.read(block, b"Nats-Last-Stream") or 0), int(delivered) + 1)
        return None

    def sort_out(
        self, batch: list[Delivered], began_again: Callable[[AckReply], bool], *, confirms: bool
    ) -> Iterator[SortingStep]:
        """Sort out a batch for a reader that can read the stream again.

        The caller performs each step before it requests the next one. A step may change the sequences.

        Args:
            batch: deliveries, some of which are repeated or follow a gap.
            began_again: whether a delivery shows that the stream has begun again.
            confirms: whether messages are acknowledged.
        """
        run: list[Delivered] = []
        repeated, is_checked = b"", False
        self.sent = AckReply.parse(batch[-1][1]).consumer_sequence
        for message in batch:
            ack = AckReply.parse(message[1])
            last = AckReply.parse(run[-1][1]).stream_sequence if run else self.handled
            if ack.stream_sequence <= last and not is_checked and began_again(ack):
                yield Deliver(run)
                run, is_checked = [], True
                yield CheckStream()
                last = self.handled
            if ack.stream_sequence <= last:
                self._counters.repeated += 1
                repeated = message[1]
            elif ack.consumer_sequence != self.next or ack.deliveries > 1:
                yield Deliver(run)
                self._counters.gaps += 1
                yield Missing(ack.stream_sequence - 1, ack.consumer_sequence)
                run = [message]
            else:
                run.append(message)
            self.next = ack.consumer_sequence + 1
        yield Deliver(run)
        if repeated and not run and confirms:
            yield ConfirmAgain([repeated])

    def sort_out_round(self, batch: list[Delivered], began_after: int, acknowledged: int) -> Iterator[SortingStep]:
        """Sort out a batch for a reader whose consumer alone can send messages again.

        Args:
            batch: deliveries, some of which are repeated or follow a gap.
            began_after: the stream sequence before the first one of the round.
            acknowledged: the stream sequence up to which everything delivered is acknowledged.
        """
        run: list[Delivered] = []
        again: list[bytes] = []
        following, newest = self.next, self.handled
        for message in batch:
            ack = AckReply.parse(message[1])
            if ack.consumer_sequence != following or ack.stream_sequence <= began_after:
                # One is missing, or was unacknowledged when the round began, and its info did not show it.
                yield DeliveriesLost()
                break
            if ack.stream_sequence <= newest:
                self._counters.repeated += 1
                if ack.stream_sequence <= acknowledged:
                    again.append(message[1])  # else it is acknowledged when it is done
            else:
                run.append(message)
                newest = ack.stream_sequence
            following = ack.consumer_sequence + 1
        self.next = following
        yield ConfirmAgain(again)
        yield Deliver(run)

    def filled(self, missing: Missing, start: int, first: int, recovered: int) -> int:
        """Note that a missing range was read again. Return the number of its sequences that were removed.

        With a filter this number is 0, because sequences are missing anyway. Lost deliveries count in either case,
        because deliveries have numbers without gaps.

        Args:
            start: `handled` before it was read.
            first: `next` before it was read.
            recovered: the number of messages in it that were delivered.
        """
        upto, following = missing
        self._counters.recovered += recovered
        lost = max(min(following - first, upto - start) - recovered, 0)
        self._counters.lost += lost
        if not self._filtered and self.handled < upto and self.gap_after is None:
            self.gap_after = self.handled
        self.handled = max(self.handled, upto)
        return 0 if self._filtered else upto - start - recovered - lost

    # -- other consumers, other streams ------------------------------------------------------------------------------

    def resume(self, after: int) -> None:
        """Continue after a stream sequence, and forget everything read before."""
        self.handled, self.gap_after, self.last_reply = after, None, b""

    @property
    def progress(self) -> ReaderProgress:
        """The present progress."""
        return ReaderProgress(self.handled, self.messages, self.jumped)

    def move_checkpoint(self, to: ReaderProgress) -> int:
        """Note that the consumer is unchanged, and has left nothing out.

        Args:
            to: the progress before the consumer's configuration was requested.

        Returns:
            The number of sequences jumped since the last checkpoint: they were removed.
        """
        removed = to.jumped - self.checkpoint.jumped
        self.checkpoint = to
        return removed

    def return_to_checkpoint(self) -> None:
        """Continue after the checkpoint, because a changed consumer may have left out messages since."""
        self.jumped = self.checkpoint.jumped  # counted when they are read again
        self.resume(self.checkpoint.handled)

    def give_up(self, messages: int) -> None:
        """Count messages as lost that a changed consumer left out, and that will not be read. They were not removed."""
        self.jumped = max(self.jumped - messages, self.checkpoint.jumped)
        self._counters.lost += messages

    def pending(self, queued: Sequence[int]) -> int:
        """Return the number of deliveries that were sent but not delivered.

        `queued` are the last ones of the queued batches.
        """
        return max(self.sent, *queued, self.next - 1) + 1 - self.next


def is_delivery(message: Delivered) -> bool:
    """Return whether a message is a consumer's delivery, by its reply subject."""
    return message[1].startswith(ACK)


def last_sent(batch: list[Delivered]) -> int:
    """Return the number of the last delivery in a batch; 0 if it contains none."""
    own = [message[1] for message in batch if is_delivery(message)]
    return AckReply.parse(own[-1]).consumer_sequence if own else 0


def last_named(block: bytes) -> int:
    """Return the number of the last delivery that a heartbeat reports; 0 if it reports none."""
    return int(header_block.read(block, b"Nats-Last-Consumer") or 0)


def _any_redelivered(batch: list[Delivered]) -> bool:
    # The delivery count is not 1. The parts of the reply subject before it are equal in the whole batch.
    reply = batch[0][1]
    opening = reply.rsplit(b".", fields_after_count(reply) + 1)[0] + b".1."
    return not all(message[1].startswith(opening) for message in batch)
