"""The metrics of a rule in addition to its counters: sizes, lag, latencies, the last progress, recent history.

Theory of operation. RuleMetrics belong to the rule, not to one run of it: when a run is replaced, the next one
`follow`s and all totals keep growing. Runs report once per batch, never per message; a momentary value (such as
messages in flight) is read when it is needed. While messages arrive, each reply subject contains the number of pending
ones, so the lag needs no request. Otherwise `nats_bridge.consuming.lag` polls.

Everything here is written by the event loop and only read elsewhere.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from nats_bridge.observability.counters import Counters
from nats_bridge.observability.latency import Latencies, quantile
from nats_bridge.rule_kinds import RECEIVED, kind_named

if TYPE_CHECKING:
    from nats_bridge.client.wire import Delivered


SAMPLE_INTERVAL = 2.0
"""Seconds between two samples of the history."""

_HISTORY = 150  # intervals
_RATE_SAMPLES = 3  # a rate covers this many intervals and the time since the last one
_RECENT_SAMPLES = 30  # quantiles cover this many intervals


class InFlight(NamedTuple):
    """The messages of a rule in flight: received, but neither confirmed nor dropped.

    Attributes:
        oldest_ns: the time when the oldest was stored, nanoseconds since 1970; 0 if none is in flight or it is unknown.
    """

    messages: int
    oldest_ns: int = 0


def nothing_in_flight() -> InFlight:
    """Nothing in flight."""
    return InFlight(0)


@dataclass(slots=True)
class Backlog:
    """The messages of one stream that wait for a rule, by the newest delivery or a later answer of the server.

    Attributes:
        messages: the number of waiting messages; None if unknown.
        since_ns: a lower bound for the times when they were stored, nanoseconds since 1970; 0 if unknown.
        batches: the number of batches so far.
        headroom: the number of sequences that the stream's limits can still remove before the rule's next message, at
            the last poll; None if unknown, or if no limit removes anything.
    """

    messages: int | None = None
    since_ns: int = 0
    batches: int = 0
    headroom: int | None = None

    def seconds(self, now_ns: int) -> float:
        """Return the maximum age of the next message in seconds; 0 if none waits."""
        return max(now_ns - self.since_ns, 0) / 1e9 if self.messages else 0.0

    def asked(self, messages: int, oldest_ns: int, asked_ns: int) -> None:
        """Set the server's answer: the number of waiting messages.

        Args:
            oldest_ns: the time when the oldest of them was stored, nanoseconds since 1970; 0 if unknown.
            asked_ns: when the request was sent, in the same way.
        """
        self.messages = messages
        if not messages:
            self.since_ns = asked_ns
        elif oldest_ns or not self.since_ns:
            self.since_ns = oldest_ns or asked_ns

    def unknown(self) -> None:
        """Set the backlog to unknown."""
        self.messages = None


class _Sample(NamedTuple):
    at: float  # monotonic seconds
    received: int
    sent: int
    end_to_end: tuple[int, ...]
    publish: tuple[int, ...]


class _Interval(NamedTuple):
    rate_in: float
    rate_out: float
    lag: int | None
    end_to_end_ms: float | None


class RuleMetrics:
    """The measures of one rule.

    Attributes:
        bytes_in: of header blocks and payloads taken.
        end_to_end: the time from storing a batch's oldest message until it was written (at most once) or confirmed
            (otherwise); one value for each batch.
        publish: the time from writing until the server has confirmed it; one value for each confirmation or batch.
        progress_ns: the time of the last completed message, nanoseconds since 1970; 0 if none.
    """

    def __init__(self) -> None:
        self.bytes_in = 0
        self.end_to_end = Latencies()
        self.publish = Latencies()
        self.progress_ns = 0
        self._progressed = 0.0  # monotonic
        self._kind = ""
        self._ended: dict[str, int] = {}
        self._counters: Counters | None = None
        self._in_flight: Callable[[], InFlight] = nothing_in_flight
        self._backlogs: list[Backlog] = []
        self._samples: deque[_Sample] = deque(maxlen=_RECENT_SAMPLES)
        self._history: deque[_Interval] = deque(maxlen=_HISTORY)

    # -- reported by runs --------------------------------------------------------------------------------------------

    def follow(self, kind: str, counters: Counters, in_flight: Callable[[], InFlight] = nothing_in_flight) -> None:
        """Follow a new run; the previous one has ended.

        Args:
            kind: the rule's kind, which defines the meaning of its counters.
            counters: the counters of the run, starting at zero.
            in_flight: returns the run's messages in flight.
        """
        if kind == self._kind and counters is not self._counters:
            self._ended = self.totals()
        elif kind != self._kind:
            self._ended = {}
        self._kind, self._counters, self._in_flight = kind, counters, in_flight
        self._backlogs.clear()

    def ended(self) -> None:
        """Note that the run that was followed has ended: it has nothing in flight, and its lag is unknown."""
        self._in_flight = nothing_in_flight
        for backlog in self._backlogs:
            backlog.unknown()
        self._backlogs.clear()

    def backlog(self) -> Backlog:
        """Make the backlog of one more stream, to be reported with `took`."""
        self._backlogs.append(backlog := Backlog())
        return backlog

    def took(self, batch: Sequence[Delivered], backlog: Backlog) -> int:
        """Note that a consumer's batch was taken.

        Returns:
            The time at which its oldest message was stored, in nanoseconds since 1970.
        """
        self.bytes_in += sum([len(block) + len(payload) for _, _, block, payload in batch])
        backlog.batches += 1
        backlog.since_ns, backlog.messages = _time_and_pending(batch[-1][1])
        return _time_and_pending(batch[0][1])[0] if len(batch) > 1 else backlog.since_ns

    def took_published(self, batch: Sequence[Delivered]) -> None:
        """Note that a batch was taken that no stream had stored."""
        self.bytes_in += sum([len(block) + len(payload) for _, _, block, payload in batch])

    def arrived(self, stored_ns: int) -> None:
        """Note that a batch was delivered as the rule guarantees. `stored_ns` is the time of its oldest message."""
        if stored_ns:
            self.end_to_end.record((time.time_ns() - stored_ns) / 1e9)

    def progressed(self) -> None:
        """Note progress: something was confirmed, or dropped and counted."""
        self.progress_ns = time.time_ns()
        self._progressed = time.monotonic()

    # -- requested ---------------------------------------------------------------------------------------------------

    def totals(self) -> dict[str, int]:
        """Return all counts by name, summed over all runs; they never fall."""
        current = self._counters.as_dict() if self._counters is not None else {}
        return {
            name: self._ended.get(name, 0) + current.get(name, 0) for name in dict.fromkeys((*self._ended, *current))
        }

    def in_flight(self) -> int:
        """Messages in flight at this moment."""
        return self._in_flight().messages

    def lag_messages(self) -> int | None:
        """Return the number of messages waiting in the rule's streams.

        None without a stream, or if any count is unknown.
        """
        waiting = [backlog.messages for backlog in tuple(self._backlogs)]
        known = [messages for messages in waiting if messages is not None]
        return sum(known) if known and len(known) == len(waiting) else None

    def lag_seconds(self) -> float | None:
        """Return the greatest possible age of the oldest unfinished message.

        Returns:
            Seconds; a known age counts even if that of another stream is unknown. None without a stream, or if all
            are unknown.
        """
        now_ns = time.time_ns()
        in_flight, backlogs = self._in_flight(), tuple(self._backlogs)
        ages = [backlog.seconds(now_ns) for backlog in backlogs if backlog.messages is not None]
        has_unknown = len(ages) < len(backlogs)
        if in_flight.oldest_ns:
            ages.append(max(now_ns - in_flight.oldest_ns, 0) / 1e9)
        oldest = max(ages, default=0.0)
        return oldest if oldest or (ages and not has_unknown) else None

    def headroom(self) -> int | None:
        """Return the number of sequences that limits can remove from a stream before they reach unhandled messages.

        Returns:
            The smallest of the rule's streams; None if no stream has limits that remove messages.
        """
        known = [backlog.headroom for backlog in tuple(self._backlogs) if backlog.headroom is not None]
        return min(known, default=None)

    def seconds_since_progress(self) -> float | None:
        """Return the seconds since the last completed message; None if there was none."""
        return time.monotonic() - self._progressed if self.progress_ns else None

    def sample(self) -> None:
        """Record this moment for the history, once every `SAMPLE_INTERVAL`."""
        now = self._now()
        if self._samples:
            last = self._samples[-1]
            latency = _quantiles(last.end_to_end, now.end_to_end)
            self._history.append(
                _Interval(
                    _rate(last.received, now.received, now.at - last.at),
                    _rate(last.sent, now.sent, now.at - last.at),
                    self.lag_messages(),
                    latency["p99"] if latency else None,
                )
            )
        self._samples.append(now)

    def as_dict(self, *, history: bool = True) -> dict[str, Any]:
        """Return everything as plain data, with the history if wanted.

        Rates are messages per second over the last few seconds; quantiles cover the last minute. The history's lists
        begin with the oldest interval; its latency is the 99th percentile.
        """
        now = self._now()
        samples = [*self._samples, now]
        since = samples[max(len(samples) - 1 - _RATE_SAMPLES, 0)]
        recent = samples[max(len(samples) - 1 - _RECENT_SAMPLES, 0)]
        totals = self.totals()
        since_progress, lag_seconds = self.seconds_since_progress(), self.lag_seconds()
        return {
            "messages_in": now.received,
            "messages_out": now.sent,
            "bytes_in": self.bytes_in,
            "bytes_out": totals.get("bytes_out", 0),
            "lag_messages": self.lag_messages(),
            "lag_seconds": None if lag_seconds is None else round(lag_seconds, 3),
            "seconds_since_progress": None if since_progress is None else round(since_progress, 3),
            "in_flight": self.in_flight(),
            "rate_in": _rate(since.received, now.received, now.at - since.at),
            "rate_out": _rate(since.sent, now.sent, now.at - since.at),
            "end_to_end_ms": _quantiles(recent.end_to_end, now.end_to_end),
            "publish_ms": _quantiles(recent.publish, now.publish),
            **({"history": self._history_document()} if history else {}),
        }

    def _now(self) -> _Sample:
        totals = self.totals()
        meanings = kind_named(self._kind).meanings if self._kind else None
        return _Sample(
            time.monotonic(),
            totals.get(RECEIVED, 0),
            totals.get(meanings.sent, 0) if meanings else 0,
            tuple(self.end_to_end.counts),
            tuple(self.publish.counts),
        )

    def _history_document(self) -> dict[str, Any]:
        intervals = list(self._history)
        return {
            "interval_s": SAMPLE_INTERVAL,
            "rate_in": [interval.rate_in for interval in intervals],
            "rate_out": [interval.rate_out for interval in intervals],
            "lag_messages": [interval.lag for interval in intervals],
            "end_to_end_ms": [interval.end_to_end_ms for interval in intervals],
        }


def _rate(before: int, after: int, seconds: float) -> float:
    return round(max(after - before, 0) / seconds, 1) if seconds > 0 else 0.0


def _quantiles(before: Sequence[int], after: Sequence[int]) -> dict[str, float] | None:
    """Quantiles of the records between two moments, in milliseconds."""
    counts = [b - a for a, b in zip(before, after, strict=True)]
    middle, high = quantile(counts, 0.5), quantile(counts, 0.99)
    if middle is None or high is None:
        return None
    return {"p50": round(middle * 1e3, 2), "p99": round(high * 1e3, 2)}


def _time_and_pending(reply: bytes) -> tuple[int, int]:
    """Return the time in nanoseconds when a delivered message was stored, and the number that follow it."""
    if reply.count(b".") == 8:
        _, stored, pending = reply.rsplit(b".", 2)
        return int(stored), int(pending)
    tokens = reply.split(b".")  # with a domain and an account before the stream
    return int(tokens[9]), int(tokens[10])
