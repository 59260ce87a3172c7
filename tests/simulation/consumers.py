"""Consumers as a simulated server runs them: deliveries, flow control, heartbeats, acknowledgements, interest.

A consumer without interest delivers nothing, nor one whose window or `max_ack_pending` is full, until an answer.

The window of flow control is small, so that a simulation of a few messages meets it (a server's grows from 32 KiB).
"""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from nats_conformance.observation import Stored
from nats_transforms.timestamp import nanoseconds_of, rfc3339_nano
from tests.simulation.streams import KeptStream, selector

if TYPE_CHECKING:
    from tests.simulation.server import SimulatedServer

_WINDOW = 1024  # bytes
_HEARTBEAT = b"NATS/1.0 100 Idle Heartbeat\r\n"
_FLOW_CONTROL = b"NATS/1.0 100 FlowControl Request\r\n\r\n"
_NOTICES = 0.02  # seconds until a server notices that interest has come or gone
_STATES = 256


class Sequences(NamedTuple):
    """A pair of positions: in the consumer, and in the stream."""

    consumer_seq: int
    stream_seq: int


class PushConsumer:
    """One consumer. Without a subject to deliver to, it only counts."""

    def __init__(self, server: SimulatedServer, stream: KeptStream, config: dict[str, Any]) -> None:
        self.configure(config)
        self.stream = stream
        self._reply = b"$JS.ACK.%b.%b." % (stream.name.encode(), self.name.encode())
        self.created_ns = server.world.stamp()
        self.is_bound = self.is_gone = False
        self._server = server
        self._first: deque[int] = deque()  # what is delivered out of the common order: the last of each subject
        self._pending: dict[int, int] = {}  # without an acknowledgement: consumer sequences, by stream sequence
        self._again: deque[int] = deque()  # what is delivered again, because no acknowledgement came in time
        self._bytes = self._acked_ns = 0
        self._control, self._controlled = b"", 0  # and the bytes that the request for flow control was about
        self._window = _WINDOW
        self._pumping = self._beating = False
        self._sent_at = 0.0
        self._states: deque[tuple[int, Sequences, Sequences]] = deque(maxlen=_STATES)
        self._begin()

    @property
    def name(self) -> str:
        return str(self.config["name"])

    @property
    def is_durable(self) -> bool:
        return bool(self.config.get("durable_name"))

    def configure(self, config: dict[str, Any]) -> None:
        self.config = config
        self.inbox = str(config.get("deliver_subject", "")).encode()
        self._selects = selector(*filter(None, config.get("filter_subjects") or (config.get("filter_subject"),)))
        self._keeps_pending = config.get("ack_policy") in ("all", "explicit")

    def _begin(self) -> None:
        config, stream = self.config, self.stream
        last = stream.model.last_sequence
        match config.get("deliver_policy", "all"):
            case "by_start_sequence":
                next_one = int(config["opt_start_seq"])
            case "by_start_time":
                since = nanoseconds_of(config["opt_start_time"])
                later = (sequence for sequence, each in stream.model.messages.items() if each.time_ns >= since)
                next_one = next(later, last + 1)
            case "last_per_subject":
                newest = {
                    each.message.subject: sequence
                    for sequence, each in stream.model.messages.items()
                    if self.selects(each)
                }
                self._first.extend(sorted(newest.values()))
                next_one = last + 1
            case _:
                next_one = stream.first
        next_one = max(next_one, stream.first if stream.model.messages else next_one)
        self.next = min(next_one, last + 1) if config.get("deliver_policy") != "by_start_sequence" else next_one
        self.delivered = self.floor = Sequences(0, self.next - 1)
        self._note()

    def selects(self, stored: Stored) -> bool:
        return self._selects(stored.message.subject)

    def interest_may_have_changed(self) -> None:
        """Check a moment later whether a client subscribes."""
        self._server.world.after(self._server.world.draw(0, _NOTICES), self._look)

    def _look(self) -> None:
        if not self.is_alive:
            return
        bound = bool(self.inbox) and self._server.has_interest(self.inbox)
        if bound == self.is_bound:
            return
        self.is_bound = bound
        if bound:
            self.signal()
            self.beat()
        else:
            self._expire_later()

    def _expire_later(self) -> None:
        if not self.is_durable:
            threshold = int(self.config.get("inactive_threshold") or 5 * 10**9) / 1e9
            self._server.world.after(threshold, self._expire)

    def _expire(self) -> None:
        if self.is_alive and not self.is_bound:
            self._server.delete_consumer(self.stream, self.name)

    def begin(self) -> None:
        """Begin to deliver, after it was created or its server started."""
        if self.inbox and self._server.has_interest(self.inbox):
            self.is_bound = True
            self.signal()
            self.beat()
        else:
            self._expire_later()

    @property
    def is_alive(self) -> bool:
        return not self.is_gone and self.stream.consumers.get(self.name) is self

    def signal(self) -> None:
        if not self._pumping and self.is_bound:
            self._pumping = True
            self._server.world.after(self._server.world.moment(0.0002, rarely=0.005, longest=0.1), self._pump)

    def _pump(self) -> None:
        self._pumping, before = False, self.delivered
        while self.is_alive and self.is_bound and self.stream.has_leader and not self._control_is_due():
            most = int(self.config.get("max_ack_pending") or 0)
            if self._keeps_pending and 0 < most <= len(self._pending) and not self._again:
                break
            stored = self._take_next()
            if stored is None:
                break
            self._deliver(stored)
        self._server.flush()
        if self.delivered is not before:
            self._server.happened(f"delivered {self.stream.name}")

    def _take_next(self) -> Stored | None:
        messages, last = self.stream.model.messages, self.stream.model.last_sequence
        while self._again or self._first:
            stored = messages.get((self._again or self._first).popleft())
            if stored is not None:
                return stored
        if self.next < self.stream.first:
            self.next = self.stream.first
        while self.next <= last:
            stored = messages.get(self.next)
            self.next += 1
            if stored is not None and self.selects(stored):
                return stored
        return None

    def _deliver(self, stored: Stored) -> None:
        self.delivered = Sequences(self.delivered.consumer_seq + 1, max(stored.sequence, self.delivered.stream_seq))
        deliveries = 1 + (stored.sequence in self._pending)
        if self._keeps_pending:
            self._pending[stored.sequence] = self.delivered.consumer_seq
            self._await_acknowledgement(stored.sequence)
        else:
            self.floor = self.delivered
        self._note()
        block, payload = stored.message.header_block, stored.message.payload
        if self.config.get("headers_only"):
            size = b"Nats-Msg-Size: %d\r\n\r\n" % len(payload)
            block, payload = (block[:-2] if block else b"NATS/1.0\r\n") + size, b""
        numbers = deliveries, stored.sequence, self.delivered.consumer_seq, stored.time_ns, self.waiting
        reply = self._reply + b"%d.%d.%d.%d.%d" % numbers
        self._bytes += len(stored.message.subject) + len(block) + len(payload)
        self._sent_at = self._server.world.now
        self._server.deliver(self.inbox, stored.message.subject, reply, block, payload)
        if self.config.get("flow_control") and not self._control and self._bytes > self._window // 2:
            self._ask_for_control()

    def _await_acknowledgement(self, sequence: int) -> None:
        """Deliver a message again if it is not acknowledged in time."""
        delivery = self._pending[sequence]

        def look() -> None:
            if self.is_alive and self._pending.get(sequence) == delivery:
                self._again.append(sequence)
                self.signal()

        self._server.world.after(int(self.config["ack_wait"]) / 1e9, look)

    def _ask_for_control(self) -> None:
        number = self._server.world.chance.randrange(10**6)
        self._control = b"$JS.FC.%b.%b.%d" % (self.stream.name.encode(), self.name.encode(), number)
        self._controlled = self._bytes
        self._server.flow_control[self._control] = self
        self._server.deliver(self.inbox, self.inbox, self._control, _FLOW_CONTROL, b"")
        self._server.happened(f"flow control {self.stream.name}")

    def _control_is_due(self) -> bool:
        return bool(self.config.get("flow_control")) and self._bytes > self._window

    def controlled(self, subject: bytes) -> None:
        if subject != self._control:
            return
        self._bytes = max(self._bytes - self._controlled, 0)
        self._control, self._controlled = b"", 0
        self._server.happened(f"flow control {self.stream.name} answered")
        self._window = min(self._window * 2, 16 * _WINDOW)
        if self._bytes > self._window // 2:  # of large messages that were sent since it was asked for
            self._ask_for_control()
            self._server.flush()
        self.signal()

    def beat(self) -> None:
        every = int(self.config.get("idle_heartbeat") or 0) / 1e9
        if every and not self._beating:
            self._beating = True
            self._sent_at = max(self._sent_at, self._server.world.now)
            self._server.world.at(self._sent_at + every, partial(self._beat, every))

    def _beat(self, every: float) -> None:
        self._beating = False
        if not self.is_alive or not self.is_bound or not self.stream.has_leader:
            return
        if self._server.world.now >= self._sent_at + every - 1e-9:
            block = _HEARTBEAT + b"Nats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n" % self.delivered
            if self._control:
                block += b"Nats-Consumer-Stalled: %b\r\n" % self._control
            self._sent_at = self._server.world.now
            self._server.deliver(self.inbox, self.inbox, b"", block + b"\r\n", b"")
            self._server.flush()
        self.beat()

    @property
    def waiting(self) -> int:
        """The number of messages that it has not delivered yet."""
        messages = self.stream.model.messages
        later = takewhile(lambda sequence: sequence >= self.next, reversed(messages))
        return len(self._first) + sum(self.selects(messages[sequence]) for sequence in later)

    def acknowledged(self, stream_sequence: int, consumer_sequence: int) -> None:
        self._acked_ns = self._server.world.now_ns
        if self._keeps_pending and stream_sequence < self.next:
            self._pending = {at: number for at, number in self._pending.items() if number > consumer_sequence}
            if consumer_sequence > self.floor.consumer_seq:
                self.floor = Sequences(consumer_sequence, stream_sequence)
        self._note()
        self.signal()

    def _note(self) -> None:
        self._states.append((self._server.world.now_ns, self.delivered, self.floor))

    def restore(self, since_ns: int | None) -> None:
        """Read its state again. If newer states are lost, read the one of that time."""
        while since_ns is not None and len(self._states) > 1 and self._states[-1][0] > since_ns:
            self._states.pop()
        _, self.delivered, self.floor = self._states[-1]
        self.next = self.delivered.stream_seq + 1
        held = (sequence for sequence, each in self.stream.model.messages.items() if self.selects(each))
        open_ones = (each for each in held if self.floor.stream_seq < each <= self.delivered.stream_seq)
        numbered = enumerate(open_ones if self._keeps_pending else (), self.floor.consumer_seq + 1)
        self._pending = {sequence: number for number, sequence in numbered}
        self._again.clear()
        for sequence in self._pending:
            self._await_acknowledgement(sequence)
        self.is_bound = False
        self._bytes, self._control, self._acked_ns = 0, b"", 0

    def info(self, now_ns: int) -> dict[str, Any]:
        last_active = {"last_active": rfc3339_nano(self._acked_ns).decode()} if self._acked_ns else {}
        created = rfc3339_nano(self.created_ns).decode()
        who = {"stream_name": self.stream.name, "name": self.name, "created": created, "config": self.config}
        where = {"delivered": self.delivered._asdict(), "ack_floor": self.floor._asdict() | last_active}
        numbers = {"num_ack_pending": len(self._pending), "num_redelivered": 0, "num_waiting": 0}
        rest = {"num_pending": self.waiting, "ts": rfc3339_nano(now_ns).decode(), "push_bound": self.is_bound}
        return {**who, **where, **numbers, **rest}
