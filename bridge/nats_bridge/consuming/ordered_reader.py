"""The ordered reader of a rule: delivers every message once and in order, or counts it as missing.

Theory of operation. `delivery_order` finds everything in a batch that is not simply the next delivery, and this reader
acts on it:

* a message arrives again that was already delivered: drop and count it;
* sequences are missing, or a heartbeat shows that the server has sent more than arrived: read the missing range again
  with a replay, deliver it, continue. Messages that the stream no longer holds are counted as lost;
* nothing arrives, not even heartbeats: check whether the consumer and the stream are still the same;
* the connection was lost: check that before delivering anything that has arrived since. The stream may have lost its
  end, and used those sequences again.

A check has one of these results:

    the stream was created again           read it from its start, by a new consumer
    the stream lost its end                continue after the last message that it still holds, by a new consumer
    the consumer was changed               undo that; read again what it left out, if the position is a confirmed one
    the consumer is gone                   create it after what was delivered
    another process reads through it       the rule fails, or has lost its lead
    none of these                          continue

`lost_end` finds out whether the stream lost its end. If that happened without a lost connection, a rule that may
publish twice reads the new messages under the lost sequences. Otherwise the reader counts the lost range.
"""

from __future__ import annotations

import asyncio
import contextlib

from nats_bridge.client.jetstream_api import STREAM_NOT_FOUND, Json
from nats_bridge.client.settled_stream import settled_stream
from nats_bridge.client.stream_identity import KnownStream, MessageStamp
from nats_bridge.client.waiting import MISSING_AGAIN
from nats_bridge.client.wire import BatchSubscription, Delivered
from nats_bridge.consuming.ack_reply import AckReply
from nats_bridge.consuming.delivery_order import CheckStream, ConfirmAgain, Deliver, DeliveriesLost, Missing
from nats_bridge.consuming.lost_end import intact_until, message_at
from nats_bridge.consuming.reader import Reader
from nats_bridge.consuming.replay import Replay
from nats_bridge.consuming.rule_consumer import TAKEOVER
from nats_bridge.errors import ApiError, RuleRefusedError

_LEAVING_POLL = 0.005  # seconds between two checks whether the server has noticed the UNSUB


class OrderedReader(Reader):
    """Reads one stream for one rule, and reads missing messages again."""

    _losses = 0  # of the connection, when the last check began, or the position was found
    _lost_after: int | None = None  # the resume point of a lost end that the sink knows, until the consumer moves back

    async def open(self, handled: int, info: Json, *, losses: int | None = None) -> None:
        """Start delivering; see `Reader`."""
        self._losses = self.connection.losses if losses is None else losses
        await super().open(handled, info, losses=self._losses)

    @property
    def may_acknowledge(self) -> bool:
        """See `Reader`. It is also right for a closed reader, which no longer hears of lost connections."""
        return super().may_acknowledge and not self._is_interrupted

    async def close(self) -> None:
        """Stop the server's delivery, and deliver everything that it has sent."""
        await super().close()
        if self.plan.position == "sent":
            if self.connection.client.is_connected:
                await self._hand_on_sent()
            else:
                self._log.error(
                    "rule.drain_incomplete",
                    reason="source connection lost: messages that had not arrived are only republished if the position"
                    " can still be kept",
                )

    async def _hand_on_sent(self) -> None:
        """Read messages again that were sent but did not arrive, because the server counts them as delivered."""
        deadline = asyncio.get_running_loop().time() + TAKEOVER
        # The server keeps sending without a subscriber until the consumer has noticed the UNSUB.
        while info := await self.consumer.info():
            is_ours = self.consumer.delivers_here(info)
            if not is_ours or not info.get("push_bound") or asyncio.get_running_loop().time() > deadline:
                if last := self.consumer.last_delivered_here(info):
                    upto, delivered = last
                    await self._fill(Missing(upto, delivered + 1))
                    return
                break
            await asyncio.sleep(_LEAVING_POLL)
        self._log.error(
            "rule.drain_incomplete",
            reason="another process has taken or deleted the consumer: if it had sent more than what arrived, that is"
            " not published",
        )

    async def abandon(self, *, unwritten: bool) -> None:
        """Stop with messages in flight.

        A position that moves with sent messages is set back to the last written one.
        """
        await super().abandon(unwritten=unwritten)
        position, consumer = self.plan.position, self.consumer
        if position == "none" and self.connection.client.is_connected:
            await consumer.delete()
        if position == "sent" and self.connection.client.is_connected and self._fence.is_open:
            info = await consumer.info()
            if info is None or not consumer.delivers_here(info):
                return  # another process has it now
            if unwritten:
                self._order.handled = self._order.earlier
            await consumer.delete()
            await consumer.create(self.handled)

    # -- deliveries that are not the next ones -----------------------------------------------------------------------

    async def _catch_up(self, missing: Missing) -> None:
        last = missing.following - 1
        if not await self._was_sent(last):
            return
        self._order.sent = last
        if not await self._fill(missing):
            return
        self._order.next = missing.following
        if self._newest is not None:
            # A whole window of deliveries may be missing: no later one would make the consumer send more.
            self._newest = self.consumer.reply(missing.upto, last)
            self._report_arrival()

    async def _was_sent(self, consumer_sequence: int) -> bool:
        """Return whether the consumer confirms a heartbeat, which any client may have published. If not, ignore it."""
        try:
            info = await self.consumer.info(patience=0)
        except ApiError as error:
            if not error.passing:
                raise
            return False
        was_sent = info is not None and int(info["delivered"]["consumer_seq"]) >= consumer_sequence
        if not was_sent:
            self._say_forged(f"a heartbeat names delivery {consumer_sequence}, of which the consumer does not know")
        return was_sent

    async def _sort_out(self, batch: list[Delivered]) -> None:
        """Drop handled messages, and read missing ones again."""
        inbox, confirms = self.consumer.inbox, self.plan.position == "confirmed"
        for step in self._order.sort_out(batch, self._is_of_another_life, confirms=confirms):
            match step:
                case Deliver(messages):
                    await self._hand_on_all(messages)
                case Missing():
                    if not await self._fill(step):
                        return
                case CheckStream():
                    await self._revive()
                    if self.consumer.inbox != inbox:
                        return  # another consumer reads the stream, from its start or from the last unchanged sequence
                case ConfirmAgain(replies):
                    await self._confirm(replies[-1])
                case DeliveriesLost():
                    raise AssertionError("this reader can read again")

    def _is_of_another_life(self, ack: AckReply) -> bool:
        # A stream in memory, or of a server that another one replaces, keeps its creation time. If its server is back
        # before heartbeats are missing, only a younger message with a lower sequence shows the new stream.
        return any(
            stored.sequence >= ack.stream_sequence and stored.time_ns < ack.time_ns for stored in self.known.messages
        )

    async def _confirm(self, reply: bytes) -> None:
        waiting = self._sink.confirm(reply)
        if waiting is not None:
            await waiting

    async def _fill(self, missing: Missing) -> bool:
        """Read the missing messages after `handled` again.

        Return False if the connection is lost before that is done. The stream has to be checked first, because it may
        have lost its end. After the check, a heartbeat shows that the rest is missing.
        """
        plan, order, upto = self.plan, self._order, missing.upto
        if upto <= order.handled:
            return True
        if self._must_check:
            return False
        self._remember_pause()  # deliveries are also missing after a server's restart
        before, start, first = self._counters.received, order.handled, order.next
        stream = Replay(self.connection.api, plan.stream, plan.filters, plan.headers_only, plan.direct)
        failures = 0
        try:
            while order.handled < upto and not self._must_check:
                try:
                    await self._read_again(stream, missing)
                except ApiError as error:
                    if error.err_code == STREAM_NOT_FOUND:
                        break
                    if not error.passing:
                        raise
                    self._say_waiting(error)
                    failures += 1
                    await MISSING_AGAIN.pause(failures)
                    await self.connection.connected()
                else:
                    break
        finally:
            self.waits_for = ""
        is_done = order.handled >= upto or not self._must_check
        if not is_done:
            missing = Missing(order.handled, order.next)
        recovered = self._counters.received - before
        self._log.info("reader.recovered", consumer=self.consumer.name, messages=recovered, upto=missing.upto)
        self._sink.vanished(order.filled(missing, start, first, recovered))
        last = AckReply.parse(order.last_reply) if order.last_reply else None
        is_read = last is not None and (last.stream_sequence, last.consumer_sequence) == (upto, missing.following - 1)
        if plan.position == "confirmed" and is_done and not is_read:
            await self._confirm(self.consumer.reply(upto, missing.following - 1))
        return is_done

    async def _read_again(self, stream: Replay, missing: Missing) -> None:
        order = self._order
        async with contextlib.aclosing(stream.between(order.handled + 1, missing.upto)) as batches:
            async for batch in batches:
                if self._must_check:
                    return
                order.next = min(order.next + len(batch), missing.following)
                if self.plan.position == "confirmed":
                    batch = self.consumer.numbered(batch, order.next - 1)
                await self._hand_on_all(batch, again=True)

    # -- the consumer's life -----------------------------------------------------------------------------------------

    async def _begin(self, *, seeded: bool = False) -> None:
        order = self._order
        info = await self.consumer.take_over(self.handled if seeded else None)
        order.sent = 0
        if info is not None:
            state = info["delivered"] if self.plan.position == "sent" else info["ack_floor"]
            order.next = int(state["consumer_seq"]) + 1
            delivered = info["delivered"]
        else:
            # Before the consumer exists: its first messages can arrive with the answer, and it waits for their arrival.
            self._newest = b"" if self.plan.position == "none" and self.consumer.is_limited else None
            await self.consumer.create(self.handled)
            order.next = 1
            self._report_arrival()  # deliveries that came before the consumer's name was known
            delivered = {"consumer_seq": 0, "stream_seq": 0}
        self._move_checkpoint(order.progress)
        self._last_read = asyncio.get_running_loop().time()
        # Deliveries that the durable consumer sent to an earlier process. New deliveries wait in the queue.
        missing = Missing(int(delivered["stream_seq"]), int(delivered["consumer_seq"]) + 1)
        if missing.following <= order.next or await self._fill(missing):
            order.next = missing.following

    async def _check(self) -> None:
        while not await self._is_sound():
            pass

    async def _is_sound(self) -> bool:
        """Return whether deliveries continue.

        False if something changed during the check, which then has to be repeated.
        """
        # Another replica may have taken over. Then this run ends, and must not report a failure.
        await self._fence.opened()
        if self._subscription is None:
            await self._listen()
        self._losses = self.connection.losses
        lives = self._lives  # creations reported later are of a later stream, or of the one that is found here
        stream = await settled_stream(self.connection.api, self.plan.stream, self.handled, self.known)
        if await self._is_another(stream):
            await self._stream_recreated(stream, lives)
        else:
            self._lives -= lives
            info = await self._usable_consumer()
            resume_after = await self._resume_point(int(stream["state"]["last_seq"]))
            if resume_after is not None:
                if self._is_taken(info) or not await self._stream_shortened(stream, resume_after):
                    return False
            elif info is not None and not await self._replace_edited(stream, info):
                await self._give_up_lost(stream)
                if self._is_taken(info):
                    return False
                if self.consumer.delivers_here(info):
                    return await self._resume(info)
            self._counters.recreated_consumers += 1
            self._log.warning("reader.consumer_recreated", consumer=self.consumer.name, after=self.handled)
            # The new consumer begins after `handled`, so everything up to there must be confirmed.
            await self._sink.settled()
        await self._keep_beginning(self.handled)
        if self._is_interrupted:
            return False
        await self._begin()
        return True

    @property
    def _is_interrupted(self) -> bool:
        # The connection was lost since the check began or the position was found, so the stream may have lost more.
        return self.connection.is_lost_since(self._losses)

    @property
    def _must_check(self) -> bool:
        # If a reader that acknowledges nothing closes, the next process does not read these messages.
        return self._is_interrupted and not (self._life.closes and self.plan.position != "confirmed")

    async def _keep_beginning(self, after: int) -> None:
        """Keep the time of the message after which the next consumer begins, as the stream holds it at this check."""
        consumer = self.consumer
        if self.plan.position == "none" or (consumer.begins is not None and consumer.begins.sequence == after):
            return
        begins = await message_at(self.connection.api, self.plan.stream, after)
        consumer.begins = None if self._is_interrupted else begins

    async def _resume(self, info: Json) -> bool:
        """Continue with the consumer; see `_is_sound`."""
        consumer = self.consumer
        if self._is_silent and not info.get("push_bound"):
            self._log.warning("reader.unbound", consumer=consumer.name)
            if self._subscription is None:  # the connection was lost during the check
                return False
            await self._listen_again(self._subscription)
        if not consumer.is_within_limit:
            if self.plan.position == "none":  # the connection's limit has changed since it was read
                return False
            await consumer.keep_limit(info)
        self._order.next = min(self._order.next, int(info["delivered"]["consumer_seq"]) + 1)
        self._last_read = asyncio.get_running_loop().time()
        return True

    def _is_taken(self, info: Json | None) -> bool:
        """Return whether the consumer delivers to another process, which has the lease.

        Raises:
            RuleRefusedError: that process needs no lease.
        """
        consumer = self.consumer
        if info is None or consumer.is_ours(info):
            return False
        if any(edit.field == "deliver_subject" for edit in consumer.edits(info)):
            return False
        if not self._fence.is_open:
            return True
        raise RuleRefusedError(
            f"consumer '{consumer.name}' of stream '{self.plan.stream}' was taken over by another process"
        )

    async def _replace_edited(self, stream: Json, info: Json) -> bool:
        """Undo changes that another client made to the consumer. Return whether that requires a new consumer.

        Messages that the consumer left out since it was last known to be unchanged are read again if the
        position is a confirmed one. Otherwise they are counted as lost.
        """
        consumer, edits = self.consumer, self.consumer.edits(info)
        if not edits:
            return False
        skipped = await self._left_out()
        self._say_edited(edits, left_out=skipped)
        if self.plan.position != "none" and not any(edit.needs_another for edit in edits):
            await consumer.keep_limit(info)
            return False
        await self._sink.settled()
        incomplete = skipped != 0 or any(edit.field == "headers_only" for edit in edits)
        if self.plan.position == "confirmed" and incomplete:
            self._order.return_to_checkpoint()
        else:
            self._order.give_up(skipped or 0)
        if incomplete:
            await self._sink.read_on(stream, self.handled)
        await self._drop_deliveries()
        await consumer.delete()
        return True

    async def _drop_deliveries(self) -> None:
        # They must not mix with deliveries of the consumer's successor.
        await self._listen()
        self._life.discard()

    async def _left_out(self) -> int | None:
        """Return the number of messages after the checkpoint that the consumer left out; None if unknown."""
        checkpoint, plan = self._order.checkpoint, self.plan
        if checkpoint.handled >= self.handled:
            return 0
        if plan.direct:
            return None
        replay = Replay(self.connection.api, plan.stream, plan.filters)
        held = await replay.after(checkpoint.handled) - await replay.after(self.handled)
        return max(held - (self._order.messages - checkpoint.messages), 0)

    async def _listen_again(self, earlier: BatchSubscription) -> None:
        # A new subscription makes the server see renewed interest. If a connection breaks while a server (2.9 to 2.15)
        # sends, and the subscription is back before the server has noticed the failed delivery, the server marks the
        # consumer inactive, never sees renewed interest, and would not deliver again.
        await earlier.release()
        self._subscription = await self._subscribe(self.consumer.inbox)

    async def _is_another(self, stream: Json) -> bool:
        """Return whether the stream was recreated. Only then does it contain unread messages at old sequences."""
        known = self.known
        if stream["created"] == known.created:
            return False
        if await known.verdict(self.connection.api, stream) == "recreated":
            return True
        self._log.info("reader.creation_time_changed", created=stream["created"], before=known.created)
        self._seen = KnownStream.of(stream)
        return False

    async def _stream_recreated(self, stream: Json, lives: int) -> None:
        await self._sink.settled()
        consumer = self.consumer
        if self.plan.position != "none" and (info := await consumer.info()) and consumer.delivers_here(info):
            # A power cut has taken all messages, and this consumer is after the first new ones.
            await consumer.delete()
        self._lives -= lives
        self._lost_after = None
        self._counters.recreated_streams += max(lives, 1)
        self._log.warning("reader.stream_recreated", created=stream["created"])
        if lives > 1:
            self._log.warning("reader.streams_missed", streams=lives - 1)
        await self._sink.stream_recreated(stream)
        self._seen = KnownStream.of(stream)
        self._pauses.forget()
        await self._drop_deliveries()
        self._order.resume(0)

    async def _resume_point(self, last: int) -> int | None:
        """Return the sequence up to which the stream still has the messages read from it.

        None if it has all of them.
        """
        plan, handled, read = self.plan, self.handled, self._newest_read
        if plan.position == "confirmed" and (lost := await self._pauses.lost_range(self._reading, last)):
            return lost.after
        newest = read or max(self.known.messages, default=MessageStamp(handled, 0))
        resume_after = await intact_until(self._reading, newest.sequence, newest.time_ns, last)
        if resume_after is None and last < handled:
            # The last message read may be followed by empty sequences, which were lost with the end as well. Without
            # one, some of the messages that the stream holds now may have the sequences of lost ones.
            return min(newest.sequence, last) if read or plan.position == "confirmed" else last
        return resume_after if resume_after is not None and resume_after < handled else None

    @property
    def _reading(self) -> Replay:
        plan = self.plan
        return Replay(self.connection.api, plan.stream, plan.filters, direct=plan.direct)

    async def _give_up_lost(self, stream: Json) -> None:
        """Count the new messages under sequences that were read before; to read them again would repeat later ones."""
        last = int(stream["state"]["last_seq"])
        lost = await self._pauses.lost_range(self._reading, last)
        if lost is None:
            return
        self._counters.lost += lost.upto - lost.after
        span = {"position": lost.upto, "last_sequence": last, "after": lost.after}
        self._log.warning("reader.stream_shorter", **span, lost=lost.upto - lost.after)
        await self._sink.settled()
        await self._sink.read_on(stream, self.handled)
        self._pauses.forget()

    async def _stream_shortened(self, stream: Json, resume_after: int) -> bool:
        """Continue after `resume_after`: the server lost the later messages, and will use their sequences again.

        Return False if the connection is lost before the consumer is moved back.
        """
        last = int(stream["state"]["last_seq"])
        if self._lost_after == resume_after:  # a check was interrupted, or the server did not answer it
            await self._sink.read_on(stream, resume_after)
        else:
            self._log.warning("reader.stream_shorter", position=self.handled, last_sequence=last, after=resume_after)
            # Before the sink forgets its position: a later confirmation would acknowledge lost messages.
            await self._sink.settled()
            await self._sink.stream_shortened(stream, resume_after)
            self._lost_after = resume_after
        if self._is_interrupted:
            return False
        await self._drop_deliveries()
        self.consumer.begins = None  # perhaps another message had that sequence
        await self._keep_beginning(resume_after)
        if self.plan.position == "none":
            await self.consumer.delete()
        else:
            await self.consumer.move_back(resume_after)
        self._seen = KnownStream.of(stream)
        self._pauses.forget()
        self._order.resume(resume_after)
        self._lost_after = None
        return True

    async def _usable_consumer(self) -> Json | None:
        """Return the consumer's info; None if it does not exist or must be recreated."""
        consumer = self.consumer
        if self.plan.direct:
            info = await consumer.info()
            if info is not None and consumer.edits(info):
                return info
            await consumer.delete()  # an old consumer would keep messages
            return None
        if self.plan.position != "none":
            try:
                return await consumer.info()
            except ApiError as error:
                if not await consumer.is_leaderless(error):
                    raise
            await self._sink.settled()
            await consumer.remove_leaderless(self.handled)
            return None
        # An ephemeral consumer lives on one server of a cluster.
        try:
            info = await consumer.info(patience=0)
            if info is not None and not (consumer.is_within_limit and consumer.delivers_here(info)):
                reason = "it sends more or less ahead than the connection takes"
            elif info is None or int(info["delivered"]["consumer_seq"]) >= self._order.next - 1:
                return info
            else:
                reason = "its server has started again, and it begins where it began before"
            await consumer.delete()
        except ApiError as error:
            reason = str(error)  # no server answers for it while that one is down, though others serve the stream
        self._log.warning("reader.consumer_away", consumer=consumer.name, reason=reason)
        await self._drop_deliveries()
        return None
