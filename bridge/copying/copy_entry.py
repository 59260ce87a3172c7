"""One entry of a copying rule at work: from where it stands in the target to the origin's newest message, for ever.

An entry lives in rounds. A round begins by asking the target what it holds (`position`), reads the origin from
there, and ends when nobody can tell any more what was stored: then the next one begins in the same way. A start after
SIGKILL is no different from that, which is why nothing else needs to be remembered.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import structlog

from bridge.cancelling import end_tasks
from bridge.connection import Link
from bridge.copying.barrier import last_sequence_behind
from bridge.copying.copy_loop import CopyLoop, Operation, Special, message_sequence
from bridge.copying.counters import CopyCounters
from bridge.copying.message_ids import entry_key
from bridge.copying.position import OriginMessage, Resume, compare, identity_changed, of_this_origin
from bridge.copying.publisher import MOST_UNCONFIRMED, Publisher
from bridge.copying.rejections import Rejected, Rejections
from bridge.copying.target import Target
from bridge.copying.target_tail import TargetTail, read_tail
from bridge.copying.verdict import SOURCE_RECORD_REFUSED, Verdict
from bridge.errors import ApiError, BridgeError, RuleRefusedError
from bridge.intake import Intake
from bridge.jetstream_api import STREAM_NOT_FOUND, Json
from bridge.missing_streams import appeared
from bridge.replay import Replay
from bridge.republish_loop import AckReply
from bridge.rule_consumer import ConsumerPlan, RuleConsumer
from bridge.settings import Source
from bridge.wire import Delivered
from transforms import header_block
from transforms.source_record import TWIN_HEADER
from transforms.sourcing import Sourcing

__all__ = ["CopyEntry", "EntryPlan"]

_log = structlog.get_logger("bridge.copying")

_PAUSE = 0.1  # seconds until the next try while a server is away
_NANOSECONDS = 10**9


@dataclass(frozen=True, slots=True)
class EntryPlan:
    """What an entry does.

    Attributes:
        rule: the rule's name.
        source: the entry as configured.
        sourcing: the same, compiled.
        stream: the target's name.
        probe: a subject that the target stores, for barriers.
        filters: what the origin's consumer is asked for; none for everything.
        on_recreated: what to do when the origin is a new stream of the same name.
    """

    rule: str
    source: Source
    sourcing: Sourcing
    stream: str
    probe: bytes
    filters: tuple[str, ...]
    on_recreated: Literal["stop", "restart"]


class CopyEntry:
    """Copies what one entry selects.

    Args:
        plan: what to do.
        origin: the connection that holds the origin.
        target: the connection that holds the target.
        rejections: the policy for messages that the target refuses.
        counters: where to count.
        failed: called with the error that ends the rule.
    """

    def __init__(
        self,
        plan: EntryPlan,
        origin: Link,
        target: Link,
        rejections: Rejections,
        counters: CopyCounters,
        failed: Callable[[BaseException], None],
    ) -> None:
        self.plan = plan
        self._origin = origin
        self._target = target
        self._rejections = rejections
        self._counters = counters
        self._failed = failed
        self._twin = False
        self._target_created = ""
        self._interruption = asyncio.Event()
        self._intake: Intake | None = None
        self._publisher: Publisher | None = None
        self._loop: CopyLoop | None = None
        self._living: asyncio.Task[None] | None = None
        self._log = _log.bind(rule=plan.rule, stream=plan.stream, origin=plan.source.name)

    # -- life --------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin the first round.

        Raises:
            BridgeError: what is in the way.
        """
        await self._begin_round()
        self._living = asyncio.create_task(self._live())

    async def stop(self) -> None:
        """Stop reading, and wait for the answers to what was sent, if the target takes it."""
        await end_tasks(self._living)
        if self._intake is not None:
            await self._intake.abandon(held=False)
        if self._publisher is not None:
            while not self._publisher.waiting and self._target.client.is_connected:
                try:
                    async with asyncio.timeout(_PAUSE):
                        await self._publisher.settled()
                except TimeoutError:
                    continue
                break
            await self._publisher.close()

    async def abandon(self) -> None:
        """Stop at once; what is under way stands in the target or is copied by the next start."""
        await end_tasks(self._living)
        await self._end_round()

    @property
    def ready(self) -> bool:
        """Whether it copies at this moment."""
        attached = self._intake is not None and self._intake.attached
        waiting = self._publisher is None or self._publisher.waiting
        return attached and not waiting and not self._interruption.is_set() and self._target.client.is_connected

    def status(self) -> dict[str, Any]:
        """Where it stands, as plain data."""
        return {
            "name": self.plan.source.name,
            "position": self._intake.handled if self._intake is not None else None,
            "target_is_full": self._publisher is not None and self._publisher.waiting,
        }

    async def _live(self) -> None:
        try:
            while True:
                await self._interruption.wait()
                await self._end_round()
                while True:
                    await self._target.connected()
                    await self._origin.connected()
                    try:
                        await self._begin_round()
                    except ApiError as error:
                        await self._end_round()
                        await self._wait_out(error)
                    else:
                        break
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._failed(error)

    async def _wait_out(self, error: ApiError) -> None:
        if error.err_code == STREAM_NOT_FOUND:
            self._log.warning("rule.waiting", reason=str(error), meaning="copying goes on when the stream is back")
            await asyncio.gather(
                appeared(self._target, self.plan.stream), appeared(self._origin, self.plan.source.name)
            )
        elif error.retriable:
            await asyncio.sleep(_PAUSE)
        else:
            raise error

    async def _begin_round(self) -> None:
        plan = self.plan
        self._interruption.clear()
        target_info = await self._target.api.stream_info(plan.stream)
        origin_info = await self._origin.api.stream_info(plan.source.name)
        target = self._target_of(target_info)
        created = str(origin_info["created"])
        self._key = entry_key(plan.sourcing, created)
        last = await last_sequence_behind(self._target, plan.stream, plan.probe)
        resume = await self._find_position(target, last, target_info, origin_info)
        publisher = Publisher(
            self._target, target, last, self._counters, self._refused, self._interrupted, self._failed
        )
        self._publisher = publisher
        self._loop = CopyLoop(
            plan.sourcing,
            self._key,
            target,
            self._counters,
            max_payload=self._target.client.max_payload,
        )
        self._loop.there = set(resume.there)
        await publisher.open()
        consumer = RuleConsumer(
            self._origin.api,
            ConsumerPlan(
                stream=plan.source.name,
                filters=plan.filters,
                headers_only=False,
                position="none",
                durable_name="",
                owner="",
                description="",
            ),
        )
        self._intake = Intake(self._origin, consumer, self, self._counters, self._failed)
        await self._intake.open(resume.handled, created)
        self._log.info("copying.begins", after_sequence=resume.handled, already_there=len(resume.there))

    async def _end_round(self) -> None:
        intake, publisher = self._intake, self._publisher
        self._intake = self._publisher = None
        if publisher is not None:
            await publisher.close()
        if intake is not None:
            with contextlib.suppress(BridgeError, OSError):
                await intake.abandon(held=False)

    def _interrupted(self, reason: str) -> None:
        self._log.warning("copying.interrupted", reason=reason)
        self._interruption.set()

    def _target_of(self, info: Json) -> Target:
        target = Target.of(info, self._target.server_version)
        return target.with_record_header(TWIN_HEADER) if self._twin else target

    # -- batches (BatchSink) -----------------------------------------------------------------------------------------

    def accept(self, batch: list[Delivered], _: int) -> Awaitable[None] | None:
        """Copy a batch; see `BatchSink`."""
        loop, publisher = self._loop, self._publisher
        if loop is None or publisher is None:
            return None  # between two rounds
        self._counters.received += len(batch)
        out: list[Operation] = []
        done, special = loop.run(batch, out)
        if special is None:
            return publisher.send(out)
        return self._carefully(loop, publisher, batch, out, done, special)

    def confirm(self, _: bytes) -> Awaitable[None] | None:
        """Nothing to acknowledge: the position is in the target; see `BatchSink`."""
        return None

    async def settled(self) -> None:
        """Wait until everything sent is answered; see `BatchSink`."""
        if self._publisher is not None:
            await self._publisher.settled()

    async def stream_recreated(self, info: Json) -> None:
        """The origin is a new stream of the same name; see `BatchSink`."""
        self._decide_about_recreated(str(info["created"]))
        assert self._loop is not None
        self._key = entry_key(self.plan.sourcing, str(info["created"]))
        self._loop.retarget(self._target_of(await self._target.api.stream_info(self.plan.stream)), self._key)

    async def _carefully(
        self,
        loop: CopyLoop,
        publisher: Publisher,
        batch: list[Delivered],
        out: list[Operation],
        done: int,
        special: Special | None,
    ) -> None:
        """Send messages that the target may refuse alone, so that none behind them is stored before that is known."""
        while True:
            if waiting := publisher.send(out):
                await waiting
            if special is None:
                return
            await publisher.settled()
            if special.operation is not None:
                if waiting := publisher.send([special.operation]):
                    await waiting
                await publisher.settled()
            elif self._publisher is publisher and not self._interruption.is_set():
                await self._reject(special)
            out = []
            done, special = loop.run(batch, out, done)

    async def _reject(self, special: Special) -> None:
        subject, reply, _, payload = special.message
        await self._rejections.handle(
            Rejected(
                self.plan.source.name,
                int(message_sequence(reply)),
                subject,
                special.header_block,
                payload,
                special.reason,
            )
        )

    async def _refused(self, operation: Operation, verdict: Verdict) -> None:
        if verdict.err_code == SOURCE_RECORD_REFUSED and not self._twin:
            # A cluster in the middle of an upgrade: the stream's leader is newer than the server we talk to.
            self._twin = True
            assert self._publisher is not None
            self._publisher.interrupt("the target takes no source records of the server's own name")
            return
        line, _, rest = operation[1].partition(b"\r\n")
        fields = line.split(b" ")
        size, total = int(fields[-2]), int(fields[-1])
        await self._rejections.handle(
            Rejected(
                self.plan.source.name,
                int(operation[0]),
                fields[1],
                rest[:size],
                rest[size:total],
                f"{verdict.description} ({verdict.err_code})",
            )
        )

    # -- the position ------------------------------------------------------------------------------------------------

    async def _find_position(self, target: Target, last: int, target_info: Json, origin_info: Json) -> Resume:
        """Where to go on; see `position`."""
        plan = self.plan
        tail = await read_tail(self._target.api, plan.stream, last, plan.sourcing.is_own, MOST_UNCONFIRMED)
        created_ns = _nanoseconds(str(origin_info["created"]))
        if identity_changed(tail.copies, self._key, created_ns):
            self._decide_about_recreated(str(origin_info["created"]))
            return Resume(0)
        copies = of_this_origin(tail.copies, self._key, created_ns)
        before, self._target_created = self._target_created, target.created
        if not copies:
            return Resume(await self._first_position(target_info, origin_info))
        if before not in ("", target.created):
            # It was deleted and made anew under our hands: what it holds is what was just on its way.
            there = frozenset(copy.record.sequence for copy in copies)
            return Resume(await self._first_position(target_info, origin_info), there, missing=len(there))
        resume = await self._compared(target, TargetTail(copies, tail.has_gaps))
        origin_last = int(origin_info["state"]["last_seq"])
        if resume.handled > origin_last:
            self._log.warning("copying.origin_shorter", position=resume.handled, last_sequence=origin_last)
            return Resume(origin_last)
        if resume.missing or resume.foreign:
            self._log.warning(
                "copying.incomplete",
                missing=resume.missing,
                of_lost_messages=resume.foreign,
                meaning="an interruption left copies out; they are made now, behind later ones",
            )
            self._counters.out_of_order += resume.missing
        return resume

    async def _compared(self, target: Target, tail: TargetTail) -> Resume:
        plan = self.plan
        sequences = [copy.record.sequence for copy in tail.copies]
        origin: dict[int, OriginMessage] = {}
        replay = Replay(self._origin.api, plan.source.name, plan.filters, headers_only=True)
        async with contextlib.aclosing(replay.between(min(sequences), max(sequences))) as batches:
            async for batch in batches:
                for subject, reply, block, _ in batch:
                    destination = plan.sourcing.destination(subject)
                    if destination is not None:
                        ack = AckReply.parse(reply)
                        message_id = header_block.read(block, b"Nats-Msg-Id")
                        origin[ack.stream_sequence] = OriginMessage(ack.time_ns, destination, message_id)
        return compare(
            tail.copies,
            origin,
            has_gaps=tail.has_gaps,
            forgets=target.forgets,
            remembered_since_ns=time.time_ns() - target.window_ns // 2,
        )

    async def _first_position(self, target_info: Json, origin_info: Json) -> int:
        """Where to begin when the target holds no copy: as the server decides it (2.10 to 2.15)."""
        source, state = self.plan.source, target_info["state"]
        if source.opt_start_seq is not None:
            return source.opt_start_seq - 1
        earliest = None
        if source.opt_start_time is not None:
            earliest = source.opt_start_time
            if int(state["messages"]) and _nanoseconds(state["last_ts"]) > _nanoseconds(earliest):
                earliest = str(state["last_ts"])
        elif int(state["first_seq"]) > 1 and int(state["last_seq"]) >= int(state["first_seq"]):
            earliest = str(state["last_ts"])
        if earliest is None:
            return 0
        self._log.warning(
            "copying.begins_at_time", time=earliest, meaning="the target holds no copy that tells the position"
        )
        replay = Replay(self._origin.api, source.name)
        return min(await replay.before(earliest), int(origin_info["state"]["last_seq"]))

    def _decide_about_recreated(self, created: str) -> None:
        plan = self.plan
        if plan.on_recreated == "stop":
            raise RuleRefusedError(
                f"rule '{plan.rule}': stream '{plan.source.name}' is a new one (created {created}), and"
                f" '{plan.stream}' holds copies of the old one: set on_recreated: restart to copy it from its start"
            )
        self._log.warning("copying.origin_recreated", created=created, meaning="copied from its start")


def _nanoseconds(time_text: str) -> int:
    """An RFC 3339 time, in nanoseconds since 1970."""
    whole, _, rest = time_text.partition(".")
    digits = rest.rstrip("Z").partition("+")[0].partition("-")[0]
    zone = time_text[len(whole) + 1 + len(digits) :] if rest else ""
    moment = datetime.fromisoformat((whole + zone if rest else time_text).replace("Z", "+00:00"))
    return int(moment.timestamp()) * _NANOSECONDS + int((digits + "0" * 9)[:9])
