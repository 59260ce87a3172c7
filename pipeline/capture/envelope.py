"""What the JSON files of a capture have in common: each names its format and its version."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from nats_bridge.pipeline.errors import PipelineError

VERSION: Final = 1


def enclosed(kind: str, members: Mapping[str, Any]) -> str:
    """A file's text.

    Args:
        kind: the format's name.
        members: what the file holds.
    """
    return json.dumps({"format": kind, "version": VERSION, **members}, indent=1) + "\n"


@contextmanager
def opened(text: str, place: str, kind: str, what: str) -> Iterator[dict[str, Any]]:
    """Read a file; within the block, whatever fails because of a member says that the file is another one.

    Args:
        text: of the file.
        place: the file, for messages.
        kind: the format's name.
        what: what the file should be, for messages.

    Raises:
        PipelineError: it is none, or of a newer version.
    """
    try:
        members = json.loads(text)
        is_one, version = members.pop("format") == kind, members.pop("version")
        if is_one and version == VERSION:
            yield members
            return
    except (ValueError, KeyError, AttributeError, TypeError):
        is_one = False
    if is_one:
        raise PipelineError(f"{place}: version {version} of the format; this nats-bridge knows version {VERSION}")
    raise PipelineError(f"{place}: not {what}")
