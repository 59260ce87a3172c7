"""The base of all parts of the configuration: frozen, unknown keys are errors, no coercion."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Final, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict
from pydantic_core import PydanticCustomError

MAX_NAME_LENGTH = 64
_MAX_STREAM_LENGTH = 255
_HEADER_NAME: Final = "^[!-9;-~]+$"
"""Printable, no colon, no white space."""


@dataclass(frozen=True, slots=True)
class Hint:
    """Metadata of a field: what to write if the field is missing, or a list without entries."""

    text: str


@dataclass(frozen=True, slots=True)
class InsteadOf:
    """Metadata of a field that takes a file's path: keys into which people write the secret itself."""

    keys: tuple[str, ...]


class Part(BaseModel):
    """A mapping of the configuration.

    Attributes:
        misplaced: the error text for keys that belong elsewhere, by key.
    """

    misplaced: ClassVar[Mapping[str, str]] = {}

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=False,
        hide_input_in_errors=True,
        # Validators are built on first use: once for the whole configuration, instead of for each part on import.
        defer_build=True,
    )


def refused(reason: str) -> PydanticCustomError:
    """Return the error of a value, with the reason and a correct alternative."""
    return PydanticCustomError("refused", "{reason}", {"reason": reason})


def _flag(value: Any) -> Any:
    """Environment variables are strings. Only `true` and `false` are accepted in them, as in the file."""
    match value:
        case bool():
            return value
        case "true" | "True" | "TRUE":
            return True
        case "false" | "False" | "FALSE":
            return False
        case _:
            raise PydanticCustomError("flag", "must be true or false")


def _durable_name(value: str) -> str:
    # Both the sidecar's and a rule's name are parts of durable consumers' names and of metrics' labels.
    if len(value) > MAX_NAME_LENGTH or not re.fullmatch(r"[A-Za-z0-9_-]+", value):
        rule = f"use letters, digits, '-' and '_', at most {MAX_NAME_LENGTH}"
        raise refused(f"'{value}' cannot be part of a consumer's name; {rule}")
    return value


def _name_without(forbidden: str, value: str) -> str:
    # The server's own rule for stream names, same in all versions.
    bad = next((c for c in value if c in forbidden or c.isspace() or not c.isprintable()), None)
    if not value or bad is not None or len(value.encode()) > _MAX_STREAM_LENGTH:
        held = "must not be empty" if not value else f"must not contain {bad!r}"
        reason = held if bad is not None or not value else f"must not have more than {_MAX_STREAM_LENGTH} bytes"
        raise refused(f"'{value}' cannot be a stream's name: {reason}")
    return value


def _bucket_name(value: str) -> str:
    # The bucket names that all clients accept.
    if not re.fullmatch(r"[A-Za-z0-9_-]+", value) or len(value) > _MAX_STREAM_LENGTH - len("KV_"):
        raise refused(f"'{value}' cannot be a bucket's name; use letters, digits, '-' and '_'")
    return value


def header_name(value: str) -> str:
    """Validate the name of a header.

    Raises:
        PydanticCustomError: it is none.
    """
    if not re.fullmatch(_HEADER_NAME, value):
        raise refused(f"'{value}' is not the name of a header; it must not contain a colon or white space")
    return value


Flag = Annotated[bool, BeforeValidator(_flag)]
"""true or false, and no other value."""

HeaderName = Annotated[str, AfterValidator(header_name)]
"""The name of a header."""

DurableName = Annotated[str, AfterValidator(_durable_name)]
"""A part of a durable consumer's name."""

StreamName = Annotated[str, AfterValidator(partial(_name_without, ".*>/\\"))]
"""A name that the server accepts for a stream."""

StreamPattern = Annotated[str, AfterValidator(partial(_name_without, ".>/\\"))]
"""The name of a stream, with `*` for any characters."""

BucketName = Annotated[str, AfterValidator(_bucket_name)]
"""A name that clients accept for a key-value bucket."""

Subject: TypeAlias = str
"""A subject, possibly with wildcards; the checks validate it."""


def kept_subject(source: str) -> str:
    """Return the destination that keeps every subject that a source matches: its wildcards by their numbers."""
    count = 0
    tokens = []
    for token in source.split("."):
        count += token == "*"
        tokens.append(f"{{{{wildcard({count})}}}}" if token == "*" else token)
    return ".".join(tokens)
