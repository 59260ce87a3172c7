"""Shows messages of a rule before and after: `nats-bridge tap`.

A tap knows nothing of the rule's sidecar, and leaves nothing on a server. It requests a stream's messages one by one: a
consumer would count for work-queue and interest streams, and could be sent more than is shown. It subscribes to a
subject for as many messages as it may show in a second, and the server sends no more.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from nats_bridge.bridge.client.connection import Connection
from nats_bridge.bridge.client.connection_pool import connected
from nats_bridge.bridge.client.permission_violations import not_allowed, refused_subscription
from nats_bridge.bridge.client.tasks import end_tasks
from nats_bridge.bridge.client.wire import Delivered
from nats_bridge.bridge.consuming.missing_streams import existing_stream
from nats_bridge.bridge.errors import ConfigError, RuleRefusedError
from nats_bridge.bridge.kinds.kind import Incoming, Input, Outcome
from nats_bridge.bridge.kinds.registry import kind_of
from nats_bridge.bridge.kinds.watching.request_rate import RequestRate
from nats_bridge.bridge.permissions.need import Need, api_subject, listen, write
from nats_bridge.bridge.rules.context import RuleContext
from nats_bridge.bridge.settings import CopyingRule, Rule, Settings
from nats_bridge.transforms.republish import StoredMessage
from nats_bridge.transforms.subject import is_subset, is_valid_filter
from nats_bridge.transforms.timestamp import nanoseconds_of

_BEHIND: Final = 2 * 10**9
"""Nanoseconds between a new message and its stream's newest one from which on those in between are skipped."""
_POLL: Final = 0.1  # seconds, at least, between two requests for the state of a stream without new messages


@dataclass(frozen=True, slots=True)
class Wanted:
    """The request.

    Attributes:
        rule: the rule.
        subject: only messages with this subject, which may have wildcards; empty for all.
        first: the sequence in the rule's streams to begin with; 0 for new messages only, of which a tap that falls
            behind skips some.
        most: how many messages; 0 for no end.
        rate: messages a second, at most.
    """

    rule: Rule
    subject: str = ""
    first: int = 0
    most: int = 0
    rate: float = 10


@dataclass(frozen=True, slots=True)
class Tapped:
    """A message of a rule.

    Attributes:
        incoming: as the rule receives it; without a stream, its sequence is 0.
        outcomes: what the rule makes of it, or why it makes nothing. `Nats-Last-Sequence` is not looked up.
    """

    incoming: Incoming
    outcomes: tuple[Outcome, ...]


@dataclass(frozen=True, slots=True)
class Screen:
    """What a tap reports to.

    Attributes:
        opened: called once, when everything that is stored or published from then on can be shown.
        shows: called with each message.
        skipped: called with a stream and the sequence that comes next, where messages were skipped.
    """

    opened: Callable[[], None]
    shows: Callable[[Tapped], None]
    skipped: Callable[[str, int], None]


def inputs_of(wanted: Wanted) -> tuple[Input, ...]:
    """The streams and subjects that are read, each once.

    Raises:
        ConfigError: the rule has none, or not the wanted part.
    """
    rule, subject = wanted.rule, wanted.subject
    inputs = tuple(dict.fromkeys(kind_of(rule).inputs(rule)))
    if not inputs:
        raise ConfigError(f"rule '{rule.name}': is of kind {rule.kind}, which makes nothing of messages")
    if subject and not is_valid_filter(subject.encode()):
        raise ConfigError(f"--subject: '{subject}' is no subject; wildcards are whole tokens, as in 'orders.*.>'")
    for each in inputs:
        if each.stream:
            continue
        if wanted.first:
            raise ConfigError(
                f"--from-sequence: rule '{rule.name}' reads no stream, it subscribes to '{each.subject}'; leave it out"
            )
        if subject and not is_subset(subject.encode(), each.subject.encode()):
            raise ConfigError(f"--subject: rule '{rule.name}' receives '{each.subject}' only, not '{subject}'")
    return inputs


def tap_needs(wanted: Wanted) -> Iterator[Need]:
    """The permissions that a tap needs, besides its answers.

    Raises:
        ConfigError: as for `inputs_of`.
    """
    for each in inputs_of(wanted):
        if each.stream:
            yield write(each.connection, api_subject("STREAM.INFO", each.stream), f"state of stream {each.stream}")
            yield write(each.connection, api_subject("STREAM.MSG.GET", each.stream), f"reads stream {each.stream}")
        else:
            yield listen(each.connection, wanted.subject or each.subject, "receives what the rule receives")


async def tap(settings: Settings, wanted: Wanted, stop: asyncio.Event, screen: Screen) -> None:
    """Show messages until there are enough, or until `stop` is set.

    Args:
        settings: with the connections.
        wanted: what to show.
        stop: ends it.
        screen: gets the messages.

    Raises:
        ConfigError: as for `inputs_of`.
        StreamMissingError: a stream of the rule does not exist.
        BridgeError: a server cannot be reached or asked, or refuses.
    """
    inputs = inputs_of(wanted)
    async with connected(settings, set(wanted.rule.connections)) as connections:
        tap = _Tap(settings, wanted, connections, inputs, screen)
        reading = [asyncio.create_task(tap.read(each) if each.stream else tap.listen(each)) for each in inputs]
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([*reading, stopped], return_when=asyncio.FIRST_COMPLETED)
            for task in reading:
                if task.done():
                    task.result()
        finally:
            await end_tasks(stopped, *reading)


class _Tap:
    """Reads all inputs of a rule; each of them ends when enough is shown."""

    def __init__(
        self,
        settings: Settings,
        wanted: Wanted,
        connections: Mapping[str, Connection],
        inputs: Sequence[Input],
        screen: Screen,
    ) -> None:
        self._wanted = wanted
        self._connections = connections
        self._screen = screen
        self._kind = kind_of(wanted.rule)
        self._context = RuleContext(settings.name, settings.dialect_of(wanted.rule), lambda _: None)
        self._pace = RequestRate(wanted.rate)
        self._left = wanted.most or math.inf
        self._opening = set(inputs)

    async def read(self, place: Input) -> None:
        """Show messages of a stream."""
        connection, subject = self._connections[place.connection], self._wanted.subject or ">"
        api, stream = connection.api, place.stream
        info = await existing_stream(connection, self._wanted.rule.name, stream)
        created, position = info["created"], self._wanted.first or int(info["state"]["last_seq"]) + 1
        self._opened(place)
        while self._left:
            await self._pace.turn()
            info = await api.stream_info(stream)
            if info["created"] != created:
                created, position = info["created"], 1
            last = int(info["state"]["last_seq"])
            if position > last:
                await asyncio.sleep(_POLL)
                continue
            message = await api.message_from(stream, position, subject)
            if message is None:
                position = last + 1
                continue
            self._show(place, message)
            position = message.sequence + 1
            behind = nanoseconds_of(info["state"]["last_ts"]) - message.time_ns
            if not self._wanted.first and behind > _BEHIND and position <= last:
                position = last + 1
                self._screen.skipped(stream, position)

    async def listen(self, place: Input) -> None:
        """Show messages that are published on a subject."""
        connection, subject = self._connections[place.connection], self._wanted.subject or place.subject
        arrived: asyncio.Queue[list[Delivered] | RuleRefusedError] = asyncio.Queue()

        def refused(text: str) -> None:
            if refused_subscription(text) == subject.encode():
                rule = f"rule '{self._wanted.rule.name}'"
                arrived.put_nowait(not_allowed(rule, text, f"subscribe to {subject}"))

        connection.on_refusal(refused)
        window, clock = max(1, int(self._wanted.rate)), asyncio.get_running_loop().time
        while self._left:
            due = clock() + window / self._wanted.rate
            subscription = await connection.client.subscribe_batches(subject, arrived.put_nowait)
            await subscription.unsubscribe(after=window)
            await connection.flush()
            self._opened(place)
            left = window
            while left > 0 and self._left:
                batch = await arrived.get()
                if isinstance(batch, RuleRefusedError):
                    raise batch
                for name, _, block, payload in batch:
                    self._show(place, StoredMessage(name, block, payload, 0, time.time_ns()))
                left -= len(batch)
            await subscription.release()
            await asyncio.sleep(max(0.0, due - clock()))

    def _opened(self, place: Input) -> None:
        if place in self._opening:
            self._opening.remove(place)
            if not self._opening:
                self._screen.opened()

    def _show(self, place: Input, message: StoredMessage) -> None:
        if not self._left:
            return
        self._left -= 1
        rule = self._wanted.rule
        decides = rule.target_connection if isinstance(rule, CopyingRule) else place.connection
        incoming = Incoming(message, place.connection, place.stream)
        made = self._kind.makes(rule, self._context.dialect_at(self._connections[decides]), incoming)
        self._screen.shows(Tapped(incoming, tuple(made)))
