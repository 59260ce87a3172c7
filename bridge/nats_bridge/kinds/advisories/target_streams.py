"""Tracks the streams that store the messages of a rule. Reads them at the start, and again when streams change."""

import asyncio

import structlog

from nats_bridge.client.account_identity import same_stream
from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import STREAM_NOT_FOUND, Json
from nats_bridge.client.stream_advisories import StreamEvents
from nats_bridge.client.tasks import end_tasks
from nats_bridge.client.waiting import NO_ANSWER
from nats_bridge.errors import ApiError
from nats_bridge.rules.loops.subject_overlap import first_matching
from nats_transforms.subject import matches
from nats_transforms.transform import Transform

_log = structlog.get_logger("bridge.rule")


class TargetStreams:
    """The streams of the target's account that a rule's destination may land in.

    A deleted stream stays known, so messages for it wait until it exists again.

    Args:
        rule: the rule's name, for the log.
        source: the connection that the rule reads from.
        target: the connection to publish on.
    """

    def __init__(self, rule: str, source: Connection, target: Connection) -> None:
        self._log = _log.bind(rule=rule)
        self._source = source
        self._target = target
        self._known: dict[str, tuple[bytes, ...]] = {}
        self._own: set[str] = set()
        self._events = StreamEvents(target)
        self._follower: asyncio.Task[None] | None = None

    @property
    def names(self) -> list[str]:
        """The names of the streams known."""
        return sorted(self._known)

    async def open(self, transform: Transform) -> None:
        """Find the streams that store results of the transform, now and again whenever a stream changes."""
        self._transform = transform
        await self._events.open()
        await self._look()
        self._follower = asyncio.create_task(self._follow())

    async def close(self) -> None:
        """Stop checking."""
        await end_tasks(self._follower)
        await self._events.close()

    def taker(self, subject: bytes) -> str | None:
        """Return the stream that stores and confirms messages with a subject; None without one."""
        for stream, subjects in self._known.items():
            if any(matches(subject, own) for own in subjects):
                return stream
        return None

    def is_own(self, stream: str, subject: bytes) -> bool:
        """Return whether `stream`, a stream of the source's account, stores messages with this subject."""
        return stream in self._own and any(matches(subject, own) for own in self._known[stream])

    async def _follow(self) -> None:
        patience: float | None = None
        while True:
            await self._events.next(patience)
            await self._target.connected()
            patience = None if await self._look() else NO_ANSWER.after()

    async def _look(self) -> bool:
        """Find the streams. Return False if the server did not answer."""
        try:
            found = await self._target.api.stream_names(subject=self._transform.covering.decode())
            for stream in {*found, *self._known}:
                try:
                    await self._learn(stream, await self._target.api.stream_info(stream))
                except ApiError as error:
                    if error.err_code != STREAM_NOT_FOUND:
                        raise
        except ApiError as error:
            self._log.warning(
                "rule.target_streams_unknown", reason=str(error), meaning="publishes there are not confirmed"
            )
            return not error.retriable
        return True

    async def _learn(self, stream: str, info: Json) -> None:
        config = info["config"]
        subjects = config.get("subjects") or []
        if config.get("no_ack") or first_matching(self._transform, subjects) is None:
            self._known.pop(stream, None)
            self._own.discard(stream)
            return
        self._known[stream] = tuple(subject.encode() for subject in subjects)
        if self._target is self._source or await same_stream(self._source, info):
            self._own.add(stream)
