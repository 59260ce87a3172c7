"""A stream as a server keeps it, in memory: sequences, times, limits, duplicates, rollups, removals.

It knows what decides about republish and copies, and no more: consumers, ages, TTLs, batches, counters and schedules
are not here; cases about those are for servers (``needs: [store]``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from conformance.catalogue.case import Json, Message
from conformance.observation import Stored
from transforms.subject import matches

__all__ = ["Clock", "Refused", "StreamModel"]

_START_NS = 1_767_225_600_000_000_000
_STEP_NS = 250_000_000


class Clock:
    """A clock that goes on by a quarter of a second whenever it is looked at.

    Its times have fractions of no, one and two digits, so that an engine which writes them otherwise than servers do
    is found out.
    """

    def __init__(self) -> None:
        self._looks = 0

    def now(self) -> int:
        """Nanoseconds since 1970."""
        self._looks += 1
        return _START_NS + self._looks * _STEP_NS


class Refused(Exception):  # noqa: N818 - an answer, not an error
    """The stream does not take a message: what the server says to the publisher."""

    def __init__(self, err_code: int, description: str) -> None:
        super().__init__(description)
        self.err_code = err_code
        self.description = description

    @property
    def ack(self) -> dict[str, Json]:
        """As the stream's answer."""
        return {"err_code": self.err_code, "description": self.description}


@dataclass(slots=True)
class StreamModel:
    """One stream.

    Attributes:
        config: as the engine gave it back, defaults filled in.
        identity: which stream of this name it is.
        messages: by sequence, in order.
        last_sequence: of the last message that was stored, whether it is still there or not.
        positions: of the origins that it copies: the next sequence, by what makes an entry the same.
    """

    config: Mapping[str, Any]
    identity: bytes
    messages: dict[int, Stored] = field(default_factory=dict)
    last_sequence: int = 0
    positions: dict[str, int] = field(default_factory=dict)
    _ids: dict[bytes, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.last_sequence = max(self.config.get("first_seq", 0) - 1, 0)

    def takes(self, subject: bytes) -> bool:
        """Whether messages published on a subject come into this stream."""
        return any(
            matches(subject, each.encode("utf-8", "surrogateescape")) for each in self.config.get("subjects", ())
        )

    def newest(self, subject: bytes) -> int:
        """The sequence of the newest message with this subject that is still there; 0 for none."""
        return next((at for at, each in reversed(self.messages.items()) if each.message.subject == subject), 0)

    def duplicate(self, message: Message) -> int:
        """The sequence under which a message with the same id was stored; 0 for none.

        Windows are taken to be longer than a case takes.
        """
        if not self.config.get("duplicate_window"):
            return 0
        return self._ids.get(header(message.header_block, b"Nats-Msg-Id"), 0)

    def check(self, message: Message, *, rollups: bool = True) -> None:
        """What a stream looks at before it stores a message; ``rollups``: also whether it may roll up.

        Raises:
            Refused: it does not take it.
        """
        rollup = header(message.header_block, b"Nats-Rollup")
        if rollups and rollup:
            if not self.config.get("allow_rollup_hdrs"):
                raise Refused(10111, "rollup not permitted")
            if rollup.lower() not in (b"sub", b"all"):
                shown = rollup.lower().decode("utf-8", "replace")
                raise Refused(10111, f'rollup value invalid: "{shown}"')
        size = len(message.header_block) + len(message.payload)
        if 0 <= self.config.get("max_msg_size", -1) < size:
            raise Refused(10054, "message size exceeds maximum allowed")
        if self.config.get("discard") == "new":
            self._check_room(message.subject)

    def _check_room(self, subject: bytes) -> None:
        per_subject, most = self._limit("max_msgs_per_subject"), self._limit("max_msgs")
        is_full = 0 < per_subject <= sum(1 for each in self.messages.values() if each.message.subject == subject)
        if is_full and self.config.get("discard_new_per_subject"):
            raise Refused(10077, "maximum messages per subject exceeded")
        if 0 < most <= len(self.messages) and not is_full:
            raise Refused(10077, "maximum messages exceeded")

    def store(self, message: Message, time_ns: int, sequence: int | None = None) -> Stored:
        """Keep a message, under the next sequence where none is given, and remove what it displaces."""
        self.last_sequence = self.last_sequence + 1 if sequence is None else sequence
        stored = Stored(message, self.last_sequence, time_ns)
        if self.config.get("retention") == "interest":
            return stored  # no case has a consumer, and nobody's interest keeps nothing
        self.messages[self.last_sequence] = stored
        message_id = header(message.header_block, b"Nats-Msg-Id")
        if message_id:
            self._ids[message_id] = self.last_sequence
        rollup = header(message.header_block, b"Nats-Rollup").lower()
        if rollup and self.config.get("allow_rollup_hdrs"):
            self._roll_up(message.subject if rollup == b"sub" else None)
        self.enforce_limits()
        return stored

    @property
    def keeps(self) -> bool:
        """Whether anything is stored at all."""
        return self.config.get("retention") != "interest"

    def _roll_up(self, subject: bytes | None) -> None:
        for sequence in list(self.messages)[:-1]:
            if subject is None or self.messages[sequence].message.subject == subject:
                del self.messages[sequence]

    def enforce_limits(self) -> None:
        """Remove the oldest messages that are too many."""
        per_subject, most = self._limit("max_msgs_per_subject"), self._limit("max_msgs")
        if per_subject > 0:
            kept: dict[bytes, int] = {}
            for sequence, each in reversed(list(self.messages.items())):
                kept[each.message.subject] = kept.get(each.message.subject, 0) + 1
                if kept[each.message.subject] > per_subject:
                    del self.messages[sequence]
        if most > 0:
            for sequence in list(self.messages)[:-most]:
                del self.messages[sequence]

    def delete(self, sequence: int) -> bool:
        """Remove one message; whether it was there."""
        return self.messages.pop(sequence, None) is not None

    def purge(self, request: Mapping[str, Any]) -> None:
        """Remove messages: those of ``filter``, those before ``seq``, all but the newest ``keep`` of them."""
        pattern = str(request.get("filter") or ">").encode("utf-8", "surrogateescape")
        chosen = [sequence for sequence, each in self.messages.items() if matches(each.message.subject, pattern)]
        if request.get("seq"):
            chosen = [sequence for sequence in chosen if sequence < request["seq"]]
        if request.get("keep"):
            chosen = chosen[: -request["keep"]]
        for sequence in chosen:
            del self.messages[sequence]

    def _limit(self, name: str) -> int:
        return int(self.config.get(name, -1))


def header(block: bytes, name: bytes) -> bytes:
    """The value that a server reads under a name: that of its first line; empty where there is none."""
    start = block.find(b"\n" + name + b":")
    if start < 0:
        return b""
    start += len(name) + 2
    return block[start : block.find(b"\r\n", start)].strip(b" \t")
