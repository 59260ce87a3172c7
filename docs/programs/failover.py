"""The shop of the page on failing over: its orders and their workers, and the loss of the stream."""

import asyncio
import sys

import nats


async def main(step: str) -> None:
    """Do one step of the page."""
    connection = await nats.connect("nats://127.0.0.1:4222")
    jetstream = connection.jetstream(timeout=60)
    if step == "open":
        await jetstream.add_stream(name="ORDERS", subjects=["orders.>"])
        await jetstream.add_stream(name="COPY", subjects=["copy.>"])
        for number in range(1, 9):
            await jetstream.publish(f"orders.{'eu' if number % 2 else 'us'}.{number}", b"3 pears")
        workers = await jetstream.pull_subscribe("orders.eu.*", durable="workers", stream="ORDERS")
        for number, message in enumerate(await workers.fetch(3)):
            if number != 1:
                await message.ack_sync()
    else:
        await jetstream.delete_stream("ORDERS")
    await connection.close()


asyncio.run(main(sys.argv[1]))
