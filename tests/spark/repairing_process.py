"""A repair of two streams without Spark, as a process that can be killed: `python -m tests.spark.repairing_process`.

It compares on its own, in Python: one stream lacks messages with ids, in the other some subjects lack their value, and
others have a wrong one. What is published, and how, is the repair's.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, aclosing

from nats_bridge.bridge.replication import AckReply, Connection, Replay, Target
from nats_bridge.bridge.settings import Connection as Settings
from nats_bridge.pipeline.connections import connected
from nats_bridge.pipeline.diff.comparing import Comparison
from nats_bridge.pipeline.diff.repair.applying import Applying
from nats_bridge.pipeline.diff.repair.copies import Copies
from nats_bridge.pipeline.diff.repair.steps import Step
from nats_bridge.pipeline.source.loop_thread import LoopThread
from tests.spark.histories import block


def message(stream: str, number: int, *, puts: bool) -> tuple[bytes, bytes, bytes]:
    """Subject, header block and payload that a stream should have."""
    if puts:
        return f"{stream}.{number}".encode(), block(b"A: 1"), b"right"
    return f"{stream}.a".encode(), block(b"Nats-Msg-Id: %d" % number, b"A: 1"), b"%d" % number


async def _held(connection: Connection, stream: str, last: int) -> dict[tuple[bytes, bytes], int]:
    """Sequences by subject and payload."""
    held: dict[tuple[bytes, bytes], int] = {}
    async with aclosing(Replay(connection.api, stream).between(1, last)) as batches:
        async for batch in batches:
            for subject, reply, _, payload in batch:
                held[subject, payload] = AckReply.parse(reply).stream_sequence
    return held


def _steps(stream: str, messages: int, held: dict[tuple[bytes, bytes], int], *, puts: bool) -> Iterator[Step]:
    for number in range(1, messages + 1):
        subject, lines, payload = message(stream, number, puts=puts)
        if (subject, payload) not in held:
            right = held.get((subject, b"wrong"), 0)
            yield Step("put" if puts else "append", "missing", "", number, right, subject, lines, payload)


def main(url: str, messages: int, *streams: str) -> None:
    """Repair both."""
    with LoopThread() as loop:
        stack = AsyncExitStack()
        connection = loop.run(stack.enter_async_context(connected(Settings.model_validate({"servers": [url]}))))
        for stream, by in zip(streams, ("id", "subject"), strict=True):
            info = loop.run(connection.api.stream_info(stream))
            held = loop.run(_held(connection, stream, info["state"]["last_seq"]))
            target = Target.of(info, connection.server_version)
            comparison = Comparison("subject", bridged=True) if by == "subject" else Comparison("id")
            copies = Copies(comparison, "LEFT", target, connection.client.max_payload)
            applying = Applying(connection, target, comparison.by)
            for name, step in enumerate(_steps(stream, messages, held, puts=by == "subject"), 1):
                made = copies.made(name, step)
                assert not isinstance(made, str), made
                loop.run(applying.do(step, made))
            loop.run(applying.finish())
            loop.run(applying.close())
            assert applying.applied.complete, applying.applied
        loop.run(stack.aclose())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
