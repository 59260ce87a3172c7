"""What a rule does with a message that the target rejects permanently."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from nats_bridge.bridge.settings.text_patterns import PUBLISHABLE
from nats_bridge.transforms.subject import is_valid_publish

__all__ = ["OnRejected", "OnRejectedField"]

_SHAPE: Final = 'write stop, or {skip: "a.dead.letter.subject"}'


@dataclass(frozen=True, slots=True)
class OnRejected:
    """Stop the rule, or skip the message.

    Attributes:
        skip: where skipped messages are published; None to stop.
    """

    skip: str | None = None

    @classmethod
    def parse(cls, value: Any) -> OnRejected:
        """Read the configuration's value; an `OnRejected` passes.

        Raises:
            PydanticCustomError: the value is none of the forms.
        """
        match value:
            case OnRejected():
                return value
            case "stop":
                return cls()
            case {"skip": str(subject), **rest} if not rest:
                if not is_valid_publish(subject.encode()):
                    raise PydanticCustomError(
                        "on_rejected",
                        "skip {value}: must be a subject that can be published to, without wildcards",
                        {"value": repr(subject)},
                    )
                return cls(subject)
            case _:
                raise PydanticCustomError(
                    "on_rejected", "unknown policy {value}; {shape}", {"value": repr(value), "shape": _SHAPE}
                )


OnRejectedField = Annotated[
    OnRejected,
    PlainValidator(OnRejected.parse),
    WithJsonSchema(
        {
            "anyOf": [
                {"const": "stop"},
                {
                    "type": "object",
                    "properties": {
                        "skip": {
                            "type": "string",
                            "pattern": PUBLISHABLE,
                            "description": "a subject to publish such messages to; no wildcards",
                        }
                    },
                    "required": ["skip"],
                    "additionalProperties": False,
                },
            ],
            "default": "stop",
        }
    ),
]
"""`OnRejected` as a field of a rule."""
