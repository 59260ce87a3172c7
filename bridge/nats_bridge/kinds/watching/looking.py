"""Compares source and target of a link by their own messages.

A mirror keeps sequences, so its last one is its position. For other links, the position is in the source record of the
newest copy. The target is read backwards once, and after that only its new messages are read. If the target may have
removed newer copies (limits, a work queue), only its server knows the position.
"""

import base64
import json
from dataclasses import dataclass
from functools import partial

from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import MESSAGE_NOT_FOUND, Json
from nats_bridge.client.stream_identity import Bounds, KnownStream, MessageStamp, Verdict, judge
from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.ack_reply import AckReply
from nats_bridge.consuming.replay import Replay, standing_config
from nats_bridge.consuming.stream_range import backwards
from nats_bridge.errors import ApiError, NotPermittedError
from nats_bridge.kinds.watching.link import Link
from nats_bridge.kinds.watching.request_rate import RequestRate
from nats_transforms import header_block
from nats_transforms.source_record import last_record
from nats_transforms.timestamp import nanoseconds_of

_READING = 3  # requests that a piece of a target takes: consumer created, flow control answered, consumer deleted


@dataclass(frozen=True, slots=True)
class SourceError:
    """Why a source could not be read.

    Attributes:
        err_code: the server's code; 0 if nothing answers.
        description: in words.
    """

    err_code: int
    description: str


@dataclass(frozen=True, slots=True)
class Sight:
    """One comparison of a link.

    Attributes:
        target: `STREAM.INFO` of the target.
        source: the state of the source; None if it cannot be read.
        error: why not.
        position: the newest sequence of the source that the target has.
        missing: the number of the source's messages that are missing in the target; None if unknown.
        is_certain: whether the target has removed no copy that could be newer than `position`.
        is_another_source: whether the source is not the stream that the target's newest copy is of.
        following: the answer to `STREAM.MSG.GET` for the first missing message; None if none is missing, or if it was
            not requested.
    """

    link: Link
    target: Json
    source: Json | None
    error: SourceError | None
    position: int
    missing: int | None
    is_certain: bool = True
    is_another_source: bool = False
    following: Json | None = None

    @property
    def reported(self) -> Json:
        """The target server's report of the link: `lag`, `active`, `error`."""
        return self.link.reported(self.target)

    @property
    def mark(self) -> tuple[int, ...]:
        """Another one whenever the link has stored a message.

        A mirror that skips messages it cannot store changes its position, but stores nothing.
        """
        state = self.target["state"]
        if self.link.is_mirror:
            return int(state["first_seq"]), int(state["messages"])
        return (self.position,) if self.is_certain else (self.position, int(state["last_seq"]), self.missing or 0)

    @property
    def is_behind(self) -> bool:
        """Whether messages are missing, or the source cannot be read, or is not the stream that was copied."""
        return self.missing is None or self.missing > 0 or self.is_another_source


@dataclass(slots=True)
class Looking:
    """Compares source and target of one link, again and again.

    Attributes:
        connection: the connection of the target's account.
        rate: the limit of requests.
    """

    connection: Connection
    link: Link
    rate: RequestRate
    _position: int = 0
    _at: int = 0  # the newest copy's sequence in the target
    _read_to: int = 0
    _is_certain: bool = True
    _complete: tuple[object, ...] = ()  # source and target as they were when nothing was missing
    _source: KnownStream | None = None  # as it was seen last
    _judged: tuple[str, int] = ("", 0)  # its creation time, and the position, when this was decided:
    _is_another: bool = False

    async def look(self, target: Json, listed: Json | None = None) -> Sight:
        """Compare source and target once.

        Args:
            target: `STREAM.INFO` of the target.
            listed: the source's state, if it is in the same account and was listed with the target.
        """
        position = await self._position_in(target)
        if listed is not None and self._complete == _both(listed, target):
            return Sight(self.link, target, listed, None, position, 0, self._is_certain, self._is_another)
        answer, error = await self._ask(f"STREAM.INFO.{self.link.source}")
        missing, following = None, None
        if answer is not None and self._complete == _both(answer, target):
            missing = 0
        elif answer is not None:
            missing = max(await self._missing(answer, position), await self._left_out(target, answer))
        elif error is not None and not error.err_code and self.link.is_external:
            missing = await self._pending(position)  # all that an import needs to allow
            error = error if missing is None else None
        reported = self.link.reported(target)
        if missing and not self._is_certain and "seq" not in reported:
            missing = min(missing, int(reported.get("lag", missing)))
        if missing:
            following, _ = await self._following(position)
        is_another = answer is not None and await self._is_another_source(answer, target, position, missing)
        self._complete = _both(answer, target) if answer is not None and missing == 0 else ()
        certain = self._is_certain
        return Sight(self.link, target, answer, error, position, missing, certain, is_another, following)

    async def _position_in(self, target: Json) -> int:
        last = int(target["state"]["last_seq"])
        if self.link.is_mirror:
            self._position = self._at = last
            return last
        if last < self._read_to:  # purged and recreated: read all of it again
            self._read_to = self._position = self._at = 0
            self._is_certain = True
        if last > self._read_to:
            await self._read_back(target, max(int(target["state"]["first_seq"]), self._read_to + 1))
            self._read_to = last
        known = self._position or self.link.first - 1
        return known if self._is_certain else max(known, int(self.link.reported(target).get("seq", 0)))  # since 2.15

    async def _read_back(self, target: Json, first: int) -> None:
        """Look for the link's newest copy in the target, from its end back to a sequence."""
        last, direct = int(target["state"]["last_seq"]), target["config"].get("retention", "limits") != "limits"
        replay = Replay(self.connection.api, self.link.target, headers_only=True, direct=direct)
        behind = 0
        await self.rate.turn(_READING)
        async for piece in backwards(replay, first, last, partial(_Newest, self.link)):
            if (newest := piece.taker).position:
                self._position, self._at = newest.position, newest.at
                self._is_certain = behind + newest.behind == last - newest.at
                return
            behind += piece.count
            await self.rate.turn(_READING)
        self._is_certain = self._is_certain and behind == last - self._read_to

    async def _missing(self, source: Json, position: int) -> int:
        """Return the number of messages that the source has after a position, for a consumer there."""
        state = source["state"]
        if int(state["last_seq"]) <= position:
            return 0
        if (pending := await self._pending(position)) is not None:
            return pending
        # A work queue allows no second consumer.
        following, error = await self._following(position)
        if following is None and error is not None and error.err_code == MESSAGE_NOT_FOUND:
            return 0
        return int(state["last_seq"]) - max(position, int(state["first_seq"]) - 1)

    async def _pending(self, position: int) -> int | None:
        """Return the number of missing messages without the source's state.

        None if no consumer can be created there.
        """
        policy: Json = {"deliver_policy": "by_start_sequence", "opt_start_seq": position + 1}
        if not position and (start := self.link.entry.get("opt_start_time")):
            policy = {"deliver_policy": "by_start_time", "opt_start_time": start}
        body = {"stream_name": self.link.source, "config": standing_config(self.link.filters, policy)}
        created, _ = await self._ask(f"CONSUMER.CREATE.{self.link.source}", body)
        if created is None:
            return None
        await self._ask(f"CONSUMER.DELETE.{self.link.source}.{created['name']}")
        return int(created["num_pending"])

    async def _left_out(self, target: Json, source: Json) -> int:
        """Return the number of messages that a mirror lacks between its first and its last one, and after that.

        A mirror that could not store a message, because it was full, skips it and never returns to it (2.9 to 2.15).
        """
        state, config = target["state"], target["config"]
        may_remove = self.link.filters or config.get("max_msgs_per_subject", -1) > 0
        if not self.link.is_mirror or may_remove or not state.get("num_deleted"):
            return 0
        before = max(int(state["first_seq"]), int(source["state"]["first_seq"])) - 1
        theirs = await self._missing(source, before)  # first, so that nothing that arrives while it is read is missed
        await self.rate.turn(_READING)
        return max(theirs - await Replay(self.connection.api, self.link.target).after(before), 0)

    async def _is_another_source(self, source: Json, target: Json, position: int, missing: int | None) -> bool:
        """Return whether the source is shorter than the target's copies of it, or has another message at their end."""
        created, before, self._source = str(source["created"]), self._source, KnownStream.of(source)
        if position < self.link.first:  # it may wait for a sequence that will come
            verdict: Verdict = "same"
        elif int(source["state"]["last_seq"]) < position:
            verdict = "recreated"
        elif created == self._judged[0] and (not self._is_another or self._judged[1] == position):
            return self._is_another
        else:
            verdict = await self._by_newest_copy(source, target, position)
            if verdict == "unknown" and before is not None and before.created != created:
                verdict = judge(before.messages, await self._stored_times_ns(before.messages), Bounds.of(source))
            if verdict == "unknown" and missing:
                return self._is_another
        self._judged, self._is_another = (created, position), verdict == "recreated"
        return self._is_another

    async def _by_newest_copy(self, source: Json, target: Json, position: int) -> Verdict:
        """Compare the newest copy with the source's message: by time if the target keeps it, else by id and payload."""
        await self.rate.turn()
        copy = await self.connection.api.stored_message(self.link.target, self._at) if self._at else None
        if copy is None:
            return "unknown"
        if self.link.is_mirror:
            known = (MessageStamp(position, copy.time_ns),)
            return judge(known, await self._stored_times_ns(known), Bounds.of(source))
        message = await self._stored(self._position)
        if message is None or target["config"].get("allow_msg_counter"):
            return "unknown"
        block = base64.b64decode(message.get("hdrs") or "")
        one, other = ((header_block.read(each, b"Nats-Msg-Id")) for each in (block, copy.header_block))
        payload = base64.b64decode(message.get("data") or "")
        return "same" if one == other and payload == copy.payload else "recreated"

    async def _stored_times_ns(self, messages: tuple[MessageStamp, ...]) -> dict[int, int]:
        found = [(each.sequence, await self._stored(each.sequence)) for each in messages]
        return {sequence: nanoseconds_of(message["time"]) for sequence, message in found if message is not None}

    async def _stored(self, sequence: int) -> Json | None:
        answer, _ = await self._ask(f"STREAM.MSG.GET.{self.link.source}", {"seq": sequence})
        return answer["message"] if answer is not None else None

    async def _following(self, position: int) -> tuple[Json | None, SourceError | None]:
        """Return the first message of the source after a position that the link copies, or the reason without one."""
        found: list[Json] = []
        error: SourceError | None = None
        for subject in self.link.filters or (">",):
            body = {"seq": position + 1, "next_by_subj": subject}
            answer, error = await self._ask(f"STREAM.MSG.GET.{self.link.source}", body)
            found += [answer["message"]] if answer is not None else []
        return min(found, key=lambda message: int(message["seq"]), default=None), error

    async def _ask(self, request: str, body: Json | None = None) -> tuple[Json | None, SourceError | None]:
        """Return the source's answer to a request from where the target's server is, or the error.

        Raises:
            NotPermittedError: the user may not ask that.
            ApiError: the connection is away.
        """
        data = b"" if body is None else json.dumps(body).encode()
        await self.rate.turn()
        try:
            answer = await self.connection.api.ask_elsewhere(f"{self.link.api}.{request}", data)
        except NotPermittedError:
            raise
        except ApiError as error:
            if not self.connection.client.is_connected:
                raise
            return None, SourceError(0, "nothing answers there" if error.http_code == 503 else "no answer in time")
        if refused := answer.get("error"):
            return None, SourceError(int(refused.get("err_code", 0)), str(refused.get("description", "")))
        return answer, None


def _both(source: Json, target: Json) -> tuple[object, ...]:
    """Return facts that change whenever source or target changes."""
    ends = ("first_seq", "last_seq", "messages", "num_deleted")
    return (
        source["created"],
        *(info["state"].get(end) for info in (source, target) for end in ends),
        target["created"],
        target["config"],
    )


class _Newest:
    """The newest copy of a link among some messages of its target.

    Attributes:
        position: the sequence in the source; 0 without a copy.
        at: its sequence in the target.
        behind: the number of messages after it; all messages without a copy.
    """

    def __init__(self, link: Link) -> None:
        self.position = self.at = self.behind = 0
        self._link = link

    def take(self, batch: list[Delivered]) -> None:
        for _, reply, block, _ in batch:
            record = last_record(block)
            self.behind += 1
            if record is not None and self._link.copied(record):
                self.position, self.at = record.sequence, AckReply.parse(reply).stream_sequence
                self.behind = 0
