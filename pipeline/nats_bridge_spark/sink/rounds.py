"""Publishes a task's rows to a stream until it has stored all of them: pipelined, in order, each once.

The problem: while a connection lasts, the bridge's `Publisher` sends messages in order and knows which are stored. If
the connection breaks, or an answer does not come, it is unknown which messages in flight are stored. Publishing them
again would store some twice, once the stream has forgotten their ids.

The idea: work in rounds. A round is one `Publisher` on one connection. After an interruption, the next round reads
which rows in flight the stream has, sends only the others, and continues. Its states are those of the sidecar's rounds
(`RoundLife`). `send` and `settled` begin the next round after an interrupted one, and raise the error of a failed one.

Example: rows 1 to 6, the connection breaks, and the stream had stored 1 to 4.

```text
round 1   open: the stream's last sequence is 90
          send 1-3, send 4-6          PubAcks: 1 and 2 are stored, up to sequence 92
          the connection breaks       in flight: 3-6
round 2   open: the last sequence is 94; what is stored after 92? 3 and 4
          send 5 and 6                PubAcks: 5 and 6 are stored
settled   nothing is in flight
```

A publisher sometimes infers that earlier messages are stored from the confirmation of a later one. It may withdraw that
for the newest ones, so a bundle stays in flight until `_DOUBTED` messages after it are confirmed.

Invariants:

* Messages are confirmed in order. Bundles leave `_in_flight` at its front, and are never sent again.
* `_end` is the stream's last sequence when the newest message was confirmed. A stream that ends before it has lost
  messages, and the task fails with `DataLostError`.
* At most one round is open. Its publisher is closed before the next one asks the stream.
* A task that makes no progress for `patience` seconds fails with the reason.
"""

import asyncio
import contextlib
from bisect import bisect_right
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import pyarrow.compute as pc

from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import NOT_ENABLED, Json
from nats_bridge.client.pub_ack import PubAck
from nats_bridge.client.stream_identity import Bounds, KnownStream
from nats_bridge.client.tasks import end_tasks
from nats_bridge.client.waiting import FOUR_A_SECOND, LEADER_AWAY
from nats_bridge.errors import ApiError, BridgeError
from nats_bridge.kinds.copying.counters import CopyCounters
from nats_bridge.kinds.copying.encoder import Operation
from nats_bridge.kinds.copying.position.entry_streams import last_sequence_after_sent
from nats_bridge.kinds.copying.round import RoundLife
from nats_bridge.kinds.copying.target import Target
from nats_bridge.kinds.copying.writing.in_flight import Window
from nats_bridge.kinds.copying.writing.publisher import Outlet, Publisher
from nats_bridge.kinds.copying.writing.publishing import Terms
from nats_bridge.observability.rule_metrics import RuleMetrics
from nats_bridge_spark.errors import DataLostError, PipelineError, UnreachableError
from nats_bridge_spark.row_bundle import RowBundle, first_with
from nats_bridge_spark.sink.plan import WritePlan
from nats_bridge_spark.sink.stored_rows import RowSearch, StoredRows, TaskPlace
from nats_bridge_spark.source.stream_state import stream_info

_Answer = TypeVar("_Answer")

_AGAIN: Final = "begin the write again"
_LONG_WINDOW: Final = 60 * 10**9  # nanoseconds
_DOUBTED: Final = 1024  # messages that a publisher may ask for again after it has reported that they are stored


class Rounds:
    """Publishes the rows of one task.

    Args:
        connection: without echo, as a `Publisher` requires.

    Attributes:
        patience: seconds for which the server may be down, or the stream refuse to store.
        counters: `duplicates` is the number of rows that the stream has answered to be duplicates.
        interruptions: how often it had to read which rows were stored.
    """

    def __init__(self, plan: WritePlan, place: TaskPlace, connection: Connection) -> None:
        self.patience = plan.options.patience
        self.counters = CopyCounters()
        self.interruptions = 0
        self._plan = plan
        self._place = place
        self._connection = connection
        self._stream = plan.options.stream
        self._where = f"stream '{self._stream}'"
        self._servers = ", ".join(connection.servers)
        self._known = plan.known
        self._probe = b""
        self._error: BaseException | None = None
        self._reason = ""
        self._idle = True  # whether no progress is expected: no messages to send, or the stream is being read
        self._publisher: Publisher | None = None
        self._life = RoundLife(self._interrupted, self._failed)  # of the present round
        self._watcher: asyncio.Task[None] | None = None
        # Including the doubted ones, each with a sequence of the stream before its messages.
        self._in_flight: deque[tuple[RowBundle, int]] = deque()
        self._end = 0
        self._reconnects = 0  # of the connection, when the present round began

    @property
    def last(self) -> int:
        """The stream's last sequence when the newest row was confirmed."""
        return self._present.confirmed[1]

    async def open(self, probe: bytes, info: Json) -> int:
        """Begin the first round. Return the stream's last sequence.

        Args:
            probe: a subject that the stream stores.

        Raises the errors of `settled`.
        """
        self._probe = probe
        last = await self.patiently(self._round, info)
        self._idle = True
        self._watcher = asyncio.create_task(self._watch())
        return last

    async def send(self, messages: RowBundle) -> None:
        """Publish. Returns when the messages are in flight. Raises the errors of `settled`."""
        if messages:
            self._in_flight.append((messages, self.last))
            self._idle = False
            await self._publish(messages)
            self._forget_stored()
            await self._recovered()
            self._idle = True

    async def settled(self) -> None:
        """Wait until all messages are known to be stored.

        Raises:
            RowError: the stream refuses a row.
            UnreachableError: the server is away for longer than the patience allows.
            DataLostError: the stream no longer has messages that it has confirmed.
            PipelineError: the stream is missing, full for too long, or another one.
        """
        self._idle = False
        while True:
            await self._present.settled()
            # Writes by others arrive before the answer; then everything is requested again.
            await self._connection.flush()
            self._forget_stored()
            await self._recovered()
            if not self._present.has_work and not self._life.stopped_sending:
                self._idle = True
                return

    async def close(self) -> None:
        """Stop. Messages in flight may or may not be stored."""
        await end_tasks(self._watcher)
        with contextlib.suppress(BridgeError, OSError):
            await self._close_round()

    async def _close_round(self) -> None:
        if self._publisher is not None and self._life.state != "closed":
            self._life.happened("leave")
            await self._publisher.close()
            self._life.happened("closed")

    async def info(self) -> Json:
        """Return the stream's `STREAM.INFO`.

        Raises:
            PipelineError: it does not exist, is another one than before, or the server is away.
        """
        info = await self.patiently(stream_info, self._connection, self._stream)
        if self._known is not None and self._known.differs(str(info["created"]), Bounds.of(info)):
            raise DataLostError(
                f"{self._where} was recreated while it was written to: what was stored before is gone with it; {_AGAIN}"
            )
        self._known = KnownStream.of(info)
        return info

    async def patiently(self, ask: Callable[..., Awaitable[_Answer]], *args: Any) -> _Answer:
        """Return the answer to a request, repeated while waiting can help."""
        deadline: float | None = None
        while True:
            try:
                async with asyncio.timeout(self.patience):
                    await self._connection.connected()
            except TimeoutError:
                raise UnreachableError(
                    f"the connection to {self._servers} was lost and is not back after {self.patience:g} s"
                ) from None
            try:
                return await ask(*args)
            except ApiError as error:
                if not error.passing or error.err_code == NOT_ENABLED:
                    raise
                now = asyncio.get_running_loop().time()
                deadline = deadline or now + self.patience
                if now > deadline:
                    raise UnreachableError(f"{error}; tried for {self.patience:g} s") from None
            await LEADER_AWAY.pause()

    # -- a round -----------------------------------------------------------------------------------------------------

    async def _round(self, info: Json | None = None) -> int:
        """Read which rows in flight the stream has, and send the others. Return the stream's last sequence before."""
        info = info or await self.info()
        target = Target.of(info, self._connection.server_version)
        last = await self._open(target)
        self._idle = True
        if self._plan.options.check_subjects:
            self._check_subjects(target)
        reconnects = self._connection.reconnects
        if self._in_flight:
            search = RowSearch(self._connection.api, info, self._plan, self._place)
            stored = await search.rows(self._in_flight[0][1] + 1, last)
            # Messages that the previous connection has in flight may arrive after this connection's request.
            if reconnects > self._reconnects and target.window_ns < _LONG_WINDOW:
                await search.settle(stored, last)
            left = [(_left(messages, stored), behind) for messages, behind in self._in_flight]
            self._in_flight = deque(each for each in left if each[0])
        self._reconnects = reconnects
        self._idle = False
        for messages, _ in tuple(self._in_flight):
            await self._publish(messages)
        self._forget_stored()
        return last

    async def _open(self, target: Target) -> int:
        """Open a publisher. Return the stream's last sequence, after everything that was sent in earlier rounds."""
        await self._close_round()
        life = self._life = RoundLife(self._interrupted, self._failed)
        publisher = self._publisher = Publisher(
            Outlet(self._connection, f"write to {self._stream}", self.counters, RuleMetrics()),
            target,
            Terms(exclusive=True),
            life,
            self,
            Window.shared(1, self._connection.server_version),
        )
        await publisher.subscribe()
        try:
            async with asyncio.timeout(self.patience):
                last = await last_sequence_after_sent(self._connection, self._stream, self._probe)
        except TimeoutError:
            raise UnreachableError(
                f"{self._where} at {self._servers} gives no answer for {self.patience:g} s"
            ) from None
        if last < self._end:
            raise DataLostError(
                f"{self._where} has lost messages that it had stored: it ends at sequence {last}, and ended at"
                f" {self._end}; {_AGAIN}"
            )
        self._end = last
        publisher.continue_after(last)
        life.happened("opened")
        return last

    def _check_subjects(self, target: Target) -> None:
        for bundle, _ in self._in_flight:
            for subject in pc.unique(bundle.subjects).to_pylist():
                if not target.stores(subject):
                    row = bundle.names[first_with(subject, bundle.subjects)] - 1
                    raise self._place.wrong(row, f"{self._where} does not store this subject any more", subject)

    async def _publish(self, messages: RowBundle) -> None:
        if waiting := self._present.send(messages):
            await waiting

    def _forget_stored(self) -> None:
        name, end = self._present.confirmed
        stored = sum(bisect_right(messages.names, name) for messages, _ in self._in_flight)
        while self._in_flight and stored - len(self._in_flight[0][0]) >= _DOUBTED:
            stored -= len(self._in_flight.popleft()[0])
        self._end = max(self._end, end)

    async def _recovered(self) -> None:
        """Begin the next round after an interrupted one."""
        is_stored, _ = self._present.confirmed
        if is_stored and self._known is not None and not self._known.messages and not self._life.stopped_sending:
            await self.info()  # the stream was empty, so nothing of it was known
        while self._life.stopped_sending:
            if self._error is not None:
                raise self._error
            self.interruptions += 1
            await self._close_round()
            self._forget_stored()
            await self.patiently(self._round)
            if self._life.stopped_sending:
                await LEADER_AWAY.pause()

    # -- reports of the publisher and the clock ----------------------------------------------------------------------

    def stored(self) -> None:
        """Do nothing, because stored messages are read from the publisher; see `PublisherOwner`."""

    async def refused(self, operation: Operation, pub_ack: PubAck) -> None:
        """End the task; see `PublisherOwner`."""
        name, data = operation
        why = f"{self._where} refuses it: {pub_ack.description} ({pub_ack.err_code})"
        raise self._place.wrong(int(name) - 1, why, data[5 : data.index(b" ", 5)])

    def _interrupted(self, reason: str) -> None:
        self._reason = reason

    def _failed(self, error: BaseException) -> None:
        self._error = self._error or error

    async def _watch(self) -> None:
        """End a task that makes no progress, with the reason."""
        moved, stuck = (-1, -1), 0.0
        while True:
            look = min(FOUR_A_SECOND, self.patience / 4)
            await asyncio.sleep(look)
            now = self._present.progress
            if now != moved or not (self._present.has_work or self._life.stopped_sending):
                moved, stuck = now, 0.0
            elif not self._idle:
                stuck += look
            if stuck > self.patience:
                what = f"confirms no messages ({self._reason or 'no answers'})"
                if self._present.waiting:
                    what = "takes no messages: it is full"
                remedy = 'make room, or wait longer with .option("patience", seconds)'
                self._life.fail(PipelineError(f"{self._where} {what}, for {self.patience:g} s; {remedy}"))
                return

    @property
    def _present(self) -> Publisher:
        assert self._publisher is not None, "opened"
        return self._publisher


def _left(messages: RowBundle, stored: StoredRows) -> RowBundle:
    return messages.kept([at for at, block in enumerate(messages.blocks.to_pylist()) if not stored.has(block)])
