"""The comparison: republishing with nats-py, written as its documentation shows a pull consumer and headers."""

from __future__ import annotations

import asyncio
import sys

import nats


async def copy(url: str) -> None:
    """Copy the stream BENCH to `bridge.bench.>` with the headers that republish adds, until the process is ended."""
    connection = await nats.connect(url)
    stream = connection.jetstream()
    subscription = await stream.pull_subscribe("bench.>", durable="copier", stream="BENCH")
    last: dict[str, int] = {}
    sys.stderr.write("copier ready\n")
    sys.stderr.flush()
    while True:
        try:
            messages = await subscription.fetch(500, timeout=1)
        except nats.errors.TimeoutError:
            continue
        for message in messages:
            metadata = message.metadata
            headers = dict(message.headers or {})
            headers["Nats-Stream"] = metadata.stream
            headers["Nats-Subject"] = message.subject
            headers["Nats-Sequence"] = str(metadata.sequence.stream)
            headers["Nats-Time-Stamp"] = metadata.timestamp.isoformat()
            headers["Nats-Last-Sequence"] = str(last.get(message.subject, 0))
            last[message.subject] = metadata.sequence.stream
            await connection.publish("bridge." + message.subject, message.data, headers=headers)
            await message.ack()


if __name__ == "__main__":
    asyncio.run(copy(sys.argv[1]))
