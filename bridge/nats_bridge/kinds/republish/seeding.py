"""The start of a rule, and the last sequence of every subject before it.

Native republish looks predecessors up in the store, but the bridge must find them itself. It has three ways, cheapest
first:

* `start: new`: a last-per-subject consumer delivers one message for each subject and then all newer ones. So the map is
  exact for the last message delivered, even if clients publish at that time;
* a position in the past (resumed, or a sequence or time): the same for all subjects without newer messages. For the few
  others, the server is asked for the newest message at or before the position;
* many subjects with newer messages, or a model that needs every message: everything up to the position is read again.

Only headers travel.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from nats_bridge.client.jetstream_api import Json
from nats_bridge.consuming.ack_reply import message_sequence
from nats_bridge.consuming.replay import Replay
from nats_bridge.kinds.republish.encoder import RepublishEncoder
from nats_bridge.settings import Start
from nats_transforms import header_block

_MOST_LOOK_UPS = 256
_MOST_GAP = 1_000_000


@dataclass(frozen=True, slots=True)
class Seeding:
    """Finds a rule's starting point and fills its loop's last sequences.

    Attributes:
        replay: reads the rule's stream, headers only.
        encoder: the encoder to fill; its counters count subjects without a certain predecessor.
    """

    replay: Replay
    encoder: RepublishEncoder

    async def seed(self, info: Json, start: Start, resumed: int | None) -> int:
        """Fill the encoder. Return the stream sequence up to which everything counts as handled.

        Args:
            info: `STREAM.INFO`, taken before.
            start: the start without a position.
            resumed: the position that the server keeps for the rule, if any.
        """
        last = int(info["state"]["last_seq"])
        first = max(int(info["state"]["first_seq"]), 1)
        if self.encoder.retention.history is not None:
            handled = last if resumed is None and start.policy == "new" else await self._position(start, resumed)
            await self._replay_with_history(first, handled)
            return handled
        if resumed is None and start.policy == "new":
            handled, delivered = last, 0
            async for subject, sequence in self._last_per_subject():
                self.encoder.seed(subject, sequence)
                handled = int(sequence)
                delivered += 1
            if await self._incomplete(delivered):
                await self._seed_all(first, handled)
            return handled
        handled = await self._position(start, resumed)
        if handled < first:
            return handled
        touched, delivered = await self._seed_untouched(handled)
        if (
            len(touched) > _MOST_LOOK_UPS
            or any(not _is_text(subject) for subject in touched)
            or await self._incomplete(delivered)
        ):
            await self._seed_all(first, handled)
            return handled
        for subject in touched:
            newest = await self.replay.api.newest_before(self.replay.stream, subject.decode(), first, handled)
            if newest:
                self.encoder.seed(subject, b"%d" % newest)
            elif self.encoder.retention.limits.max_msgs_per_subject:
                # It is a new subject, or its predecessor was evicted during the downtime: unknown now.
                self.encoder.counters.last_sequence_uncertain += 1
        return handled

    async def _seed_all(self, first: int, handled: int) -> None:
        async for batch in self.replay.between(first, handled):
            for subject, reply, _, _ in batch:
                self.encoder.seed(subject, message_sequence(reply))

    async def _incomplete(self, delivered: int) -> bool:
        """Return whether a last-per-subject consumer left subjects out.

        2.9 does, after the deletion of a last message.
        """
        found = (await self.replay.api.stream_info(self.replay.stream, subjects=next(iter(self.replay.filters), None)))[
            "state"
        ]
        if not found.get("num_deleted"):
            return False
        return delivered < (len(found["subjects"]) if self.replay.filters else int(found.get("num_subjects", 0)))

    async def _seed_untouched(self, handled: int) -> tuple[set[bytes], int]:
        """Seed the subjects whose last message is at or before `handled`.

        Returns:
            Return the subjects that have newer messages, and the total number of messages.
        """
        touched: set[bytes] = set()
        delivered = 0
        async for subject, sequence in self._last_per_subject():
            delivered += 1
            if int(sequence) > handled:
                touched.add(subject)
            else:
                self.encoder.seed(subject, sequence)
        return touched, delivered

    async def _last_per_subject(self) -> AsyncIterator[tuple[bytes, bytes]]:
        """Yield the subject and sequence of each last message, once. 2.9 sends one twice when it leaves another out."""
        before = b""
        async for batch in self.replay.last_per_subject():
            for subject, reply, _, _ in batch:
                if (sequence := message_sequence(reply)) != before:
                    yield subject, sequence
                before = sequence

    async def _replay_with_history(self, first: int, handled: int) -> None:
        """Read every message up to `handled` into the model of removals as well."""
        retention = self.encoder.retention
        retention.begin(min(first, handled + 1))
        following = retention.floor
        async for batch in self.replay.between(first, handled):
            for subject, reply, block, _ in batch:
                text = message_sequence(reply)
                number = int(text)
                if number - following > _MOST_GAP:
                    retention.begin(number)
                for gone in range(max(following, retention.floor), number):
                    retention.removed(gone)
                following = number + 1
                rollup = header_block.read(block, b"Nats-Rollup") if b"Nats-Rollup" in block else None
                retention.stored(subject, number, 0, rollup)
                self.encoder.seed(subject, text)

    async def _position(self, start: Start, resumed: int | None) -> int:
        if resumed is not None:
            return resumed
        if start.policy == "sequence":
            # A sequence after the end means the next message, as it does for the server's own consumers.
            state = (await self.replay.api.stream_info(self.replay.stream))["state"]
            return min(int(start.sequence or 1) - 1, int(state["last_seq"]))
        if start.policy == "time":
            return await self.replay.before(str(start.time))
        return 0


def _is_text(subject: bytes) -> bool:
    try:
        subject.decode()
    except UnicodeDecodeError:
        return False
    return True
