"""What the arms work on: a server with filled streams, and captures that Spark makes up."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from benchmarks.errors import BenchmarkError
from benchmarks.figures import Report
from benchmarks.load import SUBJECTS, publish_all
from benchmarks.raw_socket import RawSocket
from nats_conformance.native_servers import NativeServer, ServersError, fetch

SOURCE = "BENCH"
_LOOK = 0.5  # seconds
CONFIG = """\
connections:
  default: {{servers: ["{url}"]}}
dialect: native
rules:
  - name: bench
    kind: sources
    stream: COPY
    sources:
      - {{name: BENCH, subject_transforms: [{{src: "bench.*", dest: "copy.{{{{wildcard(1)}}}}"}}]}}
"""


class Scene:
    """A server of one version, with streams on disk.

    Args:
        server: running.
    """

    def __init__(self, server: NativeServer) -> None:
        self._server = server
        self._filled = 0

    @property
    def url(self) -> str:
        """The server's address."""
        return self._server.url

    def fill(self, messages: int) -> None:
        """Make the stream `BENCH` hold so many messages of 128 bytes with 1,000 subjects `bench.N`."""
        if self._filled == messages:
            return
        self.empty(SOURCE, "bench.>")
        publish_all(self._server.port, messages, SUBJECTS)
        self._filled = messages

    def remove(self, stream: str) -> None:
        """Delete a stream, if it exists."""
        with RawSocket(self._server.port) as connection:
            _remove(connection, stream)

    def empty(self, stream: str, subject: str) -> None:
        """Make a stream on disk that takes a subject and holds nothing."""
        make_empty(self.url, stream, subject)

    def mirror(self, stream: str) -> None:
        """Let the server mirror the filled stream on disk, and wait until the mirror holds it all."""
        config = {"name": stream, "storage": "file", "mirror": {"name": SOURCE}}
        with RawSocket(self._server.port) as connection:
            connection.request(f"$JS.API.STREAM.CREATE.{stream}", config)
        while self.holds(stream) < self._filled:
            time.sleep(_LOOK)

    def holds(self, stream: str) -> int:
        """How many messages a stream holds."""
        with RawSocket(self._server.port) as connection:
            return int(connection.request(f"$JS.API.STREAM.INFO.{stream}", {})["state"]["messages"])


def make_empty(url: str, stream: str, subject: str) -> None:
    """Create an empty stream on disk for a subject, without a duplicate window.

    Args:
        url: of the server on loopback.
        stream: its name; an existing one is deleted.
        subject: its subject.
    """
    with RawSocket(urlsplit(url).port or 4222) as connection:
        _remove(connection, stream)
        connection.request(
            f"$JS.API.STREAM.CREATE.{stream}", {"name": stream, "subjects": [subject], "storage": "file"}
        )


def _remove(connection: RawSocket, stream: str) -> None:
    if stream in (connection.request("$JS.API.STREAM.NAMES", {}).get("streams") or ()):
        connection.request(f"$JS.API.STREAM.DELETE.{stream}", {})


@contextmanager
def scene(version: str) -> Iterator[Scene]:
    """A server of this version on loopback, stopped and forgotten at the end."""
    with NativeServer(binary=fetch(version)) as server:
        yield Scene(server)


def reported_of(measured: Callable[[], Report]) -> int:
    """Measure and report; 0 when every target was reached, 1 when one was not, 2 when something was not measured."""
    try:
        found = measured()
    except (BenchmarkError, ServersError, OSError) as error:
        sys.stderr.write(f"benchmarks: {error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    print(f"\n{found}", flush=True)
    return 1 if any(ratio.reached is False for ratio in found.ratios) else 0
