"""Models the removals of a stream, to compute `Nats-Last-Sequence`.

The problem: the server looks the last sequence of a subject up just before it stores a message. A message removed
before that does not count. From outside, a removal shows late or not at all.

The idea: follow the server's removals in the order in which messages are stored.

* exactly: `max_msgs`, `max_msgs_per_subject`, rollups (they are deterministic), and message deletes and purges
  whose advisories arrive in time;
* approximately and counted: `max_age`, `max_bytes` and message TTLs, because the server's own timers decide these.

`floor` is the lowest sequence that can still exist; `holes` are removed sequences above it. An advisory applies to
messages stored after it, not to older ones that are still in flight to the bridge. So it waits (`after`) until the
first message with that time or a later one.

`skipped` are sequences that were never delivered. A predecessor may be among them, which only the server knows. They
matter until the stream is known to contain none of them (`gone_at`).

Example: a stream with `max_msgs: 3`. A client deletes message 4 between 5 and 6.

```text
message  stream before it  floor  holes  newest message seen on its subject  Nats-Last-Sequence
1 a      -                 1             none                                0
2 b      1                 1             none                                0
3 b      1 2               1             2                                   2
4 b      1 2 3             1             3                                   3
5 a      2 3 4             2             1, which is below the floor         0
6 b      3 5               3      4      4, a hole: `suspects`               the server is asked: 3 (`predecessors`)
```

With `max_msgs_per_subject: 1`, no request is needed: nothing older can be left, so the answer would be 0. With a
greater one, or rollups, and `max_msgs`, the model keeps the sequences of each subject (`history`).

Invariants:

* `floor` never decreases, and no hole is below it.
* While `active` is false, the newest message that was seen on a subject still exists.
* A removal is applied once, before the first message that was stored after it, and to none that was stored before.
* Calls come in stream order: `advance` for each batch; for each message `apply_until`, `reach`, then `stored`.

Sequences are ints here, and nothing does I/O.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Self

from nats_transforms.subject import is_valid_literal, matches

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
    def of(cls, config: dict[str, object]) -> Self:
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
        """Whether the consumer must have no filter, because other subjects influence the removals, or show gaps.

        With one message a subject, a late message is overwritten, and only the sequences show it.
        """
        return self.rollups or self.max_msgs_per_subject == 1 or bool(self.max_msgs and self.max_msgs_per_subject)

    @property
    def uncertain(self) -> tuple[str, ...]:
        """The limits that make an exact last sequence impossible from outside."""
        return (("max_age",) if self.max_age_ns else ()) + self.opaque


@dataclass(slots=True, eq=False)
class SubjectPurge:
    """A purge of subjects, which removes the oldest messages first, and the known remaining ones.

    Attributes:
        subject_filter: the purged subjects.
        up_to: the newest sequence that may be purged; 0 until the first message after the purge.
        answered: whether the server has reported the remaining messages.
        seen_to: the stream's last sequence at that answer. Messages up to it may have been stored before others that
            were removed since.
    """

    subject_filter: bytes
    up_to: int = 0
    answered: bool = False
    seen_to: int = 0
    _first_remaining: int = 0

    def begin(self, up_to: int) -> None:
        """Handle the first message after the purge: nothing newer than `up_to` was purged."""
        self.up_to = min(up_to, self._first_remaining - 1) if self._first_remaining else up_to

    def answer(self, first_remaining: int, seen_to: int) -> None:
        """Apply the server's answer.

        Args:
            first_remaining: the first remaining sequence that matches the filter; 0 if none is left.
            seen_to: the stream's last sequence, read after that.
        """
        self.answered, self._first_remaining, self.seen_to = True, first_remaining, seen_to
        if self.up_to:
            self.begin(self.up_to)


@dataclass(slots=True)
class Retention:
    """The running model of one stream. Call `reach` for each message in order, then `stored`."""

    limits: StreamLimits
    floor: int = 1
    holes: set[int] = field(default_factory=set)
    history: dict[bytes, deque[int]] | None = None
    purged_subjects: dict[bytes, list[SubjectPurge]] = field(default_factory=dict)
    purged_filters: list[SubjectPurge] = field(default_factory=list)
    unanswered: list[SubjectPurge] = field(default_factory=list)
    skipped: list[tuple[int, int]] = field(default_factory=list)
    followed_from: int = 0
    seen_to: int = 0
    exhausted: bool = False
    raised: bool = False
    _gone_at: tuple[int, int] = (0, 0)
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
        """Whether a predecessor may have been removed. While false, every last sequence seen is still valid."""
        return self.limits.removes or self.raised or self.pending or self._has_gaps or bool(self.skipped)

    @property
    def pending(self) -> bool:
        """Whether a removal waits for the first message stored after it."""
        return bool(self._waiting)

    @property
    def forgettable(self) -> int:
        """The sequence from which all last sequences below the floor can be forgotten; 0 while removals are pending."""
        if not self.raised or self.limits.removes or self._waiting or self._has_gaps or self.skipped:
            return 0
        return max(self.floor, self.seen_to + 1)

    @property
    def needs_server_for_deleted(self) -> bool:
        """Whether only the server knows the remaining messages of a subject whose last message was deleted."""
        return self.history is None and self.limits.max_msgs_per_subject != 1

    @property
    def _has_gaps(self) -> bool:
        return bool(self.holes or self.purged_subjects or self.purged_filters)

    def after(self, time_ns: int, change: Callable[[int], None]) -> None:
        """Apply a change when the first message stored after `time_ns` comes.

        It is called with that message's sequence.
        """
        self._waiting.append((time_ns, change))

    def apply_until(self, time_ns: int, sequence: int) -> None:
        """Apply removals that happened before the next message, which was stored at `time_ns`."""
        while self._waiting and self._waiting[0][0] <= time_ns:
            self._waiting.popleft()[1](sequence)

    def begin(self, first_sequence: int) -> None:
        """Set the start of the stream; nothing is known about lower sequences."""
        if first_sequence > self.floor:
            self._clear_below(first_sequence)

    def raise_floor(self, first_sequence: int) -> None:
        """Raise the floor to the server's `first_seq`: everything below was removed."""
        if first_sequence > self.floor:
            self.raised = True
            self._clear_below(first_sequence)

    def removed(self, sequence: int) -> None:
        """One message was deleted."""
        if sequence >= self.floor:
            self.holes.add(sequence)
            self._removals += 1

    def purged(self, purge: SubjectPurge) -> None:
        """Add a purge. The remaining messages may be reported later."""
        of_filter = self.purged_filters
        if is_valid_literal(purge.subject_filter):
            of_filter = self.purged_subjects.setdefault(purge.subject_filter, [])
        of_filter[:] = [
            other
            for other in of_filter
            if other.subject_filter != purge.subject_filter or not other.answered or other.up_to > purge.up_to
        ]
        of_filter.append(purge)
        if self.limits.max_msgs and not purge.answered:
            self.unanswered.append(purge)  # the number of remaining messages decides which ones are removed next
        self._raise_floor_after(purge)

    def observe(self, first_sequence: int, deleted: Iterable[int]) -> None:
        """Note the server's `first_seq` at some time, and the deleted sequences after it."""
        self.raise_floor(first_sequence)
        for sequence in deleted:
            self.removed(int(sequence))

    def answer(self, purge: SubjectPurge, first_remaining: int, seen_to: int) -> None:
        """Set the server's answer about a purge, see `SubjectPurge.answer`."""
        purge.answer(first_remaining, seen_to)
        if purge in self.unanswered:
            self.unanswered.remove(purge)
        self._raise_floor_after(purge)

    def _raise_floor_after(self, purge: SubjectPurge) -> None:
        if purge.answered and purge.up_to and purge.subject_filter == b">":
            self.seen_to = max(self.seen_to, purge.seen_to)
            self.raise_floor(purge.up_to + 1)

    def skip(self, first: int, last: int) -> None:
        """Note sequences that never came, and never will."""
        self.skipped.append((first, last))

    def gone_at(self, sequence: int, newest: int) -> None:
        """Note that skipped sequences up to `newest` were gone when `sequence` was the last one."""
        self._gone_at = sequence, newest

    def newest_skipped(self, last: int, sequence: int) -> int:
        """Return the newest skipped sequence between two messages that may have existed for the later one.

        0 if none.
        """
        at = bisect_left(self.skipped, (sequence,))
        lowest = max(last + 1, self.floor)
        while at:
            at -= 1
            first, newest = self.skipped[at]
            while newest >= max(first, lowest):
                if newest not in self.holes:
                    return newest
                newest -= 1
            if first <= lowest:
                break
        return 0

    def advance(self, sequence: int, time_ns: int) -> None:
        """Process the first message of a batch: note its age, expire by `max_age`, forget old skipped sequences."""
        if self.skipped and sequence > self._gone_at[0]:
            newest = self._gone_at[1]
            self.skipped = [(max(first, newest + 1), last) for first, last in self.skipped if last > newest]
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
        """Return whether `last`, at or above the floor, may nevertheless be removed."""
        if last in self.holes:
            return True
        # For each message: loops cost less than `any` does.
        for purge in self.purged_subjects.get(subject, ()):
            if last <= purge.up_to:
                return True
        for purge in self.purged_filters:  # noqa: SIM110
            if last <= purge.up_to and matches(subject, purge.subject_filter):
                return True
        return False

    def purges(self, subject: bytes, last: int) -> list[SubjectPurge]:
        """Return the purges that `last` may have fallen to."""
        return [
            purge
            for purge in (*self.purged_subjects.get(subject, ()), *self.purged_filters)
            if last <= purge.up_to and matches(subject, purge.subject_filter)
        ]

    def newest_known(self, subject: bytes, last: int) -> int | None:
        """Return the newest existing message instead of a suspect, 0 if none; None if only a server knows."""
        purges = self.purges(subject, last)
        if not all(purge.answered for purge in purges):
            return None
        if self.history is not None:
            live = self._live(subject)
            while live and self.suspects(subject, live[-1]):
                live.pop()
            return live[-1] if live else 0
        # A purge removes the oldest messages, so nothing older than a purged message is left.
        return 0 if purges or self.limits.max_msgs_per_subject == 1 else None

    def is_late(self, subject: bytes, last: int, sequence: int) -> bool:
        """Return whether the server answered after `sequence` was stored.

        Then `last` may have been removed in between.
        """
        return any(sequence <= purge.seen_to for purge in self.purges(subject, last))

    def reach(self, sequence: int) -> None:
        """Apply `max_msgs` when everything below `sequence` is stored. Needed if a filter hides messages."""
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
        """Apply the removals that a stored message causes. `last` is its predecessor; 0 if none."""
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
        """Return the subject's messages that still exist, oldest first."""
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
        self.purged_subjects = {
            subject: kept
            for subject, purges in self.purged_subjects.items()
            if (kept := [purge for purge in purges if purge.up_to >= sequence])
        }
        self.purged_filters = [purge for purge in self.purged_filters if purge.up_to >= sequence]
        self.skipped = [(first, last) for first, last in self.skipped if last >= sequence]
