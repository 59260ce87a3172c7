"""The account of the page on restores: orders, a consumer that has processed 400 of them, and a bucket."""

import asyncio
import sys

import nats
from nats.js import JetStreamContext


async def publish(jetstream: JetStreamContext) -> None:
    """Create the stream, its consumer and the bucket."""
    await jetstream.add_stream(name="ORDERS", subjects=["orders.>"])
    for number in range(1000):
        await jetstream.publish(f"orders.{'eu' if number % 4 else 'us'}.{number % 50}", b"order %d" % number)
    work = await jetstream.pull_subscribe("orders.>", durable="work")
    done = 0
    while done < 400:
        for message in await work.fetch(400 - done):
            await message.ack_sync()
            done += 1
    prices = await jetstream.create_key_value(bucket="PRICES")
    for number in range(100):
        await prices.put(f"p{number % 10}", b"%d" % number)
    await prices.delete("p1")


async def delete(jetstream: JetStreamContext) -> None:
    """Delete both streams."""
    for stream in ("ORDERS", "KV_PRICES"):
        await jetstream.delete_stream(stream)


async def look(jetstream: JetStreamContext) -> None:
    """Print the consumer's next message, and a revision of the bucket."""
    work = await jetstream.pull_subscribe_bind("work", "ORDERS")
    (message,) = await work.fetch(1)
    print(message.metadata.sequence.stream, message.data)
    entry = await (await jetstream.key_value("PRICES")).get("p3")
    print(entry.revision, entry.value)


async def main(step: str) -> None:
    """Do one step of the page."""
    connection = await nats.connect("nats://127.0.0.1:4222")
    await {"publish": publish, "delete": delete, "look": look}[step](connection.jetstream(timeout=60))
    await connection.close()


asyncio.run(main(sys.argv[1]))
