"""The shop of the page on stalled mirrors: its orders, and an archive with room for ten of them."""

import asyncio
import sys

import nats
from nats.js.api import DiscardPolicy, StreamConfig, StreamSource


async def main(step: str) -> None:
    """Do one step of the page."""
    connection = await nats.connect("nats://127.0.0.1:4222")
    jetstream = connection.jetstream(timeout=60)
    copies = StreamConfig(name="ARCHIVE", sources=[StreamSource(name="ORDERS")], max_msgs=10, discard=DiscardPolicy.NEW)
    if step == "open":
        await jetstream.add_stream(name="ORDERS", subjects=["orders.>"])
        await jetstream.add_stream(copies)
    for number in range(10 if step == "open" else 5):
        await jetstream.publish(f"orders.eu.{number}", b"3 pears")
    await connection.close()


asyncio.run(main(sys.argv[1]))
