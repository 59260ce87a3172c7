"""Fields of rules that can be written in several ways: the start of a rule, and the policy for rejected messages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import PlainValidator, WithJsonSchema

from nats_bridge.settings.base import refused
from nats_transforms.reserved import is_reserved
from nats_transforms.subject import is_valid_publish

_START_SHAPE: Final = 'write new, first, {sequence: 17} or {time: "2026-01-01T00:00:00Z"}'
_RFC3339: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)")
_MAX_SEQUENCE: Final = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Start:
    """The start of a rule without a position.

    Attributes:
        policy: `new` (messages stored from now on), `first` (the oldest that exists), `sequence` or `time`.
        sequence: the first stream sequence wanted; only with policy `sequence`.
        time: RFC 3339 text of the earliest time wanted; only with policy `time`.
    """

    policy: Literal["new", "first", "sequence", "time"] = "new"
    sequence: int | None = None
    time: str | None = None

    @classmethod
    def parse(cls, value: Any) -> Start:
        """Read the configuration's value. A `Start` is returned as it is.

        Raises:
            PydanticCustomError: the value has none of the forms.
        """
        match value:
            case Start():
                return value
            case "new":
                return cls("new")
            case "first":
                return cls("first")
            case {"sequence": sequence, **rest} if not rest:
                return cls("sequence", sequence=_sequence(sequence))
            case {"time": time, **rest} if not rest:
                return cls("time", time=_time(time))
            case dict():
                keys = ", ".join(f"'{key}'" for key in value) or "{}"
                raise refused(f"needs either sequence or time, not {keys}; {_START_SHAPE}")
            case _:
                raise refused(f"unknown start {value!r}; {_START_SHAPE}")


def _sequence(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MAX_SEQUENCE:
        raise refused(f"sequence {value!r}: must be an integer, at least 1")
    return value


def _time(value: Any) -> str:
    wrong = refused(f'time {value!r}: must be a time with zone, like "2026-01-01T00:00:00Z"')
    if not isinstance(value, str) or not _RFC3339.fullmatch(value):
        raise wrong
    try:
        # fromisoformat checks the calendar, but accepts only six digits of a second, where the server has nine.
        datetime.fromisoformat(re.sub(r"\.\d+", "", value))
    except ValueError:
        raise wrong from None
    return value


def _one_key(key: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    # The JSON schema of a mapping with this key alone.
    properties = {key: {**schema, "description": description}}
    return {"type": "object", "properties": properties, "required": [key], "additionalProperties": False}


_SEQUENCE_SCHEMA: Final = {"type": "integer", "minimum": 1}
_TIME_SCHEMA: Final = {"type": "string", "format": "date-time"}
_START_SCHEMAS: Final = [
    {"enum": ["new", "first"]},
    _one_key("sequence", _SEQUENCE_SCHEMA, "the first sequence wanted"),
    _one_key("time", _TIME_SCHEMA, "the earliest time wanted, with its zone"),
]

StartField = Annotated[Start, PlainValidator(Start.parse), WithJsonSchema({"anyOf": _START_SCHEMAS, "default": "new"})]
"""`Start` as a field of a rule."""

StartSequence = Annotated[int, PlainValidator(_sequence), WithJsonSchema(_SEQUENCE_SCHEMA)]
"""A stream sequence to begin with."""

StartTime = Annotated[str, PlainValidator(_time), WithJsonSchema(_TIME_SCHEMA)]
"""A time to begin at, RFC 3339 with up to nine digits of a second."""


_REJECTED_SHAPE: Final = 'write stop, or {skip: "a.dead.letter.subject"}'


@dataclass(frozen=True, slots=True)
class OnRejected:
    """Stop the rule, or skip the message.

    Attributes:
        skip: the subject for skipped messages; None to stop.
    """

    skip: str | None = None

    @classmethod
    def parse(cls, value: Any) -> OnRejected:
        """Read the configuration's value. An `OnRejected` is returned as it is.

        Raises:
            PydanticCustomError: the value has none of the forms.
        """
        match value:
            case OnRejected():
                return value
            case "stop":
                return cls()
            case {"skip": str(subject), **rest} if not rest:
                if not is_valid_publish(subject.encode()):
                    raise refused(f"skip {subject!r}: must be a subject that can be published to, without wildcards")
                if is_reserved(subject.encode()):
                    raise refused(f"skip {subject!r}: is a command to the server; use a different subject")
                return cls(subject)
            case _:
                raise refused(f"unknown policy {value!r}; {_REJECTED_SHAPE}")


_REJECTED_SCHEMAS: Final = [
    {"const": "stop"},
    _one_key("skip", {"type": "string"}, "a subject to publish such messages to; no wildcards"),
]

OnRejectedField = Annotated[
    OnRejected, PlainValidator(OnRejected.parse), WithJsonSchema({"anyOf": _REJECTED_SCHEMAS, "default": "stop"})
]
"""`OnRejected` as a field of a rule."""
