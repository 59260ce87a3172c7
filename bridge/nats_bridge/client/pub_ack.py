"""Reads PubAcks: stored, a duplicate, refused for now, or rejected."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Literal

from nats_bridge.api_error_codes import class_of
from nats_bridge.client.wire import Delivered

SEALED = 10109
INCREMENT_MISSING = 10169
SOURCE_RECORD_REFUSED = 10227

_WRONG_LAST_SEQUENCE = (10071, 10164)  # the second is said without the last sequence (2.12)
_ID_PENDING = 10158


@dataclass(frozen=True, slots=True)
class PubAck:
    """A stream's answer.

    Attributes:
        kind: `stored`, `duplicate` (it has this id already), `later` (full, no leader, no responders: trying again
            can help) or `refused` (it never will).
        stream: the stream that answered; empty if none did.
        sequence: the sequence of the stored message.
        err_code: the server's code, 0 without one.
        description: the server's own words.
    """

    kind: Literal["stored", "duplicate", "later", "refused"]
    stream: str = ""
    sequence: int = 0
    err_code: int = 0
    description: str = ""

    @classmethod
    def of(cls, answer: Delivered | None) -> PubAck:
        """Read an answer to a request of `RawRequests`; None means `later`."""
        return cls.parse(answer[2], answer[3]) if answer is not None else cls.parse(b"NATS/1.0 503\r\n\r\n", b"")

    @classmethod
    def parse(cls, block: bytes, payload: bytes) -> PubAck:
        """Read an answer; a status without a body (such as 503, no responders) means `later`."""
        if not payload:
            status = block[9:12].decode("ascii", "replace")
            return cls("later", description=f"no stream answers ({status})" if status else "an empty answer")
        try:
            answer = json.loads(payload)
            error = answer.get("error")
            stream, sequence = str(answer.get("stream", "")), int(answer.get("seq", 0))
            code, err_code = (int(error.get("code", 0)), int(error.get("err_code", 0))) if error else (0, 0)
        except (ValueError, AttributeError, TypeError, OverflowError, RecursionError):
            return _strange(payload)
        if error:
            passing = class_of(err_code) == "passing" if err_code else code == 503
            return cls("later" if passing else "refused", stream, 0, err_code, str(error.get("description", "")))
        if not stream or sequence < 0:
            return _strange(payload)  # any client can subscribe to the subject and answer
        if answer.get("duplicate"):
            # An id that was recorded without its message, which a change of leaders can cause, has no sequence.
            return cls("duplicate", stream, sequence) if sequence else cls("later", stream, description="id pending")
        return cls("stored", stream, sequence) if sequence else _strange(payload)

    @property
    def leaves_open(self) -> bool:
        """Whether the message may be stored all the same: its id is pending, or no stream has answered."""
        return self.err_code == _ID_PENDING or (not self.err_code and self.kind in ("later", "refused"))

    @property
    def overtaken(self) -> bool:
        """Whether a message was stored after the one that the publisher expected to be the last."""
        return self.err_code in _WRONG_LAST_SEQUENCE

    @property
    def last_sequence(self) -> int | None:
        """The stream's last sequence, which it reports when it refuses an expected one."""
        if not self.overtaken:
            return None
        number = self.description.rpartition(":")[2].strip()
        return int(number) if number.isdigit() else None


@dataclass(slots=True)
class StoredAnswer:
    """The form of a "stored" answer, which differs between servers. Learned from the first one.

    Attributes:
        beginning: how it begins, up to the sequence.
        repeated: matches any number of such answers, joined.
    """

    beginning: bytes = b"\0"
    repeated: re.Pattern[bytes] = field(default_factory=lambda: re.compile(b"\0"))

    def learn(self, answer: bytes) -> None:
        """Learn from a "stored" answer."""
        beginning = answer[: answer.rindex(b":") + 1]
        if beginning != self.beginning:
            self.beginning, self.repeated = beginning, re.compile(b"(?:%b[0-9]+})*" % re.escape(beginning))


def _strange(payload: bytes) -> PubAck:
    return PubAck("refused", description=f"not a stream's answer: {payload[:100]!r}")
