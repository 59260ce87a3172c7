"""Captures all streams of an account, each into a directory with its name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from nats_bridge.client.jetstream_api import Json
from nats_bridge.observability.printable import printable
from nats_bridge.settings import Connection
from nats_bridge_spark.capture.capturing import CaptureRequest, CaptureResult, capture
from nats_bridge_spark.capture.folder import capture_in
from nats_bridge_spark.capture.place import place_of
from nats_bridge_spark.capture.saved_stream import SAVED, saved_stream
from nats_bridge_spark.connections import connected
from nats_bridge_spark.engine import Size
from nats_bridge_spark.errors import JobStoppedError, UnreachableError
from nats_bridge_spark.failures import failure
from nats_bridge_spark.progress import watched
from nats_bridge_spark.source.loop_thread import LoopThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(slots=True)
class Results:
    """The result of one run.

    Attributes:
        configured: the streams of which only the configuration was captured, because their consumers decide which
            messages they keep, each with the number of its messages.
    """

    directory: str
    captured: list[CaptureResult] = field(default_factory=list)
    configured: list[tuple[str, int]] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain data for JSON."""
        return {
            "streams": [each.to_json() for each in self.captured],
            "configured": [{"stream": name, "messages_not_captured": messages} for name, messages in self.configured],
            "failed": [{"stream": name, "error": said} for name, said in self.failed],
        }

    def lines(self) -> Iterator[str]:
        """Yield the result as lines of text, without the streams that failed."""
        yield from (each.line() for each in self.captured)
        for name, messages in self.configured:
            yield (
                f"{self.directory}/{printable(name)}: no message captured of {messages:,}, only the configuration: its"
                " messages are for its consumers"
            )


@dataclass(frozen=True, slots=True)
class AccountStreams:
    """The streams of an account at one moment.

    Attributes:
        streams: their names in order, each with the number of messages that must not be captured; None if all may be.
    """

    streams: tuple[tuple[str, int | None], ...]
    silent: tuple[str, ...]
    size: Size

    @classmethod
    async def of(cls, connection: Connection) -> AccountStreams:
        """Ask for them."""
        async with connected(connection) as opened:
            listed, silent = await opened.api.streams()
        streams = {info["config"]["name"]: _withheld(info) for info in listed}
        sizes = [(int(info["state"]["messages"]), int(info["state"]["bytes"])) for info in listed]
        size = sum(messages for messages, _ in sizes), sum(held for _, held in sizes)
        return cls(tuple(sorted(streams.items())), tuple(sorted(silent)), size)

    def captured(self, spark: SparkSession | None, wanted: CaptureRequest) -> Results:
        """Capture all. An error with one stream does not affect the others.

        Raises:
            JobStoppedError: a signal came.
            UnreachableError: the server is away.
        """
        results = Results(wanted.directory, failed=[(name, "it did not answer") for name in self.silent])
        for name, withheld in self.streams:
            one = replace(wanted, stream=name, directory=f"{wanted.directory.rstrip('/')}/{name}")
            try:
                if withheld is None:
                    job = f"capture {name}"
                    with watched(spark, job) as progress:
                        results.captured.append(capture(spark, one, progress))
                else:
                    _configuration(spark, one)
                    results.configured.append((name, withheld))
            except (JobStoppedError, UnreachableError):
                raise
            except Exception as error:
                said = failure(f"capture {name}", error)
                if said.exit_code == UnreachableError.exit_code:
                    raise
                results.failed.append((name, str(said)))
        return results


def _withheld(info: Json) -> int | None:
    return None if info["config"].get("retention", "limits") == "limits" else int(info["state"]["messages"])


def _configuration(spark: SparkSession | None, wanted: CaptureRequest) -> None:
    """Save the configuration alone: reading the messages could take them from those that they are for."""
    with LoopThread() as loop:
        saved = loop.run(saved_stream(wanted.connection, wanted.stream))
    place = place_of(spark, wanted.directory)
    place.make()
    held = capture_in(place)  # of a time when it was another stream
    place.replace(SAVED, replace(saved, extent=held.extent if held else None).to_json())
