"""One rule's lease as one replica sees it: its state, and the next step. No I/O, no clock.

Theory of operation. The bucket has one record for each rule. A replica writes it only over the revision that it knows
(compare and set), so only one of several attempts succeeds. No replica compares its clock with another's:

* the holder keeps writing the record. It counts from the time *before* it sent a renewal that was stored, and may write
  messages only for a part of the lease's time after that (`timing`). After an outage it reads the record first. If the
  record is still its own, no other replica took over, and it continues. Otherwise its term is over.
* a standby counts from the time *after* it first saw a revision. When the revision has not changed for the whole time,
  the holder's part is certainly over, and the standby takes over.
* a holder that stops releases the record, and a standby takes over at once.

The record also contains the rule's position, which needs no extra write. If the rule's durable consumer was deleted
while no replica ran, the next leader resumes at that position. A claim keeps the position of the record that it
replaces.

A missing record is not free: the bucket may have been deleted while a replica held a lease in it. A standby waits for
as long as for a silent holder.
"""

from dataclasses import dataclass, replace
from typing import TypeAlias

from nats_bridge.rules.leadership.timing import Timing

_EAGER_FOR = 0.5  # seconds in which a reported release is polled
_EAGER_EVERY = 0.02  # seconds between two reads then
_NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class KeptPosition:
    """The last message of a stream that a rule is done with.

    Attributes:
        sequence: the message's stream sequence; 0 for none.
        time_ns: the time when the stream stored it, in nanoseconds since 1970; 0 if unknown.
    """

    stream: str
    sequence: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class Record:
    """A rule's record in the bucket.

    Attributes:
        holder: which replica wrote it.
        term: counts the holders of the rule.
        beat: the count of the holder's writes, by which it recognises its own.
        ttl: seconds that the holder counts with.
        released: whether the holder has given the lease back.
        position: the position to resume at if the consumer is gone; None if unknown.
    """

    holder: str
    term: int
    beat: int
    ttl: float
    released: bool = False
    position: KeptPosition | None = None


@dataclass(frozen=True, slots=True)
class Sighting:
    """The result of a read.

    Attributes:
        revision: the revision of the record; 0 if there never was one.
        record: None if there is none, it was deleted, or it cannot be read.
    """

    revision: int
    record: Record | None


@dataclass(frozen=True, slots=True)
class Look:
    """Read the record."""


@dataclass(frozen=True, slots=True)
class Write:
    """Write the record if its revision is still the expected one."""

    record: Record
    expected: int


@dataclass(frozen=True, slots=True)
class Rest:
    """Wait until a moment."""

    until: float


Step: TypeAlias = Look | Write | Rest


class Lease:
    """The state of one rule's lease in one replica.

    All times are seconds of the replica's own clock. Steps are done one after the other: the outcome of a write is
    reported (`stored`, `conflict`, `refused` or `unanswered`) before the next step is requested.

    Args:
        me: the id of this replica, which is unique.
        timing: the parts of the lease's time.

    Attributes:
        held: whether this replica believes that it is the holder; `is_open` tells whether it may act on that.
        term: the number of the present or last term.
        deadline: until when the holder may write messages.
        holder: the known holder; empty without one.
        restraint: seconds for which a free lease is left to other replicas.
        kept: for the holder, the position that its next write contains; at the start of a term, that of the previous
            record.
    """

    def __init__(self, me: str, timing: Timing) -> None:
        self.held = False
        self.term = 0
        self.deadline = _NEVER
        self.holder = ""
        self.restraint = 0.0
        self.kept: KeptPosition | None = None
        self._me = me
        self._timing = timing
        self._beat = 0
        # beats of this replica's writes that may still be stored, with the times of sending
        self._in_doubt: dict[int, float] = {}
        self._next_look = _NEVER
        self._eager_until = _NEVER
        self._checked = False  # whether a read was answered since the last write
        # as the holder
        self._revision = 0
        self._last_sent = _NEVER
        self._certain = False  # whether the record at `_revision` is certainly this replica's
        # as a standby
        self._seen: Sighting | None = None
        self._seen_since = _NEVER
        self._checked_at = _NEVER
        self._renewed = False  # whether the record was seen to change: one alone can be a dead holder's

    def is_open(self, now: float) -> bool:
        """Return whether the holder may write messages at this moment."""
        return self.held and now < self.deadline

    def is_led(self, now: float) -> bool:
        """Return whether a replica is known to hold it now."""
        if self.held:
            return self.is_open(now)
        return bool(self.holder) and self._renewed and now - self._seen_since < self._timing.missed_for

    def step(self, now: float) -> Step:
        """Return the next step."""
        if self.held:
            is_open = now < self.deadline
            # Once its time is over, read before writing: the revision alone could be of a recreated bucket.
            if not self._certain or not (is_open or self._checked):
                return Look() if now >= self._next_look else Rest(self._next_look)
            due = self._last_sent + self._timing.renew_every if is_open else now
            return Rest(due) if now < due else Write(self._record(self.term, self.kept), self._revision)
        if self._seen is None:
            return Look() if now >= self._next_look else Rest(self._next_look)
        free, record = self._free_at(self._seen), self._seen.record
        if now >= free and self._checked and now - self._checked_at <= self._timing.unseen_for:
            claim = self._record(1, None) if record is None else self._record(record.term + 1, record.position)
            return Write(claim, self._seen.revision)
        if now >= self._next_look:
            return Look()
        return Rest(min(self._next_look, free) if free > now else self._next_look)

    # -- events ------------------------------------------------------------------------------------------------------

    def hinted(self, now: float, *, released: bool) -> None:
        """Note that a replica wrote the record or tried to. It may not be stored yet."""
        if not self.held:
            self._next_look = now
            if released:
                self._eager_until = now + _EAGER_FOR

    def looked(self, sighting: Sighting, now: float) -> None:
        """Process the answer to a read. `now` is a time after it."""
        record = sighting.record
        ours = record is not None and record.holder == self._me and not record.released
        if record is not None and ours and not (self.held and sighting.revision == self._revision):
            self._adopt(record, sighting.revision)
        elif self.held:
            self._looked_as_holder(sighting, now, ours=ours)
        else:
            self._looked_on_standby(sighting, now)

    def sent(self, write: Write, now: float) -> None:
        """Note that a write is about to be sent. `now` is a time before it."""
        self._beat = write.record.beat
        self._in_doubt[self._beat] = self._last_sent = now
        self._checked = False
        self._next_look = _NEVER

    def stored(self, write: Write, revision: int) -> None:
        """Note that the write was stored as that revision."""
        self._take(write.record, revision, self._in_doubt[write.record.beat])

    def conflict(self, write: Write) -> None:
        """Note that nothing was stored, because the revision has changed.

        The next read shows the writer, who may be this one.
        """
        del self._in_doubt[write.record.beat]
        self._certain = False
        self._seen, self._renewed = None, True

    def refused(self, write: Write, now: float) -> None:
        """Note that nothing was stored, for a reason other than the revision, such as a full bucket."""
        del self._in_doubt[write.record.beat]
        self._certain = False
        self._put_off(now)

    def unanswered(self, now: float) -> None:
        """Note that a read or a write was not answered. It is unknown whether the write is stored."""
        self._certain = False
        self._put_off(now)

    def give_back(self) -> Write | None:
        """End the term. Return the write that lets another replica take over at once.

        None if the record may no longer belong to this replica; the others then wait until its time is over.
        """
        write = None
        if self.held and self._certain:
            write = Write(replace(self._record(self.term, self.kept), released=True), self._revision)
        self.lose()
        return write

    def lose(self) -> None:
        """End the term."""
        self.held = self._certain = self._checked = False
        self.deadline = self._next_look = _NEVER
        self.holder = ""
        self.kept = None
        self._seen, self._renewed = None, False
        self._in_doubt.clear()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _looked_as_holder(self, sighting: Sighting, now: float, *, ours: bool) -> None:
        if not ours:
            if sighting.record is not None or not self.is_open(now):
                return self.lose()
            # Another client deleted it. No other replica can have begun to write yet, so the first to write a record
            # leads.
            self._revision = sighting.revision
            self._last_sent = _NEVER
        self._certain = self._checked = True
        return None

    def _looked_on_standby(self, sighting: Sighting, now: float) -> None:
        if sighting != self._seen:
            self._in_doubt.clear()  # a write over the revision before can no longer be stored
            self._eager_until = _NEVER
            self._renewed = self._renewed or self._seen is not None
        elif now - self._checked_at > self._timing.unseen_for:
            self._renewed = False
        if sighting != self._seen or now - self._checked_at > self._timing.unseen_for:
            self._seen_since = now  # time without observation does not count
        self._seen, self._checked_at, self._checked = sighting, now, True
        self._next_look = now + (_EAGER_EVERY if now < self._eager_until else self._timing.renew_every)
        record = sighting.record
        self.holder = "" if record is None or record.released else record.holder

    def _adopt(self, record: Record, revision: int) -> None:
        """Treat an unanswered write of this replica that was stored as a renewal from the time of sending."""
        sent = self._in_doubt.get(record.beat)
        if self.held and sent is None:
            return self.lose()  # revisions in between are unknown
        self._take(record, revision, sent if sent is not None else _NEVER)
        self._checked = True
        return None

    def _take(self, record: Record, revision: int, sent: float) -> None:
        if not self.held:
            self.kept = record.position
        self.held = self._certain = True
        self.holder, self.term = record.holder, record.term
        self.deadline = max(sent + self._timing.open_for, self.deadline)
        self._revision = revision
        self._seen = None
        self._in_doubt.clear()

    def _record(self, term: int, position: KeptPosition | None) -> Record:
        return Record(self._me, term, self._beat + 1, self._timing.ttl, position=position)

    def _free_at(self, seen: Sighting) -> float:
        record = seen.record
        if record is not None and record.released:
            return self._seen_since + self.restraint if self.restraint else _NEVER
        return self._seen_since + (record.ttl if record is not None else self._timing.ttl) + self.restraint

    def _put_off(self, now: float) -> None:
        self._next_look = now + self._timing.renew_every / 4
