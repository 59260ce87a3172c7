"""A run from its start to its end, under one term.

Theory of operation. A run ends in one of two ways. While this sidecar leads the rule, it drains: messages in flight are
finished, for at most `_DRAIN` seconds, and then abandoned. If the lead is lost, before or during the drain, the run is
cut: another replica may do the rule's work, so nothing more is sent to any server.

A caller of `end` can be cancelled, and the drain continues then. The next call waits for the same drain.
"""

import asyncio

import structlog

from nats_bridge.client.tasks import end_tasks, first_of
from nats_bridge.client.waiting import CLOSING
from nats_bridge.rules.leadership.term import Term
from nats_bridge.rules.run import RuleRun

_log = structlog.get_logger("bridge.supervisor")

_DRAIN = 22.0  # seconds for a rule to finish; with the rest, this is within Kubernetes' default grace period of 30


class OpenRun:
    """A run that has been started, and must be ended.

    Args:
        run: the run, checked.
        term: the lead under which it works.
        rule: the rule's name, for the log.

    Attributes:
        failed: set when the run cannot continue; its result is the error.
        ended: whether it has ended.
    """

    def __init__(self, run: RuleRun, term: Term, rule: str) -> None:
        self.run = run
        self.term = term
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self.ended = False
        self._drain: asyncio.Task[None] | None = None  # once it has begun
        self._log = _log.bind(rule=rule)

    def fail(self, error: BaseException) -> None:
        """Note the error with which the run cannot continue. Only the first one counts."""
        if not self.failed.done():
            self.failed.set_result(error)

    async def start(self) -> bool:
        """Start the run, which can take long. Return False if the lead was lost before it had started.

        Raises:
            Exception: the run does not start.
        """
        starting = asyncio.create_task(self.run.start())
        try:
            await first_of(starting, self.term.lost.wait())
            if starting.done():
                await starting
                return True
        finally:
            await end_tasks(starting)
        return False

    async def end(self) -> bool:
        """End the run. Return whether everything in flight was finished."""
        if self.ended:
            return True
        if self.term.lost.is_set():
            finished = await self._cut()
        else:
            finished = await self._finish()
        self.ended = True  # only here, so that an interrupted end is repeated
        return finished

    async def _finish(self) -> bool:
        before = self.run.error  # an error of the drain leaves messages in flight
        draining = self._drain = self._drain or asyncio.create_task(self.run.stop())
        await first_of(draining, self.term.lost.wait(), within=_DRAIN)
        if draining.done():
            if error := draining.exception():
                self._log.error("rule.drain_failed", reason=str(error) or type(error).__name__)
            return error is None and self.run.error is before
        if self.term.lost.is_set():
            return await self._cut()
        self._log.error("rule.drain_timeout", seconds=_DRAIN)
        await self._end_drain()
        try:
            async with asyncio.timeout(CLOSING):
                await self.run.abandon()
        except TimeoutError:
            await self.run.end_at_once()
        return False

    async def _cut(self) -> bool:
        await self._end_drain()
        await self.run.end_at_once()
        return False

    async def _end_drain(self) -> None:
        drain, self._drain = self._drain, None
        await end_tasks(drain)
