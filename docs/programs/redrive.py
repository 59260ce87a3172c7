"""The shop of the page on redriving: its orders, a worker that gives up, and the same worker later."""

import asyncio
import sys

import nats


async def main(step: str) -> None:
    """Do one step of the page."""
    connection = await nats.connect("nats://127.0.0.1:4222")
    jetstream = connection.jetstream(timeout=60)
    if step == "open":
        await jetstream.add_stream(name="ORDERS", subjects=["orders.>"])
        await jetstream.add_stream(name="DLQ", subjects=["dlq.>"])
        for number in range(1, 5):
            await jetstream.publish(f"orders.eu.{number}", b"3 pears", headers={"Customer": str(number)})
    elif step == "work":
        # The customers' database is away: the worker gives up all but the first.
        workers = await jetstream.pull_subscribe("orders.>", durable="workers")
        for number, message in enumerate(await workers.fetch(4)):
            await (message.term() if number else message.ack())
        while (await jetstream.stream_info("DLQ")).state.messages < 3:
            await asyncio.sleep(0.05)
    else:
        workers = await jetstream.pull_subscribe("orders.>", durable="workers")
        for message in await workers.fetch(3):
            print(message.subject, (message.headers or {})["Customer"], f"message {message.metadata.sequence.stream}")
            await message.ack()
    await connection.close()


asyncio.run(main(sys.argv[1]))
