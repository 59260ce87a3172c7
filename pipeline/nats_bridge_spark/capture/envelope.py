"""What the JSON files of a capture have in common: each names its format and its version."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter

from nats_bridge_spark.errors import PipelineError

VERSION: Final = 1

_Held = TypeVar("_Held")


def enclosed(kind: str, members: Mapping[str, Any]) -> str:
    """A file's text.

    Args:
        kind: the format's name.
        members: what the file holds.
    """
    return json.dumps({"format": kind, "version": VERSION, **members}, indent=1) + "\n"


def opened(text: str, held: type[_Held], place: str, kind: str, what: str) -> _Held:
    """Read a file.

    Args:
        text: of the file.
        held: a dataclass with its members.
        place: the file, for messages.
        kind: the format's name.
        what: what the file should be, for messages.

    Raises:
        PipelineError: it is none, or of a newer version.
    """
    try:
        members = json.loads(text)
        is_one, version = members["format"] == kind, members["version"]
        if is_one and version == VERSION:
            return TypeAdapter(held).validate_python(members)
    except (ValueError, KeyError, TypeError):
        is_one = False
    if is_one:
        raise PipelineError(f"{place}: version {version} of the format; this nats-bridge knows version {VERSION}")
    raise PipelineError(f"{place}: not {what}")
