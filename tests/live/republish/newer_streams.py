"""Streams with what 2.11 to 2.15 added, and messages that use it."""

from __future__ import annotations

from typing import Any

from nats_transforms.dialect import server_dialect
from tests.live.raw_messages import RawPeer
from tests.live.until import until

MINUTE = 60_000_000_000


async def of_ttls(peer: RawPeer, name: str, version: str) -> int:
    """A message with a TTL, one that expires, and the marker that it leaves."""
    await peer.store(f"{name}.kept".encode(), b"1", b"NATS/1.0\r\nNats-TTL: 1h\r\n\r\n")
    await peer.store(f"{name}.gone".encode(), b"2", b"NATS/1.0\r\nNats-TTL: 1s\r\n\r\n")
    return 3


async def of_counters(peer: RawPeer, name: str, version: str) -> int:
    """Two counters, one of them by an atomic batch."""
    for increment in (b"+5", b"-7"):
        await peer.store(f"{name}.a".encode(), b"", b"NATS/1.0\r\nNats-Incr: %b\r\n\r\n" % increment)
    batch = b"NATS/1.0\r\nNats-Incr: 1\r\nNats-Batch-Id: b\r\nNats-Batch-Sequence: %d\r\n%b\r\n"
    peer.publish(f"{name}.b".encode(), b"", batch % (1, b""))
    await peer.store(f"{name}.b".encode(), b"", batch % (2, b"Nats-Batch-Commit: 1\r\n"))
    return 4


async def of_schedules(peer: RawPeer, name: str, version: str) -> int:
    """A schedule that waits, one that is due, and what that one fires."""
    for when, subject in (("2099-01-01T00:00:00Z", "later"), ("2020-01-01T00:00:00Z", "now")):
        lines = f"NATS/1.0\r\nNats-Schedule: @at {when}\r\nNats-Schedule-Target: {name}.due\r\nA: 1\r\n\r\n"
        answer = await peer.store(f"{name}.{subject}".encode(), b"x", lines.encode())
        assert "error" not in answer, answer
    return 3


async def of_fast_batches(peer: RawPeer, name: str, version: str) -> int:
    """Three messages of a fast batch, which servers before 2.14 take for ordinary ones."""
    for number, operation in ((1, 0), (2, 1), (3, 2)):
        peer.publish(
            f"{name}.a".encode(), b"%d" % number, reply=f"{name}-answers.b.10.fail.{number}.{operation}.$FI".encode()
        )
    return 3


async def of_plain(peer: RawPeer, name: str, version: str) -> int:
    """Three ordinary messages."""
    for number in range(3):
        await peer.store(f"{name}.a".encode(), b"%d" % number)
    return 3


MIXES: dict[str, tuple[Any, dict[str, Any]]] = {
    "ttls": (
        of_ttls,
        {
            "allow_msg_ttl": True,
            "allow_rollup_hdrs": True,
            "max_msgs_per_subject": 1,
            "subject_delete_marker_ttl": MINUTE,
        },
    ),
    "counters": (of_counters, {"allow_msg_counter": True, "allow_atomic": True}),
    "schedules": (of_schedules, {"allow_msg_schedules": True}),
    "fast batches": (of_fast_batches, {"allow_batched": True}),
    "asynchronous persistence": (of_plain, {"persist_mode": "async", "storage": "file"}),
}


def config_of(mix: str, version: str) -> dict[str, Any]:
    """What a stream of a mix has; a server that does not know fast batches takes their messages for ordinary ones."""
    config = MIXES[mix][1]
    return {} if "allow_batched" in config and not server_dialect(version).stream_fields_of_2_14 else config


async def filled(peer: RawPeer, name: str, mix: str, version: str) -> int:
    """Create a stream of a mix, store its messages, and wait for those that the server adds; the last sequence."""
    await peer.create_stream(name=name, subjects=[f"{name}.>"], **config_of(mix, version))
    count: int = await MIXES[mix][0](peer, name, version)

    async def there() -> bool:
        return int((await peer.api(f"STREAM.INFO.{name}"))["state"]["last_seq"]) >= count

    await until(there)
    return count
