"""Finds where an entry resumes, from the copies in its target. The entry point is `Resuming.position`.

The problem: after a crash, only the target shows what was copied, by its newest copies. These can mislead: copies can
be missing between them, can have been removed since, or can be copies of an earlier stream of the source's name, or of
messages that the source has lost.

The idea: each round asks five questions, in this order.

1. Is the source the stream that the copies were made of (`entry_streams`)? If not, it is copied from its start, or the
   rule stops (`on_recreated`).
2. Is the target the stream that the previous round wrote to, does it still hold the confirmed messages, and has the
   source not lost the last message read or the newest copied one? If so, everything up to the confirmed position is
   stored, even if it was removed since, and only copies after it are compared (`comparing`).
3. Does the target hold any copies? If not, the entry begins where a server would (`_first_position`): at a configured
   sequence, at a configured time or that of the target's last message if it is later, or else with the first message.
4. Was the target recreated since the previous round, or did it lose all its messages, perhaps before this process
   began? Then it only has copies of messages that were in flight at that time. The entry begins again at its start, and
   these copies are `already_stored`.
5. Which messages between the newest copies have no copy (`comparing`)? They are sent. The copies after them are
   `already_stored`.

If the source has lost its end, all compared copies can be of lost messages. Then the times in their ids decide: what
the source has stored since is younger.

```text
the source held 1 … 100, all copied       the newest copies, 93 … 100, are compared
it loses 61 … 100 and stores 61 … 95 new  93 … 95 are other messages, 96 … 100 are gone: nothing compared is held
it stored the copied 100 at 10:00:00      its last message until then is 60, so resume after 60
```

Two kinds of entries need less: with `keep_sequence`, the target's last sequence is the position. With `acknowledge`,
the durable consumer has the position, and copies only show what not to send again.

Example: a round has confirmed 500, stored as 800 in the target, and is interrupted with 501 … 510 in flight. The target
has stored 501, 502 and 505 of these.

```text
the next round of this process    the target is the same and holds 800: 500 is confirmed.
                                  after it: 501 502 505, so resume after 500; 501 502 505 are stored; 2 are missing
the first round of a new process  nothing is confirmed: the newest copies are compared, from 505 back.
                                  503 is missing, so resume after 502; 505 is stored; 2 are missing (503, 504)
```

Invariants:

* Each selected message of the source up to the position was stored in the target, counts as deleted there
  (`Resume.assumed`), or is before the entry's start (the third question).
* `remember` is called once at the end of a round, before the next one asks for a position.
* Times of source and target are not compared, because their clocks can differ. The exceptions are the first question,
  if all messages differ, and the third one, because servers compare them there as well.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

import structlog

from nats_bridge.client.jetstream_api import JetStreamApi, Json
from nats_bridge.client.settled_stream import settled_stream
from nats_bridge.client.stream_identity import KnownStream, MessageStamp, Verdict
from nats_bridge.consuming.lost_end import intact_until, time_before
from nats_bridge.consuming.replay import Replay
from nats_bridge.errors import RuleRefusedError
from nats_bridge.kinds.copying.position.comparing import (
    NEWEST,
    Resume,
    SourceMessage,
    compared_after_confirmed,
    compared_copies,
    compared_entry,
    is_of,
    selected_between,
    superseded,
)
from nats_bridge.kinds.copying.position.confirmed import Confirmed, Placed, verdict_by_place
from nats_bridge.kinds.copying.position.entry_streams import (
    TOGETHER_NS,
    EntryStreams,
    SourceIdentity,
    StoredCopy,
    TargetTail,
    identity_by_copies,
)
from nats_bridge.kinds.copying.target import Target
from nats_transforms import header_block
from nats_transforms.copy_id import CopyId
from nats_transforms.republish import StoredMessage
from nats_transforms.timestamp import nanoseconds_of, rfc3339_nano

if TYPE_CHECKING:
    from nats_bridge.kinds.copying.entry import EntryPlan

_log = structlog.get_logger("bridge.copying")

Acknowledged: TypeAlias = Callable[[dict[int, StoredCopy], Json], Awaitable[int]]
"""Takes the newest copies, by their sequences in the source, and the source's info. Gives the sequence after which the
consumer begins."""


class Resuming:
    """Finds the position of one entry.

    Attributes:
        identity: the facts that tell copies of the present source from others; known after `position`.
        same_target: whether the target is the stream of the previous round.
        placed: the newest copy, when the position was found.
        source_shortened: whether the reader has noticed that the source lost its end, so it is counted already.
    """

    def __init__(self, plan: EntryPlan) -> None:
        self._plan = plan
        self.identity = SourceIdentity(b"")
        self.same_target = False
        self.placed: Placed = (0, 0)
        self.source_shortened = False
        self._source: KnownStream | None = None
        self._read: MessageStamp | None = None  # the last message of the source that was read
        self._target: KnownStream | None = None
        self._key = b""  # the entry's, when its round began
        self._is_new_target = False  # recreated or emptied, and nothing is confirmed in it yet
        self._confirmed = Confirmed()
        # sequences after the confirmed position that were reported as missing
        self._reported: frozenset[int] = frozenset()
        self._lost_at_source = 0  # the newest copy of a message that the source has lost, by its sequence there
        self._widest = 0  # the largest window of this process so far, in messages
        self._log = _log.bind(rule=plan.rule, stream=plan.stream, source=plan.source.name)

    async def position(self, streams: EntryStreams, acknowledged: Acknowledged | None = None) -> Resume:
        """Return the point to resume at.

        Args:
            streams: the entry's streams, with the target's last sequence after everything that was sent before.
            acknowledged: returns the position of the entry's consumer; only for an entry with `acknowledge`.

        Raises:
            RuleRefusedError: the source is a new stream of the same name and the rule stops then, or sequences cannot
                be kept.
            ApiError: a server refuses, or does not answer.
        """
        if self._plan.keep_sequence:
            return await self._by_last_sequence(streams)
        if acknowledged is not None:
            copies, target_lost = await self._newest_copies(streams, 2 * self._plan.max_pending)
            return Resume(await acknowledged(copies, streams.source_info), target_lost=target_lost)
        return await self._by_records(streams)

    async def _by_records(self, streams: EntryStreams) -> Resume:
        """Decide by the records of the newest copies, and by the position confirmed in the previous round."""
        tail = await streams.newest(max(NEWEST, 2 * self._widest))
        streams = await self._identified(streams, tail)
        confirmed, target, target_lost = await self._recall(streams)
        tail = streams.of_present(tail)
        newest = max(tail.copies, default=None, key=lambda copy: copy.sequence)
        self.placed = confirmed.placed if newest is None else (newest.record.sequence, newest.sequence)
        if self.identity.recreated and not tail.copies:
            self.decide_about_recreated(streams.created)
            return Resume(0)
        source_lost = self.source_shortened or await self._source_lacks_read(streams)
        if confirmed.sequence and not source_lost and await _source_holds(streams, tail.copies):
            # The target is unchanged, so confirmed messages are stored, or were removed after that.
            resume = await compared_after_confirmed(confirmed.sequence, streams, tail, self._reported)
            self._reported = resume.missing_sequences
            self._report(resume)
            return replace(resume, resume_after=min(confirmed.sequence, streams.source_last))
        self._confirmed, self._reported = Confirmed(), frozenset()
        if not tail.copies:
            first = await self._first_position(streams, is_new=target == "recreated")
            return Resume(first, target_lost=target_lost)
        if target != "recreated" and await self._lacks_earlier(streams, tail, target_lost):
            if not target_lost:
                self._log_loss(0)
            self._is_new_target = target_lost = True
        if self._is_new_target:
            # Another client recreated it during the round, or it lost everything. It only has messages that were in
            # flight.
            first = await self._first_position(streams, is_new=True)
            stored = frozenset(copy.record.sequence for copy in tail.copies)
            already_stored = stored | await superseded(streams, tail.copies, first)
            selected = Replay(streams.source.api, self._plan.source.name, self._plan.filters)
            later = await selected.after(max(stored) - 1)
            # The highest stored one is not before itself.
            missing = await selected.after(first) - later - (len(already_stored) - 1)
            return Resume(first, already_stored, missing=max(missing, 0), target_lost=target_lost)
        resume = await self._by_copies(streams, tail)
        self._report(resume)
        source_lost = (source_lost or resume.source_lost) and not self.source_shortened
        self._read, self.source_shortened = None, False
        return replace(resume, target_lost=target_lost, source_lost=source_lost)

    async def _source_lacks_read(self, streams: EntryStreams) -> bool:
        """Return whether the source has lost the last message read from it, or has another one in its place."""
        if (read := self._read) is None or self.identity.recreated:
            return False
        last = await _last_of_source(streams, read.sequence)
        return await intact_until(streams.source, read.sequence, read.time_ns, last) is not None

    async def _identified(self, streams: EntryStreams, tail: TargetTail) -> EntryStreams:
        """Add the identity of the source: by its known messages, or else by its copies."""
        info, known = streams.source_info, self._source
        verdict: Verdict = "unknown" if known is None else await known.verdict(streams.source.api, info)
        if verdict == "same":
            streams = replace(streams, identity=self.identity)
        else:
            streams = replace(streams, identity=await identity_by_copies(streams, tail.copies))
            if verdict == "recreated":
                newest_ns = max((copy.time_ns for copy in tail.copies), default=0)
                streams = replace(streams, identity=SourceIdentity(streams.fresh_key, newest_ns, recreated=True))
        if streams.identity is not None:
            self.identity = streams.identity
            self._source = KnownStream.of(info)
        return streams

    def source_recreated(self, info: Json, key: bytes, since_ns: int) -> None:
        """Note that the source was recreated during a round.

        Args:
            info: its `STREAM.INFO`.
            key: the entry's key with it.
            since_ns: when the target stored its newest message before that, in nanoseconds since 1970.
        """
        self.identity, self._source = SourceIdentity(key, since_ns, recreated=True), KnownStream.of(info)

    async def _recall(self, streams: EntryStreams) -> tuple[Confirmed, Verdict, bool]:
        """Recall the position that the target has confirmed.

        Returns:
            The position that earlier rounds have confirmed, empty if the target is another stream or has lost copies;
            whether it is the same stream as then, unknown in the first round, and recreated if it has lost everything;
            whether it has lost copies.
        """
        known, confirmed = self._target, self._confirmed
        target: Verdict = "unknown"
        if known is not None and self._key == streams.key:
            target = await known.verdict(streams.target_api, streams.target_info)
            if target == "unknown":
                target = await verdict_by_place(streams, confirmed.placed)
        if target == "same" and self._is_new_target:
            target = "recreated"
        lost = await confirmed.lost_from(streams) if target == "same" else 0
        has_none = bool(lost) and not self._plan.durable and await self._has_none_until(streams, lost)
        # If its first messages are gone, it may have removed the copies before the lost ones. A limit for each subject
        # does not: the copies that it left are gone only if later ones have replaced them.
        removed = has_none and Target.may_have_removed_first(await streams.target_api.stream_info(streams.target.name))
        if has_none and not removed:
            target = "recreated"
        # Remembered together, after all answers: a round that ends before them leaves the next one everything to find.
        self._target, self._key = KnownStream.of(streams.target_info), streams.key
        self._is_new_target, self.same_target = target == "recreated", target == "same"
        self._confirmed = confirmed if self.same_target and not lost else Confirmed()
        if not lost:
            return self._confirmed, target, False
        self._log_loss(confirmed.sequence, removed=removed)
        return Confirmed(), target, True

    def _log_loss(self, position: int, *, removed: bool = False) -> None:
        meaning = "messages that it lost and the source still has are copied again"
        if self._plan.durable:
            meaning = "messages acknowledged to the source are lost or not copied again"
        elif removed:
            meaning = "it may have removed earlier copies, so none is made again of a message before its first copy"
        self._log.warning("copying.target_shorter", position=position, meaning=meaning)

    async def _has_none_until(self, streams: EntryStreams, sequence: int) -> bool:
        tail = await streams.newest_of_present(max(NEWEST, 2 * self._widest), True)
        return all(copy.record.sequence > sequence for copy in tail.copies)

    async def _lacks_earlier(self, streams: EntryStreams, tail: TargetTail, target_lost: bool) -> bool:
        """Return whether the target has lost all copies but these, which were in flight then.

        Before the first of them, the target has stored less than half as many messages as the source holds for it. This
        can also mean that the entry's start was changed since, which must not copy earlier messages. So if a process
        begins, the others count as deleted if the entry has a start, or these copies are older than a minute.
        """
        source, place = self._plan.source, tail.copies[0].sequence
        lowest = min(copy.record.sequence for copy in tail.copies)
        if tail.is_cut or place > NEWEST or lowest < 2 * place or self._plan.skip is not None:
            return False
        if Target.may_have_removed_first(streams.target_info):
            return False
        first = (source.opt_start_seq or 1) - 1
        if source.opt_start_time is not None:
            first = await self._at_time(streams, source.opt_start_time)
        lacking = await selected_between(streams, first, lowest, 2 * place)
        if lacking < 2 * place - 1:
            return False
        is_young = tail.copies[0].time_ns >= streams.target.now_ns - TOGETHER_NS
        if target_lost or (is_young and source.opt_start_seq is None and source.opt_start_time is None):
            return True
        self._log.warning(
            "copying.assumed_deleted",
            messages=lacking,
            meaning="at least so many are missing before all copies in the target: deleted by a client, or lost",
        )
        return False

    async def _by_copies(self, streams: EntryStreams, tail: TargetTail) -> Resume:
        """Compare the newest copies, at least one, with the source. Nothing else shows what is stored."""
        highest = max(copy.record.sequence for copy in tail.copies)
        source_last = await _last_of_source(streams, highest)

        def of_held(tail: TargetTail) -> TargetTail:
            return replace(tail, copies=tuple(copy for copy in tail.copies if copy.record.sequence <= source_last))

        async def read(wanted: int, of_any_age: bool) -> TargetTail:
            return of_held(await streams.newest_of_present(wanted, of_any_age))

        remaining = of_held(tail)
        beyond = len(tail.copies) - len(remaining.copies)
        resume = Resume(source_last, all_lost=True)
        if remaining.copies:
            resume = await compared_entry(streams, remaining, read)
        if beyond or resume.foreign:
            resume = await self._before_loss(streams, tail, resume, of_held)
        if beyond:
            self._log.warning("copying.source_shorter", position=highest, last_sequence=source_last)
        if resume.assumed:
            self._log.warning(
                "copying.assumed_deleted",
                messages=resume.assumed,
                meaning="missing in the target, which has lost messages there: deleted by a client, or never stored",
            )
        resume = replace(resume, foreign=resume.foreign + beyond)
        if resume.foreign and self._lost_at_source != highest:
            self._lost_at_source = highest
            resume = replace(resume, source_lost=True)
        return resume

    async def _before_loss(
        self, streams: EntryStreams, tail: TargetTail, resume: Resume, of_held: Callable[[TargetTail], TargetTail]
    ) -> Resume:
        """Return the point to resume at in a source that has lost messages, which may be before all compared copies.

        All messages that the source stored since are younger than the copied ones. The bridge's ids contain the times.
        A copy with its publisher's id has no time, but shows that the source has its message. Without both, more copies
        are compared.
        """
        times = [copy.copy_id.time_ns for copy in tail.copies if copy.copy_id is not None]
        if times:
            before = await streams.source.before(rfc3339_nano(max(times) + 1).decode())
            return replace(resume, resume_after=min(resume.resume_after, max(before, resume.recognised)))
        wanted = len(tail.copies)
        while resume.all_lost:
            wanted *= 4
            further = await streams.newest_of_present(wanted, True)
            if held := of_held(further).copies:
                resume = await compared_copies(streams, replace(further, copies=held))
            if resume.all_lost and len(further.copies) < wanted:
                return replace(resume, resume_after=0)
        return resume

    def _report(self, resume: Resume) -> None:
        if resume.missing or resume.foreign:
            self._log.warning(
                "copying.incomplete",
                missing=resume.missing,
                of_lost_messages=resume.foreign,
                meaning="an interruption left out copies; they are stored now, after later ones",
            )

    async def _newest_copies(self, streams: EntryStreams, wanted: int) -> tuple[dict[int, StoredCopy], bool]:
        """Read the newest copies of the present source.

        Returns:
            The copies, by the source's sequences, and whether the target has lost some that it had confirmed.
        """
        tail = await streams.newest(wanted, of_any_age=True)
        streams = await self._identified(streams, tail)
        _, _, target_lost = await self._recall(streams)
        if self.identity.recreated:
            self.decide_about_recreated(streams.created)
        return {copy.record.sequence: copy for copy in streams.of_present(tail).copies}, target_lost

    def remember(self, confirmed: Confirmed, widest: int, read: MessageStamp | None) -> None:
        """Remember the state of the round that ends.

        Args:
            confirmed: the position that the target confirmed in the round.
            widest: the maximum number of messages that it had in flight.
            read: the last message of the source that is known to be read.
        """
        self._widest = max(self._widest, widest)
        if confirmed.sequence:
            placed = confirmed.placed if confirmed.placed[0] else self._confirmed.placed
            self._confirmed, self._read = replace(confirmed, placed=placed), read
            self.identity, self._is_new_target = replace(self.identity, recreated=False), False
        elif confirmed.is_shorter:
            self._confirmed = replace(self._confirmed, is_shorter=True)

    async def _by_last_sequence(self, streams: EntryStreams) -> Resume:
        """Resume at the target's last sequence, which is also the source's if it belongs to a copy.

        If the target has no message with this sequence, the entry's `opt_start_seq` or `opt_start_time` counts as well.
        """
        plan, last, source_last = self._plan, streams.last, streams.source_last
        await self.remove_fillers(streams.target_api)  # an earlier round may not have removed all
        newest = await streams.target_api.stored_message(plan.stream, last) if last else None
        copy_id = CopyId.parse(header_block.read(newest.header_block, b"Nats-Msg-Id")) if newest else None
        if copy_id is not None and await self._is_of_another(streams, copy_id):
            raise RuleRefusedError(
                f"rule '{plan.rule}': stream '{plan.source.name}' is a new one, and '{plan.stream}' holds copies of the"
                " old one under the same sequences: delete it and create it again"
            )
        self.identity = SourceIdentity(copy_id.entry if copy_id is not None else streams.key)
        foreign = newest is not None and not await _is_copy(streams, newest, copy_id)
        if last > source_last or foreign or (copy_id is not None and copy_id.sequence != last):
            raise RuleRefusedError(
                f"rule '{plan.rule}': stream '{plan.stream}' has sequence {last}, which is not a copy of that message"
                f" of '{plan.source.name}' (last sequence {source_last}), so sequences can be kept no longer"
            )
        if newest is not None:
            return Resume(last)
        if plan.source.opt_start_seq is not None:
            return Resume(max(last, plan.source.opt_start_seq - 1))
        if plan.source.opt_start_time is not None:
            # The time of the target's last message cannot be used here, because it may be a filler.
            return Resume(max(last, await self._at_time(streams, plan.source.opt_start_time)))
        return Resume(last)

    async def _is_of_another(self, streams: EntryStreams, copy_id: CopyId) -> bool:
        known = KnownStream("", (MessageStamp(copy_id.sequence, copy_id.time_ns),))
        if copy_id.entry == streams.key:
            return False
        return await known.verdict(streams.source.api, streams.source_info) == "recreated"

    async def remove_fillers(self, target: JetStreamApi) -> None:
        """Purge the fillers, which took the sequences that are missing in the source."""
        if self._plan.filler is not None:
            await target.request(f"STREAM.PURGE.{self._plan.stream}", {"filter": self._plan.filler})

    async def _first_position(self, streams: EntryStreams, *, is_new: bool) -> int:
        """Return the start if the target has no copy, as the server decides it (2.10 to 2.15).

        Without a configured start, the time of the target's last message counts only if the target has lost messages at
        its front. A target that still has its first message never had a copy. That time never counts in a new target,
        because its last message can be a copy that was in flight.
        """
        source, state = self._plan.source, streams.target_info["state"]
        if source.opt_start_seq is not None:
            return source.opt_start_seq - 1
        earliest = None
        if source.opt_start_time is not None:
            earliest = source.opt_start_time
            second = datetime.fromisoformat(earliest).replace(microsecond=0)
            is_later = nanoseconds_of(state["last_ts"]) > int(second.timestamp()) * 10**9
            if int(state["messages"]) and is_later and not is_new:
                earliest = str(state["last_ts"])
        elif int(state["first_seq"]) > 1 and nanoseconds_of(state["last_ts"]) > 0 and not is_new:
            earliest = str(state["last_ts"])
        if earliest is None:
            return 0
        self._log.warning(
            "copying.begins_at_time", time=earliest, meaning="the target holds no copy that shows the position"
        )
        return await self._at_time(streams, earliest)

    async def _at_time(self, streams: EntryStreams, time: str) -> int:
        return min(await Replay(streams.source.api, self._plan.source.name).before(time), streams.source_last)

    def decide_about_recreated(self, created: str) -> None:
        """Report that the source was recreated, or stop.

        Raises:
            RuleRefusedError: the rule is to stop.
        """
        plan = self._plan
        if plan.on_recreated == "stop":
            raise RuleRefusedError(
                f"rule '{plan.rule}': stream '{plan.source.name}' is a new one (created {created}), and"
                f" '{plan.stream}' holds copies of the old one: set on_recreated: restart to copy it from its start"
            )
        self._log.warning("copying.source_recreated", created=created, meaning="copied from its start")


async def _source_holds(streams: EntryStreams, copies: Sequence[StoredCopy]) -> bool:
    """Return whether the source still has the newest copied message, and not another one in its place.

    If that message was removed, perhaps as another one, the newest message before it must not be younger.
    """
    newest = max(copies, default=None, key=lambda copy: copy.record.sequence)
    if newest is None:
        return True
    source, sequence = streams.source, newest.record.sequence
    message = await source.api.stored_message(source.stream, sequence)
    if message is None:
        copy_id, reaches = newest.copy_id, sequence <= streams.source_last
        return reaches and (
            copy_id is None or await time_before(source.api, source.stream, sequence) <= copy_id.time_ns
        )
    message_id = header_block.read(message.header_block, b"Nats-Msg-Id")
    return is_of(newest, SourceMessage(message.time_ns, newest.subject, message_id))


async def _last_of_source(streams: EntryStreams, handled: int) -> int:
    """Return the source's last sequence, also if a leader has not caught up with a handled message yet."""
    if handled <= streams.source_last:
        return streams.source_last
    info = await settled_stream(streams.source.api, streams.source.stream, handled)
    return int(info["state"]["last_seq"])


async def _is_copy(streams: EntryStreams, stored: StoredMessage, copy_id: CopyId | None) -> bool:
    """Return whether a message is a copy of the source's message of the same sequence.

    By the bridge's id, or by content.
    """
    message = await streams.source.api.stored_message(streams.source.stream, stored.sequence)
    if message is None:
        return True  # the source no longer holds it
    if copy_id is not None:
        return message.time_ns == copy_id.time_ns
    return (streams.sourcing.destination(message.subject), message.payload) == (stored.subject, stored.payload)
