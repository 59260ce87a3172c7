"""What a stream has removed: the model behind `Nats-Last-Sequence`.

The server looks the last sequence of a subject up just before it stores a message. A message that is gone by then
does not count. This model follows, from outside and in stream order, what the server removes:

* exactly: `max_msgs`, `max_msgs_per_subject`, rollups (they are deterministic), and message deletes and purges as
  far as their advisories arrive in time;
* as well as an outside process can, and counted: `max_age`, `max_bytes` and message TTLs, where the server's own
  timers decide.

`floor` is the lowest sequence that can still exist; `holes` are sequences above it that are gone. What an advisory
tells holds for messages stored after it, not for older ones that are still on their way to us; so it waits (`after`)
until the first message with a later time. Sequences here are ints; nothing here does I/O.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from transforms.subject import is_valid_literal, matches

__all__ = ["Retention", "StreamLimits"]

_MOST_HOLES = 4_000_000


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """The parts of a stream's configuration that remove messages. 0 means no limit.

    Attributes:
        max_msgs: messages in the stream.
        max_msgs_per_subject: messages per subject.
        max_age_ns: nanoseconds.
        rollups: whether `Nats-Rollup` headers act.
        opaque: names of limits whose effect cannot be computed from outside (`max_bytes`, message TTLs, and
            retention that depends on consumers).
    """

    max_msgs: int = 0
    max_msgs_per_subject: int = 0
    max_age_ns: int = 0
    rollups: bool = False
    opaque: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: dict[str, object]) -> StreamLimits:
        """Read them from a stream's configuration as the server returns it."""

        def number(name: str) -> int:
            value = config.get(name)
            return value if isinstance(value, int) and value > 0 else 0

        opaque = tuple(
            name
            for name, present in (
                ("max_bytes", number("max_bytes") > 0),
                ("message TTL", bool(config.get("allow_msg_ttl"))),
                (f"{config.get('retention')} retention", config.get("retention") in {"workqueue", "interest"}),
            )
            if present
        )
        discards_old = config.get("discard", "old") != "new"
        return cls(
            max_msgs=number("max_msgs") if discards_old else 0,
            max_msgs_per_subject=number("max_msgs_per_subject"),
            max_age_ns=number("max_age"),
            rollups=bool(config.get("allow_rollup_hdrs")),
            opaque=opaque,
        )

    @property
    def removes(self) -> bool:
        """Whether anything but the per-subject limit can remove messages without an advisory."""
        return bool(self.max_msgs or self.max_age_ns or self.rollups or self.opaque)

    @property
    def needs_every_subject(self) -> bool:
        """Whether messages on other subjects decide what is removed on ours, so that no filter may hide them."""
        return self.rollups or bool(self.max_msgs and self.max_msgs_per_subject)

    @property
    def uncertain(self) -> tuple[str, ...]:
        """The limits that make an exact last sequence impossible from outside."""
        return (("max_age",) if self.max_age_ns else ()) + self.opaque


@dataclass(slots=True)
class Retention:
    """The running model of one stream. Call `reach` for each message in order, then `stored`."""

    limits: StreamLimits
    floor: int = 1
    holes: set[int] = field(default_factory=set)
    history: dict[bytes, deque[int]] | None = None
    purged_subjects: dict[bytes, int] = field(default_factory=dict)
    purged_filters: list[tuple[bytes, int]] = field(default_factory=list)
    exhausted: bool = False
    raised: bool = False
    _ages: deque[tuple[int, int]] = field(default_factory=deque)
    _waiting: deque[tuple[int, Callable[[int], None]]] = field(default_factory=deque)
    _removals: int = 0
    _cleaned: dict[bytes, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        limits = self.limits
        if limits.max_msgs and (limits.max_msgs_per_subject > 1 or limits.rollups):
            self.history = {}

    @property
    def active(self) -> bool:
        """Whether a stored predecessor may be gone; while false, every last sequence seen is still good."""
        return self.limits.removes or self.raised or self.pending or self._has_gaps

    @property
    def pending(self) -> bool:
        """Whether a removal waits for the first message stored after it."""
        return bool(self._waiting)

    @property
    def forgettable(self) -> bool:
        """Whether forgetting all last sequences below the floor leaves nothing more to follow."""
        return self.raised and not (self.limits.removes or self._waiting or self._has_gaps)

    @property
    def _has_gaps(self) -> bool:
        return bool(self.holes or self.purged_subjects or self.purged_filters)

    def after(self, time_ns: int, change: Callable[[int], None]) -> None:
        """Apply a change when the first message stored after `time_ns` comes; it is called with its sequence."""
        self._waiting.append((time_ns, change))

    def apply_until(self, time_ns: int, sequence: int) -> None:
        """A message stored at `time_ns` comes: apply what was removed before."""
        while self._waiting and self._waiting[0][0] <= time_ns:
            self._waiting.popleft()[1](sequence)

    def begin(self, first_sequence: int) -> None:
        """The stream begins here; nothing below is known to anybody."""
        if first_sequence > self.floor:
            self._clear_below(first_sequence)

    def raise_floor(self, first_sequence: int) -> None:
        """The server's `first_seq` says that everything below is gone."""
        if first_sequence > self.floor:
            self.raised = True
            self._clear_below(first_sequence)

    def removed(self, sequence: int) -> None:
        """One message was deleted."""
        if sequence >= self.floor:
            self.holes.add(sequence)
            self._removals += 1

    def purged(self, subject_filter: bytes, up_to: int) -> None:
        """Messages matching a filter were purged; `up_to` is the newest sequence that may be among them."""
        if is_valid_literal(subject_filter):
            self.purged_subjects[subject_filter] = up_to
        else:
            self.purged_filters.append((subject_filter, up_to))

    def advance(self, sequence: int, time_ns: int) -> None:
        """Once per batch, with its first message: remember ages, expire by `max_age`."""
        max_age = self.limits.max_age_ns
        if not max_age:
            return
        ages = self._ages
        # A thousand marks per max_age bound both the memory and the error.
        if not ages or time_ns - ages[-1][0] >= max_age // 1000:
            ages.append((time_ns, sequence))
        limit = time_ns - max_age
        while len(ages) > 1 and ages[1][0] <= limit:
            ages.popleft()
        if ages[0][0] <= limit:
            self.raise_floor(ages[0][1])

    def suspects(self, subject: bytes, last: int) -> bool:
        """Whether `last`, at or above the floor, may be gone all the same."""
        if last in self.holes or last <= self.purged_subjects.get(subject, 0):
            return True
        return any(last <= up_to and matches(subject, pattern) for pattern, up_to in self.purged_filters)

    def newest_known(self, subject: bytes) -> int | None:
        """The newest message of a subject that still exists, 0 if none; None where this model does not know."""
        if self.history is not None:
            live = self._live(subject)
            while live and self.suspects(subject, live[-1]):
                live.pop()
            return live[-1] if live else 0
        return 0 if self.limits.max_msgs_per_subject == 1 else None

    def reach(self, sequence: int) -> None:
        """Everything below `sequence` is stored: apply `max_msgs`. Needed where a filter hides messages from us."""
        most = self.limits.max_msgs
        if not most or self.exhausted:
            return
        holes = self.holes
        floor = self.floor
        live = sequence - floor - len(holes)
        while live > most:
            if floor in holes:
                holes.discard(floor)
            else:
                live -= 1
            floor += 1
        self.floor = floor

    def stored(self, subject: bytes, sequence: int, last: int, rollup: bytes | None) -> None:
        """A message was stored; apply what the server removes because of it. `last`: its predecessor, 0 if none."""
        limits = self.limits
        if rollup == b"all" and limits.rollups:
            self._clear_below(sequence)
            if self.history is not None:
                self.history = {subject: deque([sequence])}
            return
        if not limits.max_msgs or self.exhausted:
            return
        # The server's order (seen on 2.9, 2.10 and 2.15): per-subject limit, max_msgs, and only then a rollup.
        self._evict_on_subject(subject, sequence, last)
        self.reach(sequence + 1)
        if rollup == b"sub" and limits.rollups and self.history is not None:
            self._evict_all_but_last(self.history[subject])
        if len(self.holes) > _MOST_HOLES:
            self.exhausted = True
            self.holes = set()

    def _evict_on_subject(self, subject: bytes, sequence: int, last: int) -> None:
        limits = self.limits
        if self.history is None:
            if limits.max_msgs_per_subject == 1 and last >= self.floor:
                self.holes.add(last)
            return
        live = self._live(subject)
        live.append(sequence)
        if limits.max_msgs_per_subject and len(live) > limits.max_msgs_per_subject:
            self.holes.add(live.popleft())

    def _live(self, subject: bytes) -> deque[int]:
        """The subject's messages that still exist, oldest first."""
        assert self.history is not None
        live = self.history.setdefault(subject, deque())
        while live and live[0] < self.floor:
            live.popleft()
        if self._cleaned.get(subject, 0) != self._removals:
            self._cleaned[subject] = self._removals
            kept = [sequence for sequence in live if sequence not in self.holes]
            live.clear()
            live.extend(kept)
        return live

    def _evict_all_but_last(self, live: deque[int]) -> None:
        while len(live) > 1:
            gone = live.popleft()
            if gone >= self.floor:
                self.holes.add(gone)

    def _clear_below(self, sequence: int) -> None:
        self.floor = sequence
        if self.holes:
            self.holes = {hole for hole in self.holes if hole >= sequence}
        self.purged_subjects = {s: up_to for s, up_to in self.purged_subjects.items() if up_to >= sequence}
        self.purged_filters = [(f, up_to) for f, up_to in self.purged_filters if up_to >= sequence]
