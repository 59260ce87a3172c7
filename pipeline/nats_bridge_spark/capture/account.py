"""Captures all streams of an account, each into a directory with its name."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Self

from pyspark.sql import SparkSession

from nats_bridge.client.jetstream_api import Json
from nats_bridge.observability.printable import printable
from nats_bridge.settings import Connection
from nats_bridge_spark.capture.capturing import CaptureRequest, CaptureResult, capture, saved_stream
from nats_bridge_spark.capture.folder import SAVED, capture_in
from nats_bridge_spark.capture.place import place_of
from nats_bridge_spark.connections import connected
from nats_bridge_spark.errors import JobStoppedError, UnreachableError
from nats_bridge_spark.failures import failure
from nats_bridge_spark.progress import watched
from nats_bridge_spark.reports import as_json
from nats_bridge_spark.session import Size
from nats_bridge_spark.source.loop_thread import LoopThread


@dataclass(slots=True)
class AccountCapture:
    """A capture of the streams that an account has at one moment, and its results.

    Attributes:
        streams: what the server reports of them, in the order of their names.
        configured: the streams of which only the configuration was captured, because their consumers decide which
            messages they keep, each with the number of its messages.
        failed: the streams that were not captured, each with the reason.
    """

    directory: str
    streams: list[Json]
    failed: list[tuple[str, str]]
    captured: list[CaptureResult] = field(default_factory=list)
    configured: list[tuple[str, int]] = field(default_factory=list)

    @classmethod
    async def of(cls, connection: Connection, directory: str) -> Self:
        """Ask for the streams."""
        async with connected(connection) as opened:
            listed, silent = await opened.api.streams()
        infos = {str(info["config"]["name"]): info for info in listed}  # a list may have one twice
        failed = [(name, "it did not answer") for name in sorted(silent)]
        return cls(directory.rstrip("/"), [infos[name] for name in sorted(infos)], failed)

    @property
    def size(self) -> Size:
        """The messages of the streams, and their bytes."""
        states = [info["state"] for info in self.streams]
        return sum(int(state["messages"]) for state in states), sum(int(state["bytes"]) for state in states)

    def run(self, spark: SparkSession | None, wanted: CaptureRequest) -> None:
        """Capture all. An error with one stream does not affect the others.

        Raises:
            JobStoppedError: a signal came.
            UnreachableError: the server is away.
        """
        for info in self.streams:
            name = str(info["config"]["name"])
            one, job = replace(wanted, stream=name, directory=f"{self.directory}/{name}"), f"capture {name}"
            try:
                if info["config"].get("retention", "limits") == "limits":
                    with watched(spark, job) as progress:
                        self.captured.append(capture(spark, one, progress))
                else:
                    _configuration(one)
                    self.configured.append((name, int(info["state"]["messages"])))
            except Exception as error:
                said = failure(job, error)
                if isinstance(said, JobStoppedError) or said.exit_code == UnreachableError.exit_code:
                    raise
                self.failed.append((name, str(said)))

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain data for JSON."""
        return {
            "streams": list(map(as_json, self.captured)),
            "configured": [{"stream": name, "messages_not_captured": messages} for name, messages in self.configured],
            "failed": [{"stream": name, "error": said} for name, said in self.failed],
        }

    def lines(self) -> Iterator[str]:
        """Yield the result as lines of text, without the streams that failed."""
        yield from (line for each in self.captured for line in each.lines())
        for name, messages in self.configured:
            yield (
                f"{self.directory}/{printable(name)}: no message captured of {messages:,}, only the configuration: its"
                " messages are for its consumers"
            )


def _configuration(wanted: CaptureRequest) -> None:
    """Save the configuration alone: reading the messages could take them from those that they are for."""
    with LoopThread() as loop:
        saved = loop.run(saved_stream(wanted.connection, wanted.stream))
    place = place_of(wanted.directory)
    place.make()
    held = capture_in(place)  # of a time when it was another stream
    place.replace(SAVED, replace(saved, extent=held.extent if held else None).to_json())
