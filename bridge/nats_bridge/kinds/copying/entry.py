"""One entry of a copying rule: copies from its position in the target to the source's newest message, endlessly.

An entry lives in rounds (`round`). A start after SIGKILL is such a round too, so the entry keeps no other state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from nats_bridge.client.jetstream_api import STREAM_NOT_FOUND
from nats_bridge.client.tasks import end_tasks
from nats_bridge.client.waiting import LEADER_AWAY
from nats_bridge.consuming.lag import LagWatch, StreamPosition
from nats_bridge.consuming.missing_streams import appeared
from nats_bridge.errors import ApiError
from nats_bridge.kinds.copying.round import EntryContext, Round
from nats_bridge.kinds.copying.round_life import RoundEvent, RoundLife
from nats_bridge.observability.log_throttle import Pace
from nats_bridge.observability.rule_metrics import InFlight, nothing_in_flight

_log = structlog.get_logger("bridge.copying")


class CopyEntry:
    """Copies the messages that one entry selects.

    Args:
        context: the objects that its rounds share.
        failed: called with the error that ends the rule.
    """

    def __init__(self, context: EntryContext, failed: Callable[[BaseException], None]) -> None:
        plan = self.plan = context.plan
        self._context = context
        self._failed = failed
        self._pace = Pace()
        self._over = False
        self._round: Round | None = None  # the present one, while it is open
        self._life = RoundLife(self._interrupted, self._fail)  # of the present round, or of the next one
        self._tasks: list[asyncio.Task[None]] = []
        self._log = _log.bind(rule=plan.rule, stream=plan.stream, source=plan.source.name)

    # -- life --------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin the first round.

        Raises:
            BridgeError: the entry cannot start.
        """
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks.append(asyncio.create_task(self._live(begun)))
        try:
            await begun
        except asyncio.CancelledError:
            self._over = True
            self._life.happened("leave")
            raise
        context = self._context
        if context.reader is None:
            watch = LagWatch(self.plan.rule, context.source, self, context.backlog)
            self._tasks.append(asyncio.create_task(watch.run()))

    async def stop(self) -> None:
        """Stop reading, and wait for the answers to sent messages if the target stores them."""
        await self._end("drain")
        if self.plan.durable:
            await self._context.source.flush()

    async def abandon(self) -> None:
        """Stop at once. Messages in flight are in the target, or the next start copies them."""
        await self._end("leave")

    async def end_at_once(self) -> None:
        """Stop at once. The source's server removes the consumer when it has no subscriber."""
        await self._end("cut")

    async def _end(self, how: RoundEvent) -> None:
        life, closing = self._life, self._life.closing
        self._over = True
        life.happened(how)
        if how == "cut" and closing is not None:
            await asyncio.sleep(0)  # it has begun
            await end_tasks(closing)  # it may wait for a server
        if self._round is not None and self._tasks:
            await asyncio.wait(self._tasks[:1])  # it closes the round
        await end_tasks(*self._tasks)
        if life.closing is not None:
            await asyncio.wait([life.closing])
            if not life.closing.cancelled():
                life.closing.result()

    async def _live(self, begun: asyncio.Future[None]) -> None:
        context = self._context
        try:
            while True:
                life = self._life = RoundLife(self._interrupted, self._fail)
                try:
                    async with Round.begin(context, life) as self._round:
                        if not begun.done():
                            begun.set_result(None)
                        await life.ended()
                except ApiError as error:
                    if not begun.done():
                        raise
                    await self._wait_out(error)
                finally:
                    self._round = None
                if self._over:
                    return
                await context.target.connected()
                await context.source.connected()
                await context.fence.opened()
        except Exception as error:
            if not begun.done():
                begun.set_exception(error)
            elif not self._over:
                self._fail(error)

    async def _wait_out(self, error: ApiError) -> None:
        context, plan = self._context, self.plan
        context.blocked = f"its streams to exist and answer ({error})"
        if error.err_code == STREAM_NOT_FOUND:
            self._log.warning("rule.waiting", reason=str(error), meaning="copying resumes when the stream exists again")
            await asyncio.gather(appeared(context.target, plan.stream), appeared(context.source, plan.source.name))
        elif error.passing:
            if self._pace.due():
                self._log.warning("rule.waiting", reason=str(error), meaning="the next round begins when they answer")
            await LEADER_AWAY.pause()
        else:
            raise error

    def restart_round(self, reason: str) -> None:
        """Begin another round, which sees the changes. Also works while a round is beginning."""
        self._life.interrupt(reason)

    def _interrupted(self, reason: str) -> None:
        self._log.warning("copying.interrupted", reason=reason)

    def _fail(self, error: BaseException) -> None:
        self._over = True
        self._failed(error)

    # -- status ------------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether it copies at this moment."""
        present = self._round
        if present is None or self._life.ends or not self._context.target.client.is_connected:
            return False
        return present.reader.attached and not present.publisher.waiting and not self._is_target_silent

    @property
    def waiting_for(self) -> str | None:
        """The obstacle to copying; None without one."""
        source = self.plan.source.name
        if self._context.blocked:
            return self._context.blocked
        if self._is_target_silent:
            return self.obstacle
        if self._round is None or self._life.over:
            return f"what stream '{self.plan.stream}' holds of '{source}'"
        reader = self._round.reader
        if obstacle := self.obstacle or reader.waits_for:
            return obstacle
        return None if reader.attached else f"its consumer on stream '{source}'"

    @property
    def obstacle(self) -> str | None:
        """The obstacle that only others can remove; None without one."""
        if self._context.blocked:
            return self._context.blocked
        if self._round is not None and self._round.publisher.waiting:
            return f"room in stream '{self.plan.stream}', which accepts nothing at the moment"
        if self._is_target_silent:
            return f"an answer of stream '{self.plan.stream}', which does not answer some messages"
        return None

    @property
    def _is_target_silent(self) -> bool:
        return self._context.outlet.is_silent

    @property
    def has_work(self) -> bool:
        """Whether messages are read and not known to be stored."""
        return self._round is not None and (self._round.reader.has_work or self._round.publisher.has_work)

    def status(self) -> dict[str, Any]:
        """Return the entry's state, as plain data."""
        return {
            "name": self.plan.source.name,
            "position": self._round.reader.handled if self._round is not None else None,
            "lag_messages": self._context.backlog.messages,
            "target_is_full": self._round is not None and self._round.publisher.waiting,
        }

    @property
    def in_flight(self) -> InFlight:
        """The messages sent and not stored yet."""
        return self._round.publisher.in_flight if self._round is not None else nothing_in_flight()

    @property
    def stream_position(self) -> StreamPosition | None:
        """The position in the source; see `nats_bridge.consuming.lag`."""
        return self._round.reader.stream_position if self._round is not None else self._context.stream_position

    async def not_taken(self) -> int | None:
        """Return the number of messages that the round's consumer still holds; see `nats_bridge.consuming.lag`."""
        return await self._round.reader.not_taken() if self._round is not None else None
