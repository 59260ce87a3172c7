"""Streams that remember no message ids any more: what comes late finds no help in their duplicate window."""

from __future__ import annotations

from tests.live.raw_messages import RawPeer
from tests.live.until import until

FORGETFUL = {"duplicate_window": 100_000_000}
"""Part of a stream's configuration: ids are remembered for a tenth of a second."""

PROBE = b"probe"
"""The payload of messages that are stored only to see whether ids are remembered."""


async def last_sequence(peer: RawPeer, stream: str) -> int:
    """A stream's last sequence."""
    return int((await peer.api(f"STREAM.INFO.{stream}"))["state"]["last_seq"])


async def forgotten(peer: RawPeer, stream: str) -> None:
    """Wait until the stream remembers no id of what it holds."""
    subject = f"{stream}.probe".encode()

    async def stores_a_probe() -> bool:
        answer = await peer.store(subject, PROBE, b"NATS/1.0\r\nNats-Msg-Id: probe\r\n\r\n")
        return not answer.get("duplicate")

    await stores_a_probe()
    await until(stores_a_probe)


async def until_forgotten(url: str, stream: str, messages: int) -> None:
    """The same for tasks of Spark: first wait until the stream has stored more than so many messages."""
    peer = await RawPeer.connect(url)

    async def has_more() -> bool:
        return await last_sequence(peer, stream) > messages

    try:
        await until(has_more)
        await forgotten(peer, stream)
    finally:
        await peer.close()
