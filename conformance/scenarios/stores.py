"""What a server has written to its store: a crash loses what is only in its memory."""

from __future__ import annotations

from nats_bridge.conformance.scenarios.waiting import until
from nats_bridge.native_servers import NativeServer


async def on_disk(server: NativeServer, payload: bytes, *, times: int = 1) -> None:
    """Wait until a payload is in the files of a server's streams, so many times.

    A server answers a publisher before the block is written; no version reports when it is.
    """

    def written() -> bool:
        blocks = server.store_dir.rglob("*.blk")
        return sum(block.read_bytes().count(payload) for block in blocks) >= times

    await until(written, f"{payload!r} in the files of the store")
