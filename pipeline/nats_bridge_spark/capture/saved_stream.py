"""The configuration of a captured stream and its consumers, in the file `_stream.json` next to the messages.

Each run of a capture replaces it: it is what the stream was at the end of the newest run.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Final

from nats_bridge.client.jetstream_api import Json
from nats_bridge.errors import NotPermittedError
from nats_bridge.settings import Connection
from nats_bridge_spark.capture.envelope import enclosed, opened
from nats_bridge_spark.connections import connected
from nats_bridge_spark.source.stream_state import stream_info

SAVED: Final = "_stream.json"
FORMAT: Final = "nats-bridge stream"


@dataclass(frozen=True, slots=True)
class SavedConsumer:
    """A durable consumer.

    Attributes:
        name: its name.
        config: its configuration, as its server reports it.
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
class SavedStream:
    """A stream's configuration, and its durable consumers.

    Attributes:
        config: the configuration, as its server reports it.
        consumers: the durable ones; None where the user was not allowed to list them.
        server: the version of that server.
        saved: when it was asked, RFC 3339.
    """

    config: Json
    consumers: tuple[SavedConsumer, ...] | None
    server: str
    saved: str

    def __post_init__(self) -> None:
        if not self.config.get("name"):
            raise ValueError("a stream has a name")

    @property
    def name(self) -> str:
        """The stream's name."""
        return str(self.config["name"])

    def to_json(self) -> str:
        """The file's text."""
        return enclosed(FORMAT, asdict(self))

    @classmethod
    def of_json(cls, text: str, place: str) -> SavedStream:
        """Read the file.

        Args:
            text: of the file.
            place: the file, for messages.

        Raises:
            PipelineError: it is none, or of a newer version.
        """
        return opened(text, cls, place, FORMAT, "the configuration of a captured stream")


async def saved_stream(connection: Connection, stream: str) -> SavedStream:
    """Ask for a stream's configuration, and for its durable consumers.

    Raises:
        UnreachableError: no server answers.
        PipelineError: there is no such stream.
        ApiError: the server does not answer.
    """
    async with connected(connection) as opened:
        info = await stream_info(opened, stream)
        consumers: tuple[SavedConsumer, ...] | None
        try:
            listed = await opened.api.consumers(stream)
        except NotPermittedError:
            consumers = None
        else:
            consumers = tuple(SavedConsumer.of(each) for each in listed if each["config"].get("durable_name"))
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        return SavedStream(info["config"], consumers, opened.server_version, now)
