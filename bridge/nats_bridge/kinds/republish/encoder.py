"""The hot loop: batches of stored messages in, protocol operations out.

Its output is byte for byte that of `nats_transforms.republish` (a test compares the two). But everything constant for a
rule is built once, so a message costs a few bytes operations and one dict look-up.

It keeps an entry per subject: the destination and the last sequence. Entries live in a dict that is bounded by memory.
When it is full, sweeps go through it. For each new entry, one that was not used since the previous sweep began moves
into a compact map of last sequences (`subject_sequences`). Subjects without an entry use that map directly, and only
every sixteenth of their messages creates an entry. So the dict is never cleared at once, and subjects that come once
cost little.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.ack_reply import AckReply
from nats_bridge.kinds.republish.counters import RuleCounters
from nats_bridge.kinds.republish.retention import Retention
from nats_bridge.kinds.republish.subject_sequences import SubjectSequences
from nats_bridge.rules.loops.subject_overlap import may_land_on
from nats_transforms import header_block
from nats_transforms.republish import Refusal, Republish
from nats_transforms.subject import matcher
from nats_transforms.timestamp import rfc3339_nano

_HOT_BYTES = 40 << 20
"""Size limit for the entries of recent subjects."""
_ENTRY_BYTES = 260
"""Size of an entry with its share of the dict, without its subject and destination."""
_SEARCHED_SUBJECTS = 65_536
_ENTERS = 16
"""When the dict is full, one in this many messages without an entry creates one."""
_LOOKS = 8
"""Number of entries to inspect for one that was not used recently."""
_NONE = b"0"
_BLOCK = itemgetter(2)  # of a delivered message


@dataclass(frozen=True, slots=True)
class Suspect:
    """A predecessor that may have been removed. Only the server knows the newest one before `sequence`."""

    subject: bytes
    last: int
    sequence: int


class Remaining(NamedTuple):
    """The newest message of a subject (0 if none), and whether nothing newer than the deleted message existed yet."""

    newest: int
    in_time: bool


Ask: TypeAlias = Callable[[Suspect], Awaitable[Remaining | None]]
"""Requests the remaining messages of a suspect's subject. Returns None if the model of the stream can now decide."""

OnReserved: TypeAlias = Callable[[bytes, Refusal], None]
"""Gets a subject, and the command that its messages would become."""


class RepublishEncoder:
    """Turns delivered messages of one stream into `HPUB` operations.

    Args:
        retention: the model of removals from the stream.
        own_subjects: the stream's subjects, if the target is in the stream's account. Messages with such a destination
            are not published, because they would be stored and republished endlessly.
        max_payload: bytes that the target server accepts in one message, headers included.
        on_reserved: gets each new subject whose messages would be commands to the server.

    Attributes:
        waiting: messages of a batch that wait for a request about a subject.
    """

    def __init__(
        self,
        republish: Republish,
        retention: Retention,
        counters: RuleCounters,
        *,
        own_subjects: Sequence[bytes] = (),
        max_payload: int = 1 << 20,
        on_reserved: OnReserved | None = None,
    ) -> None:
        self.retention = retention
        self.counters = counters
        self._republish = republish
        self.set_own_subjects(own_subjects)
        self.max_payload = max_payload
        self._on_reserved = on_reserved
        self.waiting = 0
        self._suspect: Suspect | None = None
        self.last_sequences = SubjectSequences()
        self._timed = republish.dialect.republish_time_stamp
        self._empty_size = 0 if republish.dialect.republish_cuts_two_byte_block else 2
        self._headers_only = republish.headers_only
        self._random = republish.transform.is_random
        self._where = republish.where
        self._plain = self._timed and not self._headers_only and not self._random and republish.where is None
        self._form, self._form_size = b"", 0
        if self._plain:
            # The time stamp comes in two pieces: up to the dot, which stays for a second, and the fraction.
            lines = republish.lines_form(time=b"%b%bZ", absent=b"")
            self._form = b"HPUB %b %d %d\r\n%b" + lines + b"%b\r\n"
            self._form_size = len(lines % (b"", b"", b"", b"", b""))
        # For each subject: the destination (None if not published), the last sequence, and the size of the constant
        # part of the header lines (or the reason why it is not published).
        self._entries: dict[bytes, list[Any]] = {}
        self._room = _HOT_BYTES
        self._missed = 0  # messages without an entry while the dict was full
        self._unswept: list[bytes] = []  # subjects that the present sweep has not come to
        self._sweeps = (0, 0)  # the stream's sequence when the sweep before began, and when the present one did
        self._second = b""
        self._stamp = b""
        self._looked_up = (b"", 0)

    def set_own_subjects(self, patterns: Sequence[bytes]) -> None:
        """See `Args`. Call `forget_destinations` after a change, unless no message was encoded yet."""
        # Most rules cannot publish on any of them, and a search for each new subject is expensive.
        self._would_loop = matcher([each for each in patterns if may_land_on(self._republish.transform, each)])

    def seed(self, subject: bytes, sequence: bytes) -> None:
        """Set the last sequence (decimal text) of a subject, before or between batches."""
        entry = self._entries.get(subject)
        if entry is None:
            self.last_sequences.set(subject, sequence)
        else:
            entry[1] = sequence

    def subjects_of(self, sequences: Sequence[int]) -> dict[int, bytes]:
        """Return the subjects whose last message has one of the sequences.

        A map that is too large to search is left out.
        """
        wanted = {b"%d" % sequence: sequence for sequence in sequences}
        found = {wanted[entry[1]]: subject for subject, entry in self._entries.items() if entry[1] in wanted}
        if len(self.last_sequences) <= _SEARCHED_SUBJECTS:
            for text, sequence in wanted.items():
                subject = self.last_sequences.subject_of(text)
                if subject is not None and subject not in self._entries:
                    found[sequence] = subject
        return found

    def forget(self) -> None:
        """Note that the stream is a new one, so nothing known about it is valid."""
        self.last_sequences.clear()
        self._clear()

    def forget_destinations(self) -> None:
        """Forget everything derived from the stream's subjects or the target, which have changed."""
        for subject, entry in self._entries.items():
            self._keep(subject, entry[1])
        self._clear()

    def run(self, batch: Sequence[Delivered], out: list[bytes], ask: Ask | None = None) -> Awaitable[None] | None:
        """Republish messages in order, appending whole operations to `out`.

        Args:
            batch: delivered messages.
            out: gets the operations.
            ask: requests a predecessor that may have been removed; None if nothing is ever removed.

        Returns:
            None, or an awaitable that handles the rest of the batch after a request about a predecessor.
        """
        before = len(out)
        retention = self.retention
        if (forgettable := retention.forgettable) and AckReply.parse(batch[0][1]).stream_sequence >= forgettable:
            self.forget_destinations()  # so that all last sequences are in the compact map
            self.last_sequences.forget_below(retention.floor)
            retention.raised = False
        if self._plain and not retention.active:
            self._run_plain(batch, out)
            done = len(batch)
        else:
            done = self._run_careful(batch, out)
        self.counters.received += done
        self.counters.republished += len(out) - before
        return self._run_asking(batch[done:], out, ask) if done < len(batch) else None

    async def _run_asking(self, rest: Sequence[Delivered], out: list[bytes], ask: Ask | None) -> None:
        """Run with care, and ask for each predecessor before the message that must name it."""
        while rest:
            self.waiting = len(rest)
            suspect = self._suspect
            assert suspect is not None
            assert ask is not None
            remaining = await ask(suspect)
            if remaining is not None:
                self.counters.last_sequence_lookups += 1
                self.seed(suspect.subject, b"%d" % remaining.newest)
                if not remaining.in_time:  # else later removals may have removed it
                    self._looked_up = (suspect.subject, remaining.newest)
            before = len(out)
            done = self._run_careful(rest, out)
            self.counters.received += done
            self.counters.republished += len(out) - before
            rest = rest[done:]
        self.waiting = 0

    def _run_plain(self, batch: Sequence[Delivered], out: list[bytes]) -> None:
        """No removals to think of, payloads and time stamps wanted: nearly always this one."""
        get = self._entries.get
        append = out.append
        form, max_payload = self._form, self.max_payload
        second, stamp = self._second, self._stamp
        # From the end, the last of five tokens is cut in no more: stream sequence, consumer sequence, time, the rest.
        dots = batch[0][1].count(b".")
        cuts = 4 if dots == 8 else dots - 6
        around = len(stamp)
        # One search for all messages: a search for each costs a quarter of the loop.
        if header_block.TRACE in b"".join(map(_BLOCK, batch)):
            batch = [
                (subject, reply, header_block.untraced(block), payload) for subject, reply, block, payload in batch
            ]
        for subject, reply, block, payload in batch:
            tokens = reply.rsplit(b".", cuts)
            sequence = tokens[1]
            entry = get(subject)
            if entry is None:
                entry = self._enter(subject, sequence)
            destination, last, size = entry
            entry[1] = sequence
            if destination is None:
                self._count_dropped(size)
                continue
            time = tokens[3]
            if time[:-9] != second:
                second, stamp = time[:-9], _stamp_to_dot(time)
                around = len(stamp)
            fraction = time[-9:].rstrip(b"0")
            if not fraction:
                # A whole second has no dot. The next time in the same second needs it again.
                second, stamp = b"", stamp[:-1]
                around = len(stamp)
            opened = block[:-2] if block else header_block.START
            size += around + len(opened) + len(sequence) + len(fraction) + len(last)
            total = size + len(payload)
            if total > max_payload:
                self.counters.too_large += 1
                continue
            append(form % (destination, size, total, opened, subject, sequence, stamp, fraction, last, payload))
        self._second, self._stamp = second, stamp

    def _run_careful(self, batch: Sequence[Delivered], out: list[bytes]) -> int:
        """Encode carefully: predecessors may be removed, the rule is headers-only, or the dialect has no time stamp."""
        retention = self.retention
        following = retention.active
        at = 5 if batch[0][1].count(b".") == 8 else 7
        for done, (subject, reply, block, payload) in enumerate(batch):
            tokens = reply.split(b".")
            sequence = tokens[at]
            number = int(sequence)
            time = tokens[at + 2]
            entry = self._entries.get(subject) or self._enter(subject, sequence, is_kept=True)
            last = entry[1]
            if following:
                if retention.pending:
                    retention.apply_until(int(time), number)
                if retention.unanswered:
                    self._suspect = Suspect(subject, int(last), number)
                    return done
                if not done:
                    retention.advance(number, int(time))
                retention.reach(number)
                found = self._existing(subject, int(last), number)
                if found is None:
                    return done
                last = entry[1] = b"%d" % found
                rollup = header_block.read(block, b"Nats-Rollup") if b"Nats-Rollup" in block else None
                retention.stored(subject, number, found, rollup)
            entry[1] = sequence
            if self._random:
                entry = self._derive(subject, sequence)
            if entry[0] is None:
                self._count_dropped(entry[2])
                continue
            if self._where is not None and not self._where.holds(block):
                self.counters.unmatched += 1
                continue
            operation = self._operation(entry[0], subject, block, payload, sequence, time, last)
            if operation is None:
                self.counters.too_large += 1
            else:
                out.append(operation)
        return len(batch)

    def _existing(self, subject: bytes, last: int, sequence: int) -> int | None:
        """Return the predecessor that the server would have found; None, with `_suspect` set, if it is unknown."""
        retention, found = self.retention, last
        uncertain = False
        if retention.skipped and (skipped := retention.newest_skipped(last, sequence)):
            # A subscriber that detects gaps must see one. Removals before the start are found at the start.
            found, uncertain = skipped if skipped > retention.followed_from else last, True
        elif last:
            if last < retention.floor:
                # A message from below the floor was stored before the floor rose.
                if sequence >= retention.floor:
                    found = 0
            elif retention.suspects(subject, last) and self._looked_up != (subject, last):
                known = retention.newest_known(subject, last)
                if known is None:
                    self._suspect = Suspect(subject, last, sequence)
                    return None
                found, uncertain = known, retention.is_late(subject, last, sequence)
            if sequence <= retention.seen_to or retention.limits.uncertain:
                uncertain = True
        if uncertain:
            self.counters.last_sequence_uncertain += 1
        return found

    def _operation(
        self,
        destination: bytes,
        subject: bytes,
        block: bytes,
        payload: bytes,
        sequence: bytes,
        time: bytes,
        last: bytes,
    ) -> bytes | None:
        size = b""
        block = header_block.untraced(block)
        if self._headers_only:
            block, size = _without_size(block)
        stamp = rfc3339_nano(int(time)) if self._timed else b""
        opened = block[:-2] if len(block) > self._empty_size else header_block.START
        head = opened + self._republish.form % (subject, sequence, stamp, last, size)
        size_in_bytes = len(head) + len(payload)
        if size_in_bytes > self.max_payload:
            return None
        return b"HPUB %b %d %d\r\n%b%b\r\n" % (destination, len(head), size_in_bytes, head, payload)

    def _enter(self, subject: bytes, sequence: bytes, *, is_kept: bool = False) -> list[Any]:
        """Return the entry of a subject that has none.

        Args:
            sequence: the sequence of its message, which is stored as the last one if no entry is created.
            is_kept: whether the entry must be kept, because the message may have to be handled again.
        """
        while self._room <= 0 and self._entries:
            if is_kept:
                self._push_out(int(sequence), is_forced=True)
                continue
            self._missed += 1
            if self._missed % _ENTERS or not self._push_out(int(sequence)):
                return self._derive(subject, self.last_sequences.exchange(subject, sequence) or _NONE)
        last = self.last_sequences.get(subject) if len(self.last_sequences) else None
        entry = self._entries[subject] = self._derive(subject, last or _NONE)
        self._room -= _entry_size(subject)
        return entry

    def _push_out(self, sequence: int, *, is_forced: bool = False) -> bool:
        """Move an entry into the compact map.

        Args:
            sequence: the present sequence of the stream.
            is_forced: whether a recently used entry may be removed if no other is found.

        Returns:
            Whether one was moved.
        """
        for looks in range(1, _LOOKS + 1):
            if not self._unswept:
                self._unswept, self._sweeps = list(self._entries), (self._sweeps[1], sequence)
            subject = self._unswept.pop()
            last = self._entries[subject][1]
            if int(last) < self._sweeps[0] or (is_forced and looks == _LOOKS):
                del self._entries[subject]
                self._keep(subject, last)
                return True
        return False

    def _keep(self, subject: bytes, last: bytes) -> None:
        self._room += _entry_size(subject)
        if last != _NONE:
            self.last_sequences.set(subject, last)

    def _derive(self, subject: bytes, last: bytes) -> list[Any]:
        destination = self._republish.destination(subject)
        if destination is None:
            refusal = self._republish.refusal(subject)
            if refusal is None:
                return [None, last, "unmatched"]
            if refusal.code != "reserved":
                return [None, last, "suppressed"]
            if self._on_reserved is not None:
                self._on_reserved(subject, refusal)
            return [None, last, "reserved"]
        if self._would_loop and self._would_loop(destination):
            return [None, last, "looped"]
        return [destination, last, self._form_size + len(subject)]

    def _count_dropped(self, reason: str) -> None:
        setattr(self.counters, reason, getattr(self.counters, reason) + 1)

    def _clear(self) -> None:
        self._entries.clear()
        self._room = _HOT_BYTES
        self._unswept, self._sweeps = [], (0, 0)


def _entry_size(subject: bytes) -> int:
    # Destinations are about as long as subjects.
    return _ENTRY_BYTES + 2 * len(subject)


def _stamp_to_dot(time: bytes) -> bytes:
    return b"%b." % rfc3339_nano(int(time[:-9]) * 1_000_000_000)[:-1]


def _without_size(block: bytes) -> tuple[bytes, bytes]:
    # A headers-only consumer adds the payload's size to the block.
    at = block.rfind(b"Nats-Msg-Size: ")
    return block[:at] + b"\r\n", block[at + 15 : -4]
