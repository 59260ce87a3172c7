"""A consumer is deleted, whatever happens in its folder."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nats_bridge.client.jetstream_api import JetStreamApi
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Servers

_DELETIONS = 100
"""About one of ten meets the fault on 2.10.27."""


@contextmanager
def _written_to(folder: Path) -> Iterator[None]:
    """Create files in a folder, one after the other, until it is deleted."""
    over = threading.Event()

    def write() -> None:
        number = 0
        while not over.is_set():
            try:
                (folder / f"file{number}").touch()
            except OSError:
                return
            number += 1

    writing = threading.Thread(target=write)
    writing.start()
    try:
        yield
    finally:
        over.set()
        writing.join()


async def test_whose_folder_is_written_to_at_that_moment(native_server: Servers, raw_peer: OpenPeer) -> None:
    """The server deletes it, and complains of a directory that is not empty (10051)."""
    server = native_server("2.10.27").start()
    peer = await raw_peer(server.url)
    await peer.create_stream(name="S", subjects=["s"])
    api = JetStreamApi(peer.client, "default")
    for number in range(_DELETIONS):
        name = f"c{number}"
        await api.create_durable("S", {"durable_name": name, "ack_policy": "explicit"})
        with _written_to(server.store_dir / "jetstream" / "$G" / "streams" / "S" / "obs" / name):
            assert await api.delete_consumer("S", name)
        assert await api.consumer_info("S", name) is None
