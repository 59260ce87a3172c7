"""Decides whether a stream is the one seen before, or another one of the same name.

The creation time alone cannot decide that. Servers before 2.14 change it: after a restart, an update of the stream
stores the time of that restart, and the next restart reports it (2.9.10, 2.10.27, 2.12.15). So a different creation
time is only a reason to compare messages. A stream never gives a sequence twice with the same time, and all messages of
a recreated stream are newer than those of the previous stream. Only times of one stream are compared with each other:
the clocks of two servers can differ.

| of the messages that are known | the stream is |
|---|---|
| one is where it was, with the same time | the same |
| another message has the sequence of one, and none is where it was | recreated |
| none is held, and the stream holds an older message | the same |
| none is held, and the stream is empty or holds younger ones only, among their sequences | recreated |
| none is held, and the stream begins behind them | unknown: reading continues at its first message in both cases |
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Self, TypeAlias

from nats_bridge.client.jetstream_api import JetStreamApi, Json
from nats_transforms.timestamp import nanoseconds_of

Verdict: TypeAlias = Literal["same", "recreated", "unknown"]


class MessageStamp(NamedTuple):
    """A message in a stream.

    Attributes:
        time_ns: when the stream stored it, in nanoseconds since 1970.
    """

    sequence: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """The first and the last message of a stream.

    Attributes:
        first: the first message; None for an empty stream.
        last: the last sequence, and the time of that message, which may have been removed; the time is 0 if unknown.
    """

    first: MessageStamp | None
    last: MessageStamp

    @classmethod
    def of(cls, info: Json) -> Self:
        """Read `STREAM.INFO`."""
        state = info["state"]
        first = (
            MessageStamp(int(state["first_seq"]), nanoseconds_of(state["first_ts"])) if int(state["messages"]) else None
        )
        return cls(first, MessageStamp(int(state["last_seq"]), max(nanoseconds_of(state["last_ts"]), 0)))


@dataclass(frozen=True, slots=True)
class KnownStream:
    """The creation time and known messages of a stream, which identify it.

    Attributes:
        created: its creation time, as `STREAM.INFO` reports it.
        messages: some messages that it has or had.
    """

    created: str
    messages: tuple[MessageStamp, ...] = ()

    @classmethod
    def of(cls, info: Json) -> Self:
        """Read `STREAM.INFO`."""
        bounds = Bounds.of(info)
        last = (bounds.last,) if bounds.last.sequence and bounds.last.time_ns else ()
        return cls(str(info["created"]), (*last, *((bounds.first,) if bounds.first else ())))

    def also(self, *messages: MessageStamp) -> Self:
        """This stream with more known messages, which are tried before the others."""
        return replace(self, messages=tuple(dict.fromkeys((*messages, *self.messages))))

    def differs(self, created: str, bounds: Bounds) -> bool:
        """Return whether a stream of this name is another one.

        The bounds decide, or the creation time if no message is known.
        """
        return created != self.created and (not self.messages or judge(self.messages, {}, bounds) == "recreated")

    async def verdict(self, api: JetStreamApi, info: Json) -> Verdict:
        """Return whether a stream of this name is this one. Requests messages only if the creation time differs.

        Args:
            api: the API of the stream's connection.
            info: its `STREAM.INFO`.
        """
        if info["created"] == self.created:
            return "same"
        bounds, held = Bounds.of(info), dict[int, int]()
        for known in self.messages:
            if known in (bounds.first, bounds.last):
                return "same"
            if bounds.first is not None and bounds.first.sequence <= known.sequence <= bounds.last.sequence:
                message = await api.stored_message(info["config"]["name"], known.sequence)
                if message is not None:
                    held[known.sequence] = message.time_ns
                    if message.time_ns == known.time_ns:
                        break
        return judge(self.messages, held, bounds)


def judge(known: tuple[MessageStamp, ...], held: Mapping[int, int], bounds: Bounds) -> Verdict:
    """Decide whether a stream with another creation time is the one whose messages are known.

    Args:
        known: messages of the stream that was seen before.
        held: the existing messages among these sequences, with their times.
        bounds: the bounds of the stream now.
    """
    if any(held.get(message.sequence) == message.time_ns or message == bounds.last for message in known):
        return "same"
    if held:
        return "recreated"
    newest = max(known, default=None)
    if newest is None:
        return "unknown"
    first = bounds.first
    if first is None or first.sequence > newest.sequence:
        return "recreated" if bounds.last.sequence < newest.sequence else "unknown"
    return "same" if first.time_ns <= newest.time_ns else "recreated"
