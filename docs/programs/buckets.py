"""The two buckets of the page on comparisons, which differ in three keys."""

import asyncio

import nats


async def main() -> None:
    """Create and fill both."""
    connection = await nats.connect("nats://127.0.0.1:4222")
    jetstream = connection.jetstream(timeout=60)
    eu = await jetstream.create_key_value(bucket="EU")
    us = await jetstream.create_key_value(bucket="US")
    for number in range(100):
        await eu.put(f"price.{number}", b"%d" % number)
        if number != 13:
            await us.put(f"price.{number}", b"%d" % (0 if number == 7 else number))
    await us.put("test", b"forgotten")
    await connection.close()


asyncio.run(main())
