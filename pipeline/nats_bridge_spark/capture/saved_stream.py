"""Reads and writes `_stream.json` of a capture: the stream's configuration, durable consumers, and extent of the
capture.

Each run of a capture replaces it, so it describes the stream at the end of the newest run.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Final

from pydantic import TypeAdapter

from nats_bridge.client.connection import Connection as OpenConnection
from nats_bridge.client.jetstream_api import STREAM_NOT_FOUND, Json
from nats_bridge.client.stream_identity import KnownStream, MessageStamp
from nats_bridge.errors import ApiError, NotPermittedError
from nats_bridge.settings import Connection
from nats_bridge_spark.connections import connected
from nats_bridge_spark.errors import PipelineError
from nats_bridge_spark.source.stream_state import stream_info

SAVED: Final = "_stream.json"
FORMAT: Final = "nats-bridge stream"
VERSION: Final = 2


@dataclass(frozen=True, slots=True)
class SavedConsumer:
    """A durable consumer.

    Attributes:
        acknowledged: the stream's sequence up to which everything was acknowledged; for a consumer without
            acknowledgements, up to which it was delivered.
    """

    name: str
    config: Json
    acknowledged: int

    @classmethod
    def of(cls, info: Json) -> SavedConsumer:
        """Read `CONSUMER.INFO`."""
        config = info["config"]
        reached = info["delivered" if config.get("ack_policy") == "none" else "ack_floor"]
        return cls(str(info["name"]), config, int(reached["stream_seq"]))


@dataclass(frozen=True, slots=True)
class CaptureExtent:
    """The part of a stream that a capture covers, in addition to the names of its chunks.

    Attributes:
        created: when the stream was created, as its server reported it first.
        seen: messages that identify the stream if its creation time changes.
        covered: the sequence after the newest chunk or gap when this was written.
        next: the capture resumes at least here, because there are no wanted messages from `covered` to here.
        gaps: ranges (first, last) of messages that were removed before they were captured, and that the user allows
            to be missing.
    """

    created: str
    subjects: tuple[str, ...]
    begin: int
    seen: tuple[MessageStamp, ...]
    covered: int
    next: int
    gaps: tuple[tuple[int, int], ...] = ()

    @property
    def known(self) -> KnownStream:
        """The facts that identify the stream."""
        return KnownStream(self.created, self.seen)


@dataclass(frozen=True, slots=True)
class SavedStream:
    """A stream's configuration, its durable consumers, and the extent of its capture.

    Attributes:
        consumers: the durable ones; None if the user may not list them.
        saved: the time of the requests, RFC 3339.
        extent: the extent of the capture; None if only the configuration was saved.
    """

    config: Json
    consumers: tuple[SavedConsumer, ...] | None
    server: str
    saved: str
    extent: CaptureExtent | None = None

    def __post_init__(self) -> None:
        if not self.config.get("name"):
            raise ValueError("a stream has a name")

    @property
    def name(self) -> str:
        """The stream's name."""
        return str(self.config["name"])

    def to_json(self) -> str:
        """Return the file's text."""
        return json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)}, indent=1) + "\n"

    @classmethod
    def of_json(cls, text: str, place: str) -> SavedStream:
        """Read the file.

        Raises:
            PipelineError: it is something else, or of another version.
        """
        try:
            members = json.loads(text)
            is_one, version = members["format"] == FORMAT, members["version"]
            if is_one and version == VERSION:
                return TypeAdapter(cls).validate_python(members)
        except (ValueError, KeyError, TypeError):
            is_one = False
        if is_one:
            raise PipelineError(
                f"{place}: version {version} of the format; this nats-bridge knows version {VERSION}: capture the"
                " stream into another directory"
            )
        raise PipelineError(f"{place}: not the configuration of a captured stream")


async def saved_stream(connection: Connection, stream: str) -> SavedStream:
    """Ask for a stream's configuration, and for its durable consumers.

    Raises:
        PipelineError: the stream does not exist.
    """
    async with connected(connection) as opened:
        while True:
            info = await stream_info(opened, stream)
            try:
                consumers = await _durable_consumers(opened, stream)
            except ApiError as error:
                if error.err_code != STREAM_NOT_FOUND:
                    raise
                continue  # it was deleted between the two requests, so the first one fails now, or names its successor
            now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
            return SavedStream(info["config"], consumers, opened.server_version, now)


async def _durable_consumers(opened: OpenConnection, stream: str) -> tuple[SavedConsumer, ...] | None:
    """Return the stream's durable consumers; None if the user may not list them."""
    try:
        listed = await opened.api.consumers(stream)
    except NotPermittedError:
        return None
    return tuple(SavedConsumer.of(each) for each in listed if each["config"].get("durable_name"))
