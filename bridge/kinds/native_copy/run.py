"""Runs a native_copy rule: a server's mirror or source reads a stream through the sidecar, which transforms subjects.

Theory of operation. A stream with `mirror` or `sources` asks its source for a consumer, through a prefix where its
configuration has `external`. The rule is a leaf node of the server that holds that stream, and subscribed to that
prefix. It forwards the few requests to the real source, over an ordinary connection, and passes on what the source's
server answers and delivers, with transformed subjects. Everything else stays with the two servers: positions, sequences
and gaps, time stamps, flow control, duplicates, resuming. The rule keeps no state.

A server that copies and finds no consumer any more notices that late; `waking` says how it is made to ask again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tenacity import AsyncRetrying, retry_if_result, stop_after_delay, wait_exponential_jitter

from nats_bridge.bridge.client.leaf_connection import LeafConnection, ask_listener
from nats_bridge.bridge.client.leaf_protocol import Info, Interest, Message, message
from nats_bridge.bridge.client.operations import publication
from nats_bridge.bridge.client.raw_requests import RawRequests
from nats_bridge.bridge.client.tasks import end_tasks
from nats_bridge.bridge.consuming.missing_streams import existing_stream
from nats_bridge.bridge.consuming.replay import filters_of
from nats_bridge.bridge.errors import ApiError, RuleRefusedError
from nats_bridge.bridge.kinds.copying.filter_choice import consumer_filters
from nats_bridge.bridge.kinds.native_copy.check import (
    TAKES_AT,
    check_server_that_copies,
    compile_rule,
    is_at_least,
    stream_to_create,
)
from nats_bridge.bridge.kinds.native_copy.counters import NativeCopyCounters
from nats_bridge.bridge.kinds.native_copy.encoder import NativeEncoder, UndeliverableError
from nats_bridge.bridge.kinds.native_copy.permissions import concerns_leaf
from nats_bridge.bridge.kinds.native_copy.requests import CreateRequest, read_create, refusal_of, restored
from nats_bridge.bridge.kinds.native_copy.served_consumer import ServedConsumer
from nats_bridge.bridge.kinds.native_copy.waking import ASKS_ON_CONNECT, PENDING_FOR, away, may_be_ours, outdated
from nats_bridge.bridge.rules.run import RuleRun
from nats_bridge.transforms.subject import is_valid_publish

if TYPE_CHECKING:
    from nats_bridge.bridge.client.connection import Connection
    from nats_bridge.bridge.client.wire import Delivered
    from nats_bridge.bridge.rules.context import RuleContext
    from nats_bridge.bridge.settings import NativeCopyRule


_ANSWER = 5.0  # seconds for the source's server to answer a request
_PATIENCE = 60.0  # seconds of trying again; no server waits for so long (30)
_UNWANTED = 10.0  # seconds for the server that copies to subscribe after the answer
_FLOW_CONTROL = b"$JS.FC."
_SEVERAL_FILTERS = (2, 10)  # since when a consumer takes several
_being_answered: set[bytes] = set()  # inboxes, by any rule of this process: they are pending for those that connect


class NativeCopyRun(RuleRun):
    """One native_copy rule.

    Args:
        rule: the rule.
        connection: the connection that holds the stream.
        leaf_options: what `connect_options` made of the connection to the listener for leaf nodes.
        context: the rule's surroundings.
    """

    rule: NativeCopyRule

    def __init__(
        self, rule: NativeCopyRule, connection: Connection, leaf_options: Mapping[str, Any], context: RuleContext
    ) -> None:
        super().__init__(rule, NativeCopyCounters(), context, rule.stream, connection)
        self._connection = connection
        self._leaf_options = leaf_options
        self._leaf_name = f"{context.sidecar}-{rule.name}"
        self._api = f"{rule.prefix}.API.".encode()
        self._flow_control = f"{rule.prefix}.fc.".encode()
        self._deliver = f"{rule.prefix}.deliver.".encode()
        self._requests = RawRequests(connection)
        self._consumers: dict[bytes, ServedConsumer] = {}
        self._wanted: set[bytes] = set()  # deliver subjects that the server subscribes to
        self._pending: set[bytes] = set()  # inboxes that stood when the leaf connected
        self._answering: dict[asyncio.Task[None], bytes] = {}  # with the inbox that waits for the answer
        self._closing: set[asyncio.Task[None]] = set()
        self._running: asyncio.Task[None] | None = None
        self._connects = 0
        self._has_woken = False  # by a reconnect, since the last request

    # -- life --------------------------------------------------------------------------------------------------------

    async def check(self) -> None:
        """Check the stream and the listener for leaf nodes; change nothing.

        Raises:
            ConfigError: the transforms, or the leaf connection's TLS.
            StreamMissingError: there is no such stream.
            RuleRefusedError: the server that copies would store nothing.
            ServerUnreachableError, CredentialsError: the listener for leaf nodes.
        """
        self._sourcing = compile_rule(self.rule, self._context.dialect_at(self._connection))
        await existing_stream(self._connection, self.rule.name, self.rule.stream)
        info = await ask_listener(self.rule.leaf_connection, self._leaf_options, f"{self._leaf_name}-check")
        check_server_that_copies(self.rule, self._sourcing, info.version)
        self.remarks = (f"the stream to create there: {stream_to_create(self.rule)}",)

    async def _open(self) -> dict[str, Any]:
        rule = self.rule
        removed = [name.encode() for name in rule.remove_headers]
        self._encoder = NativeEncoder(self._sourcing, removed, self.counters)
        self.metrics.follow(rule.kind, self.counters)
        self._backlog = self.metrics.backlog()
        await self._requests.open()
        self._connection.on_reconnect(self._source_is_back)
        self._leaf = LeafConnection(
            rule.leaf_connection,
            self._leaf_options,
            self._leaf_name,
            (self._api + b">", self._flow_control + b">"),
            self,
            self._context.fence,
        )
        self._running = self._follow(asyncio.create_task(self._leaf.run()))
        return {"leaf": rule.leaf_connection, "prefix": rule.prefix}

    async def _drain(self, *, failed: bool) -> None:
        await end_tasks(*self._answering)
        for consumer in tuple(self._consumers.values()):
            await consumer.close()
        await self._leaf.flushed()

    async def _close(self) -> None:
        self._connection.forget(self._source_is_back)
        await end_tasks(self._running, *self._answering)
        for deliver in tuple(self._consumers):
            self._end(deliver)
        # Not cancelled: others use the connection, too, and a subscription that stays would be sent its consumer's
        # messages without end.
        while self._closing:
            await asyncio.gather(*self._closing, return_exceptions=True)
        await self._requests.close()

    @property
    def ready(self) -> bool:
        """Whether the server that copies can read the stream at this moment."""
        return self.state == "ready" and self._leaf.is_up and self._connection.client.is_connected

    def _waits_for(self) -> str | None:
        if self.state == "ready" and not self._leaf.is_up:
            return f"the leaf connection '{self.rule.leaf_connection}'"
        return None

    def status(self) -> dict[str, Any]:
        """The stream, and how many consumers of it are served; see `RuleRun`."""
        return {"stream": self.rule.stream, "position": None, "consumers": len(self._consumers)}

    # -- the leaf connection, as its owner -----------------------------------------------------------------------------

    def established(self, info: Info) -> None:
        """The leaf connection is up; see `LeafOwner`."""
        self._connects += 1
        if self._connects > 1:
            self.counters.reconnects += 1
        try:
            check_server_that_copies(self.rule, self._sourcing, info.version)
        except RuleRefusedError as error:
            self._fail(error)
            return
        self._encoder.takes_at = is_at_least(info.version, TAKES_AT)
        if self._pending:
            asyncio.get_running_loop().call_later(PENDING_FOR, self._wake_pending, info.version, self._connects)

    def lost(self) -> None:
        """The leaf connection ended; see `LeafOwner`."""
        for task in self._answering:
            task.cancel()
        self._wanted.clear()
        self._pending.clear()
        for deliver in tuple(self._consumers):
            self._end(deliver)

    def interest(self, interest: Interest, *, standing: bool) -> None:
        """The server subscribes to a deliver subject or an inbox, or no longer; see `LeafOwner`."""
        subject = interest.subject
        if subject.startswith(self._deliver) and is_valid_publish(subject):  # a watcher's wildcard is not delivered to
            self._deliver_interest(subject, added=interest.added, standing=standing)
        elif not interest.added:
            self._pending.discard(subject)
            for task, inbox in self._answering.items():
                if inbox == subject:
                    task.cancel()
        elif standing and may_be_ours(subject, self.rule.stream.encode()):
            self._pending.add(subject)

    def received(self, message: Message) -> None:
        """The server asks, or answers flow control; see `LeafOwner`."""
        if message.subject.startswith(self._flow_control):
            answered = message.subject[len(self._flow_control) :]
            # While it may not be passed on it is dropped: a consumer that stalls asks again with its heartbeats.
            if answered.startswith(_FLOW_CONTROL) and self._may_write:
                operation = publication(answered, b"", message.block, message.payload)
                self._connection.client.write_raw(operation, self._context.fence)
        elif message.subject.startswith(self._api) and message.reply and self.state in ("starting", "ready"):
            self._pending.discard(message.reply)
            self._has_woken = False
            task = asyncio.create_task(self._answer(message))
            self._answering[task] = message.reply
            _being_answered.add(message.reply)
            task.add_done_callback(self._answered)

    def refused(self, text: str) -> None:
        """The server does not allow something; see `LeafOwner`."""
        prefix = self.rule.prefix
        if not concerns_leaf(text, prefix):
            return
        self._fail(
            RuleRefusedError(
                f"rule '{self.rule.name}': the server that copies refuses ({text}): allow the leaf's user to publish to"
                f" {prefix}.deliver.> and $JSC.R.>, and to subscribe to {prefix}.API.> and {prefix}.fc.>"
            )
        )

    def _answered(self, task: asyncio.Task[None]) -> None:
        _being_answered.discard(self._answering.pop(task))
        self._over(task)

    def _deliver_interest(self, subject: bytes, *, added: bool, standing: bool) -> None:
        if not added:
            self._wanted.discard(subject)
            self._end(subject)
            return
        self._wanted.add(subject)
        if (consumer := self._consumers.get(subject)) is not None:
            consumer.wanted = True
            consumer.send_waiting()
        elif standing:
            self.counters.woken += 1
            self._leaf.write(outdated(subject))

    def _wake_pending(self, version: str, connects: int) -> None:
        """Answer the requests that were pending when the leaf connected, and still are."""
        if connects != self._connects or not self._leaf.is_up:
            return
        unanswered = self._pending - _being_answered
        self._pending.clear()
        if not unanswered:
            return
        self.counters.woken += len(unanswered)
        self._leaf.write(b"".join(map(away, unanswered)))
        if is_at_least(version, ASKS_ON_CONNECT) and not self._has_woken:
            self._has_woken = True
            asyncio.get_running_loop().call_later(PENDING_FOR, self._connect_again, connects)

    def _connect_again(self, connects: int) -> None:
        if connects == self._connects:
            self._leaf.reconnect()

    def _source_is_back(self) -> None:
        """Replace consumers after the lost connection to the source: they may have ended, or sent what did not arrive.

        A source asks for a new consumer later than it decides where that begins, and until then stores what the old one
        delivers, so that this would be stored twice (2.10.27): the old one ends.
        """
        for deliver, consumer in tuple(self._consumers.items()):
            if consumer.answered and consumer.wanted:
                self._end(deliver)
                self.counters.woken += 1
                self._leaf.write(outdated(deliver))

    # -- requests ----------------------------------------------------------------------------------------------------

    async def _answer(self, request: Message) -> None:
        """Forward a request and pass the answer on; until there is one, or the server no longer waits for it."""
        api = request.subject[len(self._api) :].decode("utf-8", "replace")
        refusal = refusal_of(api, self.rule.stream, self._deliver, request.payload)
        if refusal is not None:
            self.counters.refused_requests += 1
            self._log.warning("rule.request_refused", request=api)
            self._leaf.write(message(request.reply, b"", b"", refusal))
            return
        retrying = AsyncRetrying(
            retry=retry_if_result(lambda answered: not answered),
            wait=wait_exponential_jitter(multiplier=0.05, max=0.5),
            stop=stop_after_delay(_PATIENCE),
            retry_error_callback=lambda _: None,
        )
        create = read_create(api, request.payload)
        if create is not None:
            await retrying(self._create, request, create, api)
        else:
            await retrying(self._forward, request, api)

    async def _forward(self, request: Message, api: str) -> bool:
        """Pass an answer on; False if the stream's server gave none, for now."""
        answer = await self._asked(request, api, request.payload)
        if answer is not None:
            self._leaf.write(message(request.reply, b"", answer[2], answer[3]))
        return answer is not None

    async def _asked(self, request: Message, api: str, payload: bytes) -> Delivered | None:
        """The answer of the stream's server; None without one, for now."""
        await self._writable()
        subject, fence = f"$JS.API.{api}".encode(), self._context.fence
        return await self._requests.ask(subject, request.block, payload, within=_ANSWER, fence=fence)

    @property
    def _may_write(self) -> bool:
        return self._context.fence.is_open and self._connection.client.is_connected

    async def _writable(self) -> None:
        """Wait until the rule may write to the stream's server, and can."""
        while not self._may_write:
            await self._context.fence.opened()
            await self._connection.connected()

    async def _create(self, request: Message, create: CreateRequest, api: str) -> bool:
        """Create a consumer that delivers to us, and answer; False if the stream's server did not, for now."""
        await self._writable()
        try:
            filters = await self._filters(create)
        except ApiError:
            filters = ()  # what is not selected is left out here; the answer to the request says what is wrong
        consumer = ServedConsumer(
            create.deliver,
            self._flow_control,
            self._encoder,
            self._leaf.write,
            self._undeliverable,
            self.metrics,
            self._backlog,
        )
        self._end(create.deliver)
        self._consumers[create.deliver] = consumer
        answered = False
        try:
            inbox = await consumer.open(self._connection.client)
            await self._connection.flush()  # the subscription comes before the request
            answer = await self._asked(request, api, create.redirected(inbox, filters))
            if answer is None:
                return False
            payload, answered = restored(answer[3], create.deliver)
            self._leaf.write(message(request.reply, b"", answer[2], payload))
        finally:
            if not answered and self._consumers.get(create.deliver) is consumer:
                self._end(create.deliver)
        if answered:
            self.counters.consumers += 1
            self._log.info("rule.consumer_served", consumer=create.deliver.decode("utf-8", "replace"))
            consumer.answered, consumer.wanted = True, create.deliver in self._wanted
            consumer.send_waiting()
            asyncio.get_running_loop().call_later(_UNWANTED, self._end_unwanted, consumer)
        else:
            self.counters.refused_requests += 1
        return True

    async def _filters(self, create: CreateRequest) -> tuple[str, ...]:
        """The filters on the stream's server; the rest is left out here."""
        filters = tuple(pattern.decode() for pattern in self._sourcing.filters)
        too_old = len(filters) > 1 and not is_at_least(self._connection.server_version, _SEVERAL_FILTERS)
        if filters_of(create.body["config"]) or too_old or not filters:
            return ()
        info = await self._connection.api.stream_info(self.rule.stream)
        return await consumer_filters(self._connection.api, info, filters)

    def _undeliverable(self, error: UndeliverableError) -> None:
        self._fail(RuleRefusedError(f"rule '{self.rule.name}': {error}"))
        for deliver in tuple(self._consumers):
            self._end(deliver)

    def _end(self, deliver: bytes) -> None:
        """Stop serving a consumer."""
        if (consumer := self._consumers.pop(deliver, None)) is not None:
            task = asyncio.create_task(consumer.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _end_unwanted(self, consumer: ServedConsumer) -> None:
        if not consumer.wanted and self._consumers.get(consumer.deliver) is consumer:
            self._end(consumer.deliver)
