"""An order a second into the stream ORDERS, and a line for each one that comes back on monitor.orders.>."""

import asyncio
import os
import signal

import nats
from nats.aio.msg import Msg


async def main() -> None:
    """Work until SIGTERM."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    connection = await nats.connect(os.environ["NATS_URL"], max_reconnect_attempts=-1)
    stream = connection.jetstream()
    await stream.add_stream(name="ORDERS", subjects=["orders.>"], max_age=3600)

    async def show(message: Msg) -> None:
        sequence = (message.headers or {}).get("Nats-Sequence", "?")
        print(f"{message.subject}: {message.data.decode()} (sequence {sequence})", flush=True)

    await connection.subscribe("monitor.orders.>", cb=show)
    orders = 0
    while not stopping.is_set():
        orders += 1
        await stream.publish(f"orders.eu.{orders}", b"an order")
        try:
            await asyncio.wait_for(stopping.wait(), 1)
        except TimeoutError:
            continue
    await connection.drain()


asyncio.run(main())
