"""Publishing copies: pipelined, in order, and every answer of the target looked at.

Operations are written as they come, up to a window of unanswered ones. As long as answers say "stored", in order,
nothing else happens (the hot path). What can go wrong within a connection is handled here:

* the target is full or has no leader: it says so; from the first message that it did not take, all that it did not
  take are sent again, each alone, until it takes them; then the pipeline opens again;
* it refuses a message for good: the rule's policy decides (`rejections`), then the rest goes on.

When nobody can tell any more which messages were stored (the connection broke, an answer did not come), `interrupted`
is called: whoever reads the origin must find out from the target what is there, and begin again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

import structlog

from bridge.cancelling import end_tasks
from bridge.connection import Link
from bridge.copying.copy_loop import Operation
from bridge.copying.counters import CopyCounters
from bridge.copying.verdict import Verdict
from bridge.errors import RuleRefusedError
from bridge.wire import BatchSubscription, Delivered

__all__ = ["MOST_UNANSWERED", "Publisher", "Refused"]

_log = structlog.get_logger("bridge.copying.publisher")

MOST_UNANSWERED = 8192
"""Messages under way at most; what an interruption can leave in doubt."""

_MOST_BYTES = 16 << 20  # under way at most
_MOST_UNSENT = 1 << 20  # bytes in the socket's buffer before the next batch waits
_ANSWER_WAIT = 5.0  # seconds without any answer, after which one is taken for lost
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 1.0  # seconds between two tries on a full target
_ALONE = 1000  # messages that are sent one by one after the target was full, before the pipeline opens again

Refused = Callable[[Operation, Verdict], Awaitable[None]]
"""Called with an operation that the target refused for good; raises what ends the rule, or returns to go on."""


class Publisher:
    """Publishes one entry's copies.

    Args:
        link: the connection of the target.
        stream: the target's name.
        counters: where to count.
        refused: the policy.
        interrupted: called once, with the reason, when it is unknown what was stored.
        failed: called once with the error that ends the rule.

    Attributes:
        inbox: the beginning of the operations' reply subjects.
        waiting: whether the target takes nothing at the moment.
    """

    def __init__(
        self,
        link: Link,
        stream: str,
        counters: CopyCounters,
        refused: Refused,
        interrupted: Callable[[str], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self.inbox = b"%b." % link.client.new_inbox().encode()
        self.waiting = False
        self._link = link
        self._stream = stream
        self._counters = counters
        self._refused = refused
        self._interrupted = interrupted
        self._failed = failed
        self._pending: deque[Operation] = deque()
        self._pending_bytes = 0
        self._verdicts: dict[bytes, Verdict] = {}
        self._good = b"\0"  # how an answer begins that says "stored"; learned from the first
        self._answered = asyncio.Event()
        self._alone = 0
        self._over = False
        self._accepted = 0
        self._marks: deque[tuple[int, Callable[[], None]]] = deque()
        self._subscription: BatchSubscription | None = None
        self._mending: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Begin to listen for answers."""
        self._subscription = await self._link.client.subscribe_batches(
            self.inbox.decode() + "*", self._on_answers, lambda *_: None
        )
        self._link.on_disconnect(self._disconnected)
        self._watcher = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Stop; what is not answered stays unknown."""
        self._over = True
        self._link.forget(self._disconnected)
        await end_tasks(self._watcher, self._mending)
        if self._subscription is not None:
            await self._subscription.release()
        self._answered.set()

    def send(self, operations: list[Operation]) -> Awaitable[None] | None:
        """Publish, in order.

        Returns:
            None, or something to await before the next operations are sent.
        """
        if not operations:
            return None
        if self._over or self._mending is not None or self._alone or not self._link.client.is_connected:
            return self._send_carefully(operations)
        self._write(operations)
        if (
            len(self._pending) >= MOST_UNANSWERED
            or self._pending_bytes >= _MOST_BYTES
            or self._link.client.unsent_bytes > _MOST_UNSENT
        ):
            return self._room()
        return None

    def when_confirmed(self, call: Callable[[], None]) -> None:
        """Call as soon as everything sent so far is stored (or skipped)."""
        if self._pending:
            self._marks.append((self._accepted, call))
        elif not self._over:
            call()

    def interrupt(self, reason: str) -> None:
        """Give up what is under way: it is unknown what of it is stored."""
        if not self._over:
            self._over = True
            self._answered.set()
            self._interrupted(reason)

    async def settled(self) -> None:
        """Wait until everything sent so far is stored (or skipped), or nobody can tell."""
        while (self._pending or self._mending is not None) and not self._over:
            await self._next_answer()

    @property
    def _usable(self) -> bool:
        return not self._over and self._link.client.is_connected

    # -- sending -----------------------------------------------------------------------------------------------------

    def _write(self, operations: list[Operation]) -> None:
        self._pending.extend(operations)
        self._accepted += len(operations)
        self._transmit(operations)

    def _transmit(self, operations: list[Operation]) -> None:
        data = b"".join([operation for _, operation in operations])
        self._pending_bytes += len(data)
        self._counters.bytes_out += len(data)
        self._link.client.write_raw(data)

    async def _send_carefully(self, operations: list[Operation]) -> None:
        """Send when nothing is in the way; one by one after the target was full."""
        left = deque(operations)
        while left and not self._over:
            await self._mended()
            if not self._usable:
                break
            if not self._alone:
                self._write(list(left))
                left.clear()
            else:
                self._alone -= 1
                self._write([left.popleft()])
                await self.settled()
        # What is left over an interruption is read again from the origin.

    async def _room(self) -> None:
        if self._link.client.is_connected:
            try:
                await self._link.client.drained()
            except ConnectionError:
                return  # which interrupts
        while (len(self._pending) > MOST_UNANSWERED // 2 or self._pending_bytes > _MOST_BYTES // 2) and not self._over:
            await self._next_answer()

    async def _next_answer(self) -> None:
        self._answered.clear()
        await self._answered.wait()

    async def _mended(self) -> None:
        while self._mending is not None and not self._over:
            await self._next_answer()

    # -- answers -----------------------------------------------------------------------------------------------------

    def _on_answers(self, answers: list[Delivered]) -> None:
        if self._over:
            return
        pending, good, start = self._pending, self._good, len(self.inbox)
        done = 0
        if self._mending is None and not self._verdicts:
            digits = len(good)
            for subject, _, _, payload in answers:
                if (
                    not pending
                    or subject[start:] != pending[0][0]
                    or not payload.startswith(good)
                    or not payload[digits:-1].isdigit()
                ):
                    break
                self._pending_bytes -= len(pending.popleft()[1])
                done += 1
            self._counters.copied += done
        if done < len(answers):
            self._sort_out(answers[done:])
        if self._marks:
            self._reach_marks()
        self._answered.set()

    def _sort_out(self, answers: list[Delivered]) -> None:
        """Answers that are not simply "stored" for the next message."""
        start = len(self.inbox)
        expected = {sequence for sequence, _ in self._pending}
        trouble = False
        for subject, _, block, payload in answers:
            sequence = subject[start:]
            if sequence not in expected:
                continue  # of a message that was sent twice
            verdict = Verdict.parse(block, payload)
            if verdict.kind in ("stored", "duplicate") and verdict.stream != self._stream:
                self._fail(
                    RuleRefusedError(
                        f"stream '{verdict.stream}' takes copies meant for '{self._stream}': their subjects overlap"
                    )
                )
                return
            if verdict.kind == "stored":
                self._good = payload[: payload.rindex(b":") + 1]
            trouble = trouble or verdict.kind in ("later", "refused")
            self._verdicts[sequence] = verdict
        self._take_off()
        if trouble and self._mending is None:
            self._mending = asyncio.create_task(self._mend())

    def _take_off(self) -> None:
        """Forget operations that are stored, as far as no unknown one is before them."""
        pending, verdicts = self._pending, self._verdicts
        while pending and (verdict := verdicts.get(pending[0][0])) and verdict.kind in ("stored", "duplicate"):
            self._count(verdict)
            sequence, operation = pending.popleft()
            del verdicts[sequence]
            self._pending_bytes -= len(operation)

    def _count(self, verdict: Verdict) -> None:
        if verdict.kind == "duplicate":
            self._counters.duplicates += 1
        else:
            self._counters.copied += 1

    def _reach_marks(self) -> None:
        reached = self._accepted - len(self._pending)
        while self._marks and self._marks[0][0] <= reached:
            self._marks.popleft()[1]()

    # -- trouble within a connection ---------------------------------------------------------------------------------

    async def _mend(self) -> None:
        """Bring everything pending to an end, in order."""
        pause = _FIRST_PAUSE
        try:
            while self._pending:
                if not await self._all_told():
                    return self.interrupt("the target left a message without an answer")
                self._take_off()
                if not self._pending:
                    break
                operation = self._pending[0]
                verdict = self._verdicts.pop(operation[0])
                if verdict.kind == "refused":
                    await self._refused(operation, verdict)
                    if not self._usable:
                        return self.interrupt("the connection to the target is lost")
                    self._drop_first()
                    continue
                self._wait_said(verdict)
                await asyncio.sleep(pause)
                if any(later.kind == "stored" for later in self._verdicts.values()):
                    self._counters.out_of_order += 1
                self._pending_bytes -= len(operation[1])
                if not self._usable:
                    return self.interrupt("the connection to the target is lost")
                self._transmit([operation])
                if not await self._all_told():
                    return self.interrupt("the target left a message without an answer")
                taken = self._verdicts.get(operation[0])
                pause = _FIRST_PAUSE if taken is None or taken.kind != "later" else min(pause * 2, _LONGEST_PAUSE)
            if self.waiting:
                self.waiting = False
                self._alone = _ALONE
                _log.info("copying.continues", stream=self._stream)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._fail(error)
        finally:
            self._mending = None
            if not self._over:
                self._reach_marks()
            self._answered.set()

    def _drop_first(self) -> None:
        _, operation = self._pending.popleft()
        self._pending_bytes -= len(operation)

    def _wait_said(self, verdict: Verdict) -> None:
        if not self.waiting:
            self.waiting = True
            self._counters.waits += 1
            _log.warning(
                "copying.waits",
                stream=self._stream,
                server_says=verdict.description,
                meaning="nothing is lost; copying goes on when the stream takes messages again",
            )

    async def _all_told(self) -> bool:
        """Wait until everything pending has a verdict; False if an answer is overdue."""
        while any(sequence not in self._verdicts for sequence, _ in self._pending):
            try:
                async with asyncio.timeout(_ANSWER_WAIT):
                    await self._next_answer()
            except TimeoutError:
                return False
            if self._over:
                return False
        return True

    async def _watch(self) -> None:
        """See that answers come."""
        before = -1
        while not self._over:
            await asyncio.sleep(_ANSWER_WAIT)
            confirmed = self._accepted - len(self._pending)
            if self._pending and confirmed == before and self._mending is None:
                self.interrupt("the target does not answer")
            before = confirmed if self._pending else -1

    def _disconnected(self) -> None:
        self.interrupt("the connection to the target is lost")

    def _fail(self, error: BaseException) -> None:
        if not self._over:
            self._over = True
            self._answered.set()
            self._failed(error)
