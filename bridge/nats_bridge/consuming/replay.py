"""Replays a range of a stream: for gaps, for seeding last sequences, for the tail at shutdown.

Each replay has a separate ephemeral consumer, which is deleted afterwards, so it does not move a rule's position.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from nats_bridge.client import waiting
from nats_bridge.client.batch_parser import InBulk
from nats_bridge.client.consumer_names import Purpose
from nats_bridge.client.jetstream_api import JetStreamApi, Json
from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.ack_reply import AckReply, acknowledges, is_flow_control_request
from nats_bridge.consuming.percent_names import check_percent
from nats_bridge.errors import ApiError
from nats_transforms import header_block

LIMITED = "nats-bridge-limited-"
"""Prefix of ephemeral consumers that acknowledge only to limit the messages sent ahead.

If the stream removes messages that they have not acknowledged, servers report these as terminated, in advisories that
are not dead letters."""
LATE_ACK = 3600 * 10**9  # nanoseconds; missing messages are read again at once, so this is only a last resort
_LOST = "deliveries of a replay were lost: the connection broke"
_AWAY = "nothing arrives from a replay: the server or its stream leader is away"
_UNHEARD = "the consumer of a replay does not receive flow control answers"
_PASSING: Final[Json] = {"inactive_threshold": 5_000_000_000, "mem_storage": True, "num_replicas": 1}
"""Members of consumers that are needed for a while."""


def push_config(inbox: str, filters: Sequence[str], *, headers_only: bool) -> Json:
    """Return the common configuration of consumers that deliver to an inbox: push, flow control, heartbeats."""
    config: Json = {
        "deliver_subject": inbox,
        "replay_policy": "instant",
        "flow_control": True,
        "idle_heartbeat": int(waiting.HEARTBEAT * 1e9),
        **filter_members(filters),
    }
    return config | {"headers_only": True} if headers_only else config


def ephemeral_config(
    inbox: str, *, filters: Sequence[str], headers_only: bool, direct: bool, limit: int | None = None
) -> Json:
    """Return the configuration of an ephemeral consumer that delivers to an inbox.

    Acknowledgements are used only to limit the messages sent ahead; direct consumers do not support them.
    """
    config = push_config(inbox, filters, headers_only=headers_only)
    config |= {"ack_policy": "none", "max_deliver": 1, **_PASSING}
    if limit is not None and not direct:
        config |= {"ack_policy": "all", "ack_wait": LATE_ACK, "max_ack_pending": limit}
    if direct:
        # The sooner the server removes a lost one, the fewer messages it keeps.
        config |= {"direct": True, "inactive_threshold": 1_000_000_000}
    return config


def name_prefix(config: Json) -> str:
    """Return the prefix for the name of an ephemeral consumer, by which its advisories are recognised."""
    return LIMITED if config["ack_policy"] == "all" else ""


def standing_config(filters: Sequence[str], policy: Json) -> Json:
    """Return the configuration of a pull consumer that is created only for its `CONSUMER.INFO`, and then deleted.

    Args:
        filters: the subjects to select; none for all.
        policy: the members that set its start.
    """
    return {"ack_policy": "explicit", **_PASSING, **policy, **filter_members(filters)}


def filter_members(filters: Sequence[str]) -> Json:
    """Return a consumer's filters, as members of its configuration. More than one: servers from 2.10 on."""
    if len(filters) > 1:
        return {"filter_subjects": list(filters)}
    return {"filter_subject": filters[0]} if filters else {}


def filters_of(config: Json) -> tuple[str, ...]:
    """Return the filters in a consumer's configuration, empty for all subjects: the reverse of `filter_members`."""
    return tuple(filter(None, config.get("filter_subjects") or (config.get("filter_subject"),)))


class Bulk(Protocol):
    """Consecutive deliveries that a parser took from a read at once, such as columns for Arrow."""

    def __len__(self) -> int:
        """Return the number of messages."""

    @property
    def last_reply(self) -> bytes:
        """The reply subject of the last one."""


_Bulk = TypeVar("_Bulk", bound=Bulk)


@dataclass(frozen=True, slots=True)
class Replay:
    """Reads ranges of a stream.

    Attributes:
        filters: the subjects to select; none for all. Only servers from 2.10 on support more than one.
        headers_only: leave payloads on the server.
        direct: use a consumer that work-queue and interest streams do not count as one of theirs.
    """

    api: JetStreamApi
    stream: str
    filters: tuple[str, ...] = ()
    headers_only: bool = False
    direct: bool = False

    async def between(self, first: int, last: int) -> AsyncGenerator[list[Delivered], None]:
        """Yield batches of the messages with first <= sequence <= last that still exist, in order.

        If the iteration may end early, close it (`contextlib.aclosing`), so that the consumer is deleted.

        Raises:
            ApiError: retriable if the connection broke. The messages yielded before it are valid.
        """
        if first > last:
            return
        policy = {"deliver_policy": "by_start_sequence", "opt_start_seq": first}
        async with contextlib.aclosing(self._read(policy, "replay")) as batches:
            async for batch in batches:
                end = AckReply.parse(batch[-1][1]).stream_sequence
                if end > last:
                    batch = [message for message in batch if AckReply.parse(message[1]).stream_sequence <= last]
                if batch:
                    yield batch
                if end >= last:
                    return

    async def in_bulk(
        self, first: int, parser: Callable[[Callable[[_Bulk], None]], InBulk]
    ) -> AsyncGenerator[list[Delivered] | _Bulk, None]:
        """Yield batches of all messages from a sequence on, in order, until the consumer has no more.

        Close it, as `between`, which raises the same errors.

        Args:
            parser: creates the parser, which passes on to a function the messages that it takes from reads.
        """
        policy = {"deliver_policy": "by_start_sequence", "opt_start_seq": first}
        async with contextlib.aclosing(self._read(policy, "read", parser)) as batches:
            async for batch in batches:
                yield batch

    async def before(self, time: str) -> int:
        """Return the sequence just before the first message stored at or after a time (RFC 3339)."""
        info = await self._standing({"deliver_policy": "by_start_time", "opt_start_time": time})
        return int(info["delivered"]["stream_seq"])

    async def after(self, sequence: int) -> int:
        """Return the number of messages after a sequence that match the filters."""
        policy = {"deliver_policy": "by_start_sequence", "opt_start_seq": sequence + 1}
        return int((await self._standing(policy))["num_pending"])

    async def _standing(self, policy: Json) -> Json:
        info = await self.api.create_ephemeral(self.stream, standing_config(self.filters, policy), "count")
        await self.api.forget_ephemeral(self.stream, info["name"])
        return info

    async def last_per_subject(self) -> AsyncIterator[list[Delivered]]:
        """Yield batches with the last message of each subject, then messages stored since, up to the stream's end.

        After the last batch the map built from it is exact for the stream as it was at that batch's last message:
        everything stored before was either delivered or no longer its subject's last.
        """
        policy = {"deliver_policy": "last_per_subject"}
        async with contextlib.aclosing(
            self._read(policy if self.filters else policy | {"filter_subject": ">"}, "last")
        ) as batches:
            async for batch in batches:
                yield batch

    async def _read(
        self,
        policy: Json,
        purpose: Purpose,
        parser: Callable[[Callable[[_Bulk], None]], InBulk] | None = None,
    ) -> AsyncGenerator[list[Delivered] | _Bulk, None]:
        client = self.api.client
        check_percent(client.reported_version, f"stream '{self.stream}'", self.stream)
        arrived: asyncio.Queue[list[Delivered] | _Bulk | tuple[bytes, bytes]] = asyncio.Queue()
        inbox = client.new_inbox()
        subscription = await client.subscribe_batches(
            inbox,
            arrived.put_nowait,
            lambda reply, block: arrived.put_nowait((reply, block)),
            in_bulk=parser and parser(arrived.put_nowait),
        )
        # servers may not accept the acknowledgements that end the limit
        limit = None if "%" in self.stream else self.api.delivery_limit.messages
        config = ephemeral_config(
            inbox, filters=self.filters, headers_only=self.headers_only, direct=self.direct, limit=limit
        )
        limited = config["ack_policy"] == "all"
        name, newest, pending, stream = "", b"", 0, self.stream.encode()
        try:
            created = await self.api.create_ephemeral(self.stream, config | policy, purpose, name_prefix(config))
            name = created["name"]
            # None pending may also mean that all are in flight.
            if not created.get("num_pending") and not created["delivered"]["consumer_seq"] and arrived.empty():
                return
            seen = quiet = 0
            while True:
                try:
                    async with asyncio.timeout(waiting.SILENT_BEATS * waiting.HEARTBEAT):
                        item = await arrived.get()
                except TimeoutError:
                    raise self._broken(_AWAY) from None
                if isinstance(item, tuple):
                    reply, block = item
                    # If the answer was lost with a connection, the consumer's heartbeats ask for it again.
                    stalled = header_block.read(block, b"Nats-Consumer-Stalled")
                    answer = reply or stalled or b""
                    if is_flow_control_request(answer, stream):
                        client.answer(answer)
                    if newest:
                        client.answer(newest)
                    delivered = header_block.read(block, b"Nats-Last-Consumer")
                    if delivered is None:
                        continue
                    if int(delivered) != seen:
                        raise self._broken(_LOST)
                    # A slow server may still have messages to send; they may also have been deleted by now. A caller
                    # that was busy finds several heartbeats, and behind them perhaps messages.
                    quiet += 1
                    if quiet >= waiting.SILENT_BEATS and arrived.empty():
                        if stalled or (limited and pending):
                            raise self._broken(_UNHEARD)
                        return
                    continue
                reply = item[-1][1] if isinstance(item, list) else item.last_reply
                end = AckReply.parse(reply)
                if end.consumer_sequence != seen + len(item):
                    raise self._broken(_LOST)
                seen, quiet, pending = end.consumer_sequence, 0, end.pending
                if limited and acknowledges(reply, stream, name.encode()):
                    newest = reply
                    client.answer(newest)
                yield item
                if end.pending == 0:
                    return
        finally:
            # While it exists without acknowledgements, a direct consumer keeps messages of work-queue and interest
            # streams.
            if name and client.is_connected:
                with contextlib.suppress(ApiError):  # the server removes it automatically, a little later
                    await self.api.forget_ephemeral(self.stream, name)
            await subscription.release()

    def _broken(self, what: str) -> ApiError:
        text = f"connection '{self.api.connection}': stream '{self.stream}': {what}"
        return ApiError(text, description="replay broken", retriable=True)
