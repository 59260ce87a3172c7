"""Hands republishing over to the server at exactly one message, while publishers keep running.

Theory of operation. This process runs the rule itself, in place of the stopped sidecar. Shortly before the update it
begins to hold arriving messages back, and subscribes to the destination. The server republishes in the stream's order,
so its first message marks the boundary: everything before it is left to this process. It republishes the held messages
up to there, drops the rest, and removes the rule's consumer.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from functools import partial

from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import Json
from nats_bridge.client.permission_violations import refused_subscription
from nats_bridge.client.waiting import NOT_NOTICED, QUIET
from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.ack_reply import AckReply
from nats_bridge.consuming.consumer_plan import durable_name
from nats_bridge.errors import RuleRefusedError
from nats_bridge.kinds.republish.model import RepublishRule
from nats_bridge.kinds.republish.run import RepublishRun
from nats_bridge.rules.context import RuleContext
from nats_transforms import header_block
from nats_transforms.dialect import NEWEST
from nats_transforms.transform import compile_transform


class _HoldingRun(RepublishRun):
    """The rule, with an end.

    Attributes:
        until: the last stream sequence to republish; None until it is known.
    """

    until: int | None = None
    _holding = False

    def accept(self, batch: list[Delivered], gap_after: int | None) -> Awaitable[None] | None:
        """Republish a batch, hold it, or drop it; see `BatchSink`."""
        if self._holding:
            self._held.append((list(batch), gap_after))
            return None
        return self._up_to_the_end(batch, gap_after)

    def hold(self) -> None:
        """Republish nothing for the moment."""
        self._held: list[tuple[list[Delivered], int | None]] = []
        self._holding = True

    async def release(self, until: int) -> None:
        """Republish the held messages up to a sequence, and nothing after it from now on."""
        self.until = until
        while self._held:  # more may arrive during the await
            batch, gap_after = self._held.pop(0)
            if waiting := self._up_to_the_end(batch, gap_after):
                await waiting
        self._holding = False

    def _config_changed(self, config: Json) -> None:
        """The server republishes from now on, as it should."""

    def _up_to_the_end(self, batch: list[Delivered], gap_after: int | None) -> Awaitable[None] | None:
        if self.until is not None:
            batch = [message for message in batch if AckReply.parse(message[1]).stream_sequence <= self.until]
        return super().accept(batch, gap_after) if batch else None


async def take_over_from_sidecar(
    rule: RepublishRule, sidecar: str, dialect_text: str, connections: Mapping[str, Connection], update: Json
) -> int:
    """Send the update. Return the last stream sequence that the server will not republish.

    Args:
        rule: a durable rule whose sidecar is stopped.
        dialect_text: the dialect that the rule runs with, or `native`.
        update: the body of the `STREAM.UPDATE`.

    Raises:
        RuleRefusedError: the sidecar still runs, or the user may not subscribe to the destinations.
        BridgeError: a server refuses, or does not answer.
    """
    source, target = connections[rule.source_connection], connections[rule.target_connection]
    api, consumer = source.api, durable_name(sidecar, rule.name)
    run = _HoldingRun(rule, source, target, RuleContext(sidecar, dialect_text, lambda _: None))
    await run.check()
    await run.start()
    try:
        await _delivered(source, rule.stream, consumer, await _last(source, rule.stream))
        run.hold()
        await run.settled()
        await target.flush()
        first: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        transform = compile_transform((rule.republish.src or ">").encode(), rule.republish.dest.encode(), NEWEST)
        pattern = transform.covering.decode()
        refusals: list[str] = []
        source.on_refusal(refusals.append)
        subscription = await source.client.subscribe_batches(
            pattern, partial(_see, first, rule.stream.encode()), lambda *_: None
        )
        await source.flush()
        source.forget(refusals.append)
        if any(refused_subscription(text) == pattern.encode() for text in refusals):
            raise RuleRefusedError(
                f"rule '{rule.name}': the user of connection '{source.name}' may not subscribe to {pattern}, by which"
                " handoff sees with which message the server begins: allow it in the user's permissions"
            )
        before = await _last(source, rule.stream)
        await api.request(f"STREAM.UPDATE.{rule.stream}", update)
        after = await _last(source, rule.stream)
        if after > before:
            # For messages stored around the update. If the server republishes any of them, it does so at once.
            await asyncio.wait([first], timeout=QUIET)
        await subscription.unsubscribe()
        await subscription.release()
        end = min(after, first.result() - 1) if first.done() else after
        await run.release(end)
        await _delivered(source, rule.stream, consumer, end)
    finally:
        await run.stop()
    await api.delete_consumer(rule.stream, consumer)
    return end


def _see(first: asyncio.Future[int], stream: bytes, batch: list[Delivered]) -> None:
    """Set the sequence of the first message of a stream among republished ones."""
    for _, _, block, _ in batch:
        if first.done() or header_block.read(block, b"Nats-Stream") != stream:
            continue  # headers of other messages may contain anything
        if sequence := int(header_block.read(block, b"Nats-Sequence") or 0):
            first.set_result(sequence)


async def _last(connection: Connection, stream: str) -> int:
    return int((await connection.api.stream_info(stream))["state"]["last_seq"])


async def _delivered(connection: Connection, stream: str, consumer: str, sequence: int) -> None:
    """Wait until a consumer has sent everything up to a sequence that it has to send.

    `num_pending` does not show it: servers count a message as pending a moment after the answer to its publisher.
    """
    while info := await connection.api.consumer_info(stream, consumer):
        delivered = int(info["delivered"]["stream_seq"])
        following = await connection.api.next_message(
            stream, info["config"].get("filter_subject") or ">", delivered + 1
        )
        if following is None or following[0] > sequence:
            return
        await NOT_NOTICED.pause()
