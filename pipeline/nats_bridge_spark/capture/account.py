"""Captures all streams of an account, each into a directory with its name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

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


@dataclass(frozen=True, slots=True)
class AccountStreams:
    """The streams of an account at one moment, in the order of their names."""

    infos: list[Json]
    silent: list[str]

    @classmethod
    async def of(cls, connection: Connection) -> AccountStreams:
        """Ask for them."""
        async with connected(connection) as opened:
            listed, silent = await opened.api.streams()
        infos = {str(info["config"]["name"]): info for info in listed}  # a list may have one twice
        return cls([infos[name] for name in sorted(infos)], sorted(silent))

    @property
    def size(self) -> Size:
        """Their messages, and their bytes."""
        states = [info["state"] for info in self.infos]
        return sum(int(state["messages"]) for state in states), sum(int(state["bytes"]) for state in states)

    def captured(self, spark: SparkSession | None, wanted: CaptureRequest) -> Results:
        """Capture all. An error with one stream does not affect the others.

        Raises:
            JobStoppedError: a signal came.
            UnreachableError: the server is away.
        """
        directory = wanted.directory.rstrip("/")
        results = Results(directory, failed=[(name, "it did not answer") for name in self.silent])
        for info in self.infos:
            name = str(info["config"]["name"])
            one, job = replace(wanted, stream=name, directory=f"{directory}/{name}"), f"capture {name}"
            try:
                if info["config"].get("retention", "limits") == "limits":
                    with watched(spark, job) as progress:
                        results.captured.append(capture(spark, one, progress))
                else:
                    _configuration(one)
                    results.configured.append((name, int(info["state"]["messages"])))
            except (JobStoppedError, UnreachableError):
                raise
            except Exception as error:
                said = failure(job, error)
                if said.exit_code == UnreachableError.exit_code:
                    raise
                results.failed.append((name, str(said)))
        return results


def _configuration(wanted: CaptureRequest) -> None:
    """Save the configuration alone: reading the messages could take them from those that they are for."""
    with LoopThread() as loop:
        saved = loop.run(saved_stream(wanted.connection, wanted.stream))
    place = place_of(wanted.directory)
    place.make()
    held = capture_in(place)  # of a time when it was another stream
    place.replace(SAVED, replace(saved, extent=held.extent if held else None).to_json())
