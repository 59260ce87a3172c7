"""Requests the newest message that a removal leaves on a subject, as soon as the advisory arrives.

The problem: after a removal, `retention` may not know a subject's newest message. Only the server does, and only as
long as nothing else is stored or removed there.

The idea: the server looks a predecessor up just before it stores a message. An earlier request finds the same
predecessor. Later, the message itself, a rollup or another removal may have removed it. So the request does not wait
for the next message. An answer that comes too late is counted as uncertain.

Example: subject b has messages 3 and 6, and a client deletes 6.

```text
time  in the stream      here
0 ms  6 is deleted
1 ms                     the advisory; the encoder knows that 6 was on b; request: the newest message of b?
2 ms  answers: 3         kept: the answer for 6, in time
9 ms  7 b is stored
10 ms                    7 comes; the newest message seen on b is 6, a hole; the answer for 6 is 3
```

If 7 had been stored before the request arrived, the answer would be 7. It is newer than 6, so the newest below 6 is
searched. That may have been removed by 7 itself: the answer is right most of the time, and counted as uncertain.

Three cases delay a request, and each has its place: the encoder has not seen the deleted message yet (`_coming`); more
than `_MOST_AT_ONCE` were deleted together, so the encoder requests the answer when it needs it (`newest_remaining`);
the message in an answer is deleted in turn before the next one comes (`_answered` has its subject).

Invariants:

* Removals reach `retention` in the order in which their advisories arrive, even if a request has no answer yet. The
  state that `STREAM.INFO` shows after a purge follows when it is known. A purge that keeps messages of one subject
  changes nothing.
* There is at most one request at a time for each deleted message, and one for each purge.
* Every removal is counted once, when its effect is known.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from structlog.typing import FilteringBoundLogger

from nats_bridge.client.audit_advisories import Deleted, Purged
from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import STREAM_NOT_FOUND, Json
from nats_bridge.client.tasks import end_tasks
from nats_bridge.client.waiting import EVERY_SECOND
from nats_bridge.errors import ApiError
from nats_bridge.kinds.republish.encoder import Remaining, RepublishEncoder, Suspect
from nats_bridge.kinds.republish.retention import SubjectPurge
from nats_transforms.subject import is_valid_literal

_Answer = TypeVar("_Answer")

# maximum number of deletions with a request at a time; for others, the predecessor is requested when needed
_MOST_AT_ONCE = 64
_MOST_KEPT = 4096  # answers for subjects without a new message since
_MOMENT_NS = 1_000_000  # at most, usually: from a removal to the time stamp of its advisory
_EVERYTHING = b">"


class Predecessors:
    """Requests the messages that removals have left in one stream, and answers the encoder.

    Args:
        connection: the connection that holds the stream.
        encoder: has the model of the stream.
        last_encoded: returns the sequence and the time of the last message that the encoder was given.
    """

    def __init__(
        self,
        connection: Connection,
        stream: str,
        encoder: RepublishEncoder,
        last_encoded: Callable[[], tuple[int, int]],
        log: FilteringBoundLogger,
    ) -> None:
        self._connection = connection
        self._stream = stream
        self._encoder = encoder
        self._counters = encoder.counters
        self._last_encoded = last_encoded
        self._log = log
        # deleted messages that are not looked up yet, with the time of the server's report
        self._fresh: dict[int, int] = {}
        self._coming: set[int] = set()  # deleted, and not seen yet
        self._requests: dict[int, asyncio.Task[Remaining | None]] = {}  # by deleted sequence
        self._answered: dict[int, bytes] = {}  # the subjects of the answers
        self._purges: dict[SubjectPurge, asyncio.Task[None]] = {}

    async def end(self) -> None:
        """Stop asking."""
        await end_tasks(*self._requests.values(), *self._purges.values())

    def forget(self) -> None:
        """Note that the stream is a new one: its sequences restart at 1."""
        self._fresh.clear()
        self._coming.clear()
        self._requests.clear()
        self._answered.clear()

    def deleted(self, removal: Deleted) -> None:
        """Note that a message was deleted."""
        retention, sequence = self._encoder.retention, removal.sequence
        retention.after(removal.time_ns, lambda _: retention.removed(sequence))
        if not retention.needs_server_for_deleted:
            self._counters.removals += 1
            return
        self._fresh[sequence] = removal.time_ns
        if len(self._fresh) == 1:
            # One search for all removals in one read of the socket.
            asyncio.get_running_loop().call_soon(self._search)

    def purged(self, removal: Purged) -> None:
        """Messages were purged."""
        subject_filter = removal.subject_filter.encode()
        retention, purge = self._encoder.retention, SubjectPurge(subject_filter or _EVERYTHING)
        if removal.keep and is_valid_literal(subject_filter) and not retention.limits.max_msgs:
            self._count()
            return  # the newest message of a subject is among those that are kept

        def apply(coming: int) -> None:
            # Older servers purge everything if asked to purge below 1, so the server's answer decides.
            purge.begin((min(removal.below, coming) if removal.below > 1 else coming) - 1)
            retention.purged(purge)

        retention.after(removal.time_ns, apply)
        self._purges[purge] = asyncio.create_task(self._find_remaining(purge, removal, *self._last_encoded()))

    @property
    def expects(self) -> bool:
        """Whether a message was deleted that the encoder had not seen."""
        return bool(self._coming)

    def handed_on(self) -> None:
        """Search for removed messages among those that the encoder has seen since.

        Call it only while some are expected.
        """
        if min(self._coming) <= self._last_encoded()[0]:
            self._search()

    async def newest_remaining(self, suspect: Suspect) -> Remaining | None:
        """Return the newest remaining message of a suspect's subject; None if the model can now decide. See `Ask`."""
        self._search()
        retention = self._encoder.retention
        purges = {purge for purge in retention.purges(suspect.subject, suspect.last) if not purge.answered}
        purges.update(retention.unanswered)
        if purges:
            await asyncio.gather(*(asyncio.shield(self._purges[purge]) for purge in purges))
            return None
        asked = self._requests.get(suspect.last)
        remaining = await asyncio.shield(asked) if asked is not None else None
        if remaining is None:
            remaining = Remaining(await self._newest(suspect), in_time=False)
        if not remaining.in_time:
            self._counters.last_sequence_uncertain += 1
        return remaining

    # -- deletions ---------------------------------------------------------------------------------------------------

    def _search(self) -> None:
        """Find the subjects whose last message was deleted, and request their remaining messages."""
        fresh, self._fresh = self._fresh, {}
        position, newest_ns = self._last_encoded()
        seen = [sequence for sequence in self._coming if sequence <= position]
        self._coming.difference_update(seen)
        self._coming.update(sequence for sequence in fresh if sequence > position)
        sequences = [sequence for sequence in (*fresh, *seen) if sequence <= position or sequence in self._answered]
        found = {sequence: self._answered[sequence] for sequence in sequences if sequence in self._answered}
        found |= self._encoder.subjects_of(sequences[:_MOST_AT_ONCE])
        for sequence, subject in found.items():
            self._requests[sequence] = asyncio.create_task(self._ask(subject, sequence))
        for sequence, time_ns in fresh.items():
            if sequence in found:
                self._requests[sequence].add_done_callback(self._count)
                continue
            if sequence <= position and newest_ns > time_ns - _MOMENT_NS:
                # A message that was stored after the deletion, but before its report, may name it.
                self._counters.last_sequence_uncertain += 1
            self._count()
        while len(self._requests) > _MOST_KEPT:
            del self._requests[next(iter(self._requests))]
        while len(self._answered) > _MOST_KEPT:
            del self._answered[next(iter(self._answered))]

    def _count(self, _: object = None) -> None:
        self._counters.removals += 1

    async def _ask(self, subject: bytes, deleted: int) -> Remaining | None:
        api, stream = self._connection.api, self._stream
        try:
            name = subject.decode()
            found = await api.last_message(stream, name)
            newest = found.sequence if found is not None else 0
            if newest > deleted:
                # There is a newer message: it may have replaced its predecessor.
                return Remaining(await self._newest_below(name, deleted), in_time=False)
            if not newest:
                # Up to 2.12.4 that may mean that the server has lost sight of the older ones.
                newest = await self._newest_below(name, deleted)
                if newest and await api.next_message(stream, name, deleted):
                    return Remaining(newest, in_time=False)
        except (ApiError, UnicodeDecodeError):
            return None  # then it is requested when needed
        if newest:
            self._answered[newest] = subject
        return Remaining(newest, in_time=True)

    async def _newest_below(self, subject: str, sequence: int) -> int:
        floor = max(self._encoder.retention.floor, 1)
        return await self._connection.api.newest_before(self._stream, subject, floor, sequence - 1)

    async def _newest(self, suspect: Suspect) -> int:
        try:
            subject = suspect.subject.decode()
        except UnicodeDecodeError:
            return 0
        return await self._patiently(lambda: self._newest_below(subject, suspect.last + 1)) or 0

    # -- purges ------------------------------------------------------------------------------------------------------

    async def _find_remaining(self, purge: SubjectPurge, removal: Purged, handled: int, newest_ns: int) -> None:
        retention, found = self._encoder.retention, None
        state: Json = {"first_seq": 0, "last_seq": 0}
        subject_filter = purge.subject_filter.decode()
        try:
            found = await self._patiently(lambda: self._connection.api.next_message(self._stream, subject_filter, 1))
            # Read the state after that, because later messages are stored next to the remaining ones.
            state = await self._patiently(self._state) or state
        except ApiError as error:
            self._log.warning("rule.stream_not_seen", reason=str(error))
        first = found[0] if found is not None else 0
        lowest, last = int(state["first_seq"]), int(state["last_seq"])
        retention.answer(purge, first, last)
        if removal.messages and 0 < first <= handled and newest_ns > removal.time_ns - _MOMENT_NS:
            # A message that was stored after the purge, but before its report, may name a purged one.
            self._counters.last_sequence_uncertain += 1
        if retention.limits.max_msgs:
            deleted = state.get("deleted") or ()
            retention.after(removal.time_ns, lambda coming: retention.observe(min(lowest, coming), deleted))
            retention.seen_to = last
        self._count()
        del self._purges[purge]

    async def _state(self) -> Json:
        deleted = bool(self._encoder.retention.limits.max_msgs)
        state: Json = (await self._connection.api.stream_info(self._stream, deleted=deleted))["state"]
        return state

    async def _patiently(self, request: Callable[[], Awaitable[_Answer]]) -> _Answer | None:
        """Return the answer, without a time limit; None if the stream is deleted."""
        while True:
            await self._connection.connected()
            try:
                return await request()
            except ApiError as error:
                if error.err_code == STREAM_NOT_FOUND:
                    return None
                if not error.passing:
                    raise
                self._log.warning("rule.predecessor_not_seen", reason=str(error))
                await asyncio.sleep(EVERY_SECOND)
