"""Keeps the model of a stream's removals current: from advisories, missing sequences, and requests to the server."""

import asyncio
from collections.abc import Callable

from structlog.typing import FilteringBoundLogger

from nats_bridge.client.audit_advisories import Changed, Deleted, Purged, Removal
from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import Json
from nats_bridge.client.stream_identity import KnownStream
from nats_bridge.client.tasks import end_tasks
from nats_bridge.client.waiting import EVERY_SECOND, LEADER_AWAY
from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.ack_reply import AckReply
from nats_bridge.errors import ApiError
from nats_bridge.kinds.republish.encoder import RepublishEncoder
from nats_bridge.kinds.republish.predecessors import Predecessors
from nats_bridge.kinds.republish.retention import Retention, StreamLimits


class RetentionFollower:
    """Follows one stream for one rule.

    Args:
        source: the connection that holds the stream.
        info: its `STREAM.INFO`.
        encoder: has the model.
        last_encoded: returns the sequence and the time of the last message that the encoder was given.
        own_subjects: the stream's subjects that are not published to, by its configuration.
        changed: called with the stream's new configuration.

    Attributes:
        info: the newest that changed anything.
        predecessors: requests the messages that removals have left.
    """

    def __init__(
        self,
        source: Connection,
        info: Json,
        encoder: RepublishEncoder,
        last_encoded: Callable[[], tuple[int, int]],
        own_subjects: Callable[[Json], tuple[bytes, ...]],
        changed: Callable[[Json], None],
        log: FilteringBoundLogger,
    ) -> None:
        self.info = info
        self._stream = str(info["config"]["name"])
        self.predecessors = Predecessors(source, self._stream, encoder, last_encoded, log)
        self._source = source
        self._encoder = encoder
        self._counters = encoder.counters
        self._own_subjects = own_subjects
        self._changed = changed
        self._log = log
        self._limits = encoder.retention.limits
        self._reported: asyncio.Queue[int] = asyncio.Queue()  # times of removals that only `STREAM.INFO` shows
        self._gap = asyncio.Event()  # sequences never came, and may matter until the stream's end is known
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Begin to receive removals, before any other request about the stream."""
        self._tasks.append(asyncio.create_task(self._poll_reported()))
        await self._source.removals.follow(self._stream, self._on_removal)

    async def begin(self, handled: int) -> None:
        """Start the model from the stream's present state. Everything up to `handled` is handled."""
        retention = self._encoder.retention
        state = (await self._source.api.stream_info(self._stream, deleted=bool(self._limits.max_msgs)))["state"]
        retention.begin(min(int(state["first_seq"]), handled + 1))
        retention.followed_from = int(state["last_seq"])
        if self._limits.max_msgs and retention.history is None:
            for sequence in state.get("deleted") or ():
                retention.removed(int(sequence))
        self._tasks.append(asyncio.create_task(self._bound_gaps()))
        if self._limits.uncertain:
            self._log.warning(
                "rule.last_sequence_inexact",
                because=", ".join(self._limits.uncertain),
                meaning="Nats-Last-Sequence names the newest predecessor that is seen to exist",
            )
            self._tasks.append(asyncio.create_task(self._refresh_floor()))

    async def leave(self) -> None:
        """Receive no more removals. Pending requests of the encoder are still answered."""
        await end_tasks(*self._tasks)
        await self._source.removals.leave(self._stream, self._on_removal)

    async def end(self) -> None:
        """Stop."""
        await self.predecessors.end()
        await self.leave()

    def skip(self, batch: list[Delivered], seen: int) -> None:
        """Report to the model the sequences that never came before or within a batch."""
        for _, reply, _, _ in batch:
            sequence = AckReply.parse(reply).stream_sequence
            if sequence > seen + 1:
                self._encoder.retention.skip(seen + 1, sequence - 1)
            seen = sequence
        self._gap.set()

    def recreated(self, info: Json) -> None:
        """Note that the stream is a new one."""
        self.info = info
        self._encoder.forget()
        self.predecessors.forget()
        self._limits, state = StreamLimits.of(info["config"]), info["state"]
        self._encoder.retention = Retention(
            self._limits, floor=int(state["first_seq"] or 1), followed_from=int(state["last_seq"])
        )
        self._encoder.set_own_subjects(self._own_subjects(info["config"]))

    def _on_removal(self, removal: Removal) -> None:
        match removal:
            case Deleted():
                self.predecessors.deleted(removal)
            case Purged():
                self.predecessors.purged(removal)
            case Changed():
                self._reported.put_nowait(removal.time_ns)

    async def _poll_reported(self) -> None:
        while True:
            await self._read_stream(await self._reported.get())
            self._counters.removals += 1

    async def _read_stream(self, time_ns: int = 0) -> None:
        """Update the model with removals, which apply to messages stored after `time_ns`. Detect stream updates."""
        try:
            # Only max_msgs needs the number of removed messages between the first and the last.
            deleted_too = bool(self._limits.max_msgs and time_ns)
            info = await self._source.api.stream_info(self._stream, deleted=deleted_too)
        except ApiError as error:
            self._log.warning("rule.stream_not_seen", reason=str(error))
            return
        retention = self._encoder.retention
        first, deleted = int(info["state"]["first_seq"]), info["state"].get("deleted") or ()

        if time_ns:
            retention.after(time_ns, lambda coming: retention.observe(min(first, coming), deleted))
        else:
            retention.raise_floor(first)
        if info["config"] != self.info["config"] and await self._is_followed(info):
            self.info = info
            limits = StreamLimits.of(info["config"])
            if limits != self._limits:
                self._limits = limits
                self._encoder.retention = Retention(limits, floor=first)
                self._log.warning("rule.limits_changed", uncertain=", ".join(limits.uncertain) or "nothing")
            self._encoder.set_own_subjects(self._own_subjects(info["config"]))
            self._encoder.forget_destinations()
            self._changed(info["config"])

    async def _is_followed(self, info: Json) -> bool:
        try:
            return await KnownStream.of(self.info).verdict(self._source.api, info) == "same"
        except ApiError:
            return False

    async def _bound_gaps(self) -> None:
        """Request the stream's end once sequences were missing: later messages cannot have them as predecessors."""
        while True:
            await self._gap.wait()
            self._gap.clear()
            retention = self._encoder.retention
            newest = retention.skipped[-1][1] if retention.skipped else 0
            try:
                state = (await self._source.api.stream_info(self._stream))["state"]
                retention.gone_at(int(state["last_seq"]), newest)
            except ApiError as error:
                self._log.warning("rule.stream_not_seen", reason=str(error))
                self._gap.set()
                await asyncio.sleep(EVERY_SECOND)
                await self._source.connected()
            await LEADER_AWAY.pause()

    async def _refresh_floor(self) -> None:
        while True:
            await asyncio.sleep(EVERY_SECOND)
            await self._source.connected()
            await self._read_stream()
