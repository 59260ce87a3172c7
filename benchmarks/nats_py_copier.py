"""The comparison: republishing and copying with nats-py, as its documentation shows.

`python -m benchmarks.nats_py_copier URL WAY`, where WAY is one of

- `ordered`: `subscribe` with a callback and an ordered consumer. Nothing is acknowledged: at most once.

This republishes to `bridge.bench.>`. The others copy into the stream COPY, each message with an id:

- `pipelined`: `subscribe` with a callback and an ordered consumer, `publish_async`; the answers are ignored.
- `one-at-a-time`: `subscribe` with a durable consumer, `publish`, which waits for the answer, `ack`.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import nats

if TYPE_CHECKING:
    from nats.aio.msg import Msg


async def copy(url: str, way: str) -> None:
    """Republish or copy the stream BENCH, until the process is ended."""
    connection = await nats.connect(url)
    # As many answers may be missing as a stream from 2.11 on takes into its queue.
    stream = connection.jetstream(publish_async_max_pending=8000)
    last: dict[str, int] = {}

    async def republish(message: Msg) -> None:
        metadata = message.metadata
        headers = dict(message.headers or {})
        headers["Nats-Stream"] = metadata.stream
        headers["Nats-Subject"] = message.subject
        headers["Nats-Sequence"] = str(metadata.sequence.stream)
        headers["Nats-Time-Stamp"] = metadata.timestamp.isoformat()
        headers["Nats-Last-Sequence"] = str(last.get(message.subject, 0))
        last[message.subject] = metadata.sequence.stream
        await connection.publish("bridge." + message.subject, message.data, headers=headers)

    def copied(message: Msg) -> dict[str, Any]:
        metadata = message.metadata
        headers = dict(message.headers or {})
        headers["Nats-Msg-Id"] = f"copy-{metadata.sequence.stream}"
        headers["Copied-From"] = f"{metadata.stream} {metadata.sequence.stream}"
        return {"subject": "copy." + message.subject[6:], "payload": message.data, "headers": headers}

    async def copy_on(message: Msg) -> None:
        await stream.publish_async(**copied(message))

    async def copy_one(message: Msg) -> None:
        await stream.publish(**copied(message))
        await message.ack()

    if way == "pipelined":
        _say_ready()
        await stream.subscribe("bench.>", stream="BENCH", cb=copy_on, ordered_consumer=True)
    elif way == "one-at-a-time":
        _say_ready()
        await stream.subscribe("bench.>", stream="BENCH", cb=copy_one, durable="copier", manual_ack=True)
    else:
        await stream.subscribe("bench.>", stream="BENCH", cb=republish, ordered_consumer=True)
        _say_ready()
    await asyncio.Event().wait()


def _say_ready() -> None:
    sys.stderr.write("copier ready\n")
    sys.stderr.flush()


if __name__ == "__main__":
    asyncio.run(copy(sys.argv[1], sys.argv[2]))
