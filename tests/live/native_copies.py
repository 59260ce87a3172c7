"""A stream on one server, a stream on another that copies it natively, and the rule of a sidecar between the two."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from nats_bridge.bridge.app.sidecar import Sidecar
from nats_bridge.bridge.settings import Settings
from nats_bridge.native_servers import NativeServer
from nats_bridge.native_servers.native_server import HOST, LEAF_LISTENER
from nats_bridge.transforms.republish import StoredMessage
from tests.live.copied_messages import everything
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.sidecars import running
from tests.live.until import until

TRANSFORMS = [{"src": "orders.*", "dest": "west.{{wildcard(1)}}.new"}, {"src": "more.>", "dest": "other.>"}]


def external(prefix: str = "bridge.orders") -> dict[str, str]:
    """The `external` of a native mirror or source that reads through the sidecar."""
    return {"api": f"{prefix}.API", "deliver": f"{prefix}.deliver"}


@dataclass
class Pair:
    """Two servers, with a peer on each."""

    source: NativeServer
    target: NativeServer
    leaf_port: int
    at_source: RawPeer
    at_target: RawPeer

    def document(self, *rules: dict[str, Any], **leaf: Any) -> dict[str, Any]:
        """A sidecar's configuration; each rule needs only what differs from the usual one."""
        usual = {
            "kind": "native_copy",
            "name": "orders",
            "stream": "ORDERS",
            "prefix": "bridge.orders",
            "leaf": "leaf",
            "subject_transforms": TRANSFORMS,
        }
        return {
            "connections": {
                "default": {"servers": [self.source.url]},
                "leaf": {"servers": [f"nats://{HOST}:{self.leaf_port}"], **leaf},
            },
            "http": {"listen": ""},
            "rules": [{**usual, **rule} for rule in rules or ({},)],
        }

    @asynccontextmanager
    async def bridged(self, *rules: dict[str, Any], **leaf: Any) -> AsyncIterator[Sidecar]:
        """A running sidecar."""
        async with running(Settings.model_validate(self.document(*rules, **leaf))) as sidecar:
            yield sidecar

    async def last_sequence(self, stream: str) -> int:
        """Of a stream on the target."""
        return await _last_sequence(self.at_target, stream)

    async def reaches(self, stream: str, last: int) -> None:
        """Wait until a stream on the target has the given last sequence, or a later one."""
        await _reaches(self.at_target, stream, last)

    async def stored(self, stream: str, last: int) -> list[StoredMessage]:
        """What a stream on the target holds, as soon as its last sequence is the given one."""
        await self.reaches(stream, last)
        return await everything(self.at_target, stream)

    async def native(self, stream: str, last: int) -> list[StoredMessage]:
        """The same of a stream at the source, which copies natively there."""
        await _reaches(self.at_source, stream, last)
        return await everything(self.at_source, stream)

    async def ending_with(self, stream: str, subject: bytes) -> list[StoredMessage]:
        """What a stream on the target holds, as soon as its last message has the given subject."""

        async def there() -> bool:
            last = (await self.at_target.api(f"STREAM.INFO.{stream}"))["state"]["last_seq"]
            found = await self.at_target.api(f"STREAM.MSG.GET.{stream}", {"seq": last})
            # There is none while the stream is empty, or where its last message was deleted.
            return bool(found.get("message", {}).get("subject") == subject.decode())

        await until(there)
        return await everything(self.at_target, stream)


async def _last_sequence(peer: RawPeer, stream: str) -> int:
    return int((await peer.api(f"STREAM.INFO.{stream}"))["state"]["last_seq"])


async def _reaches(peer: RawPeer, stream: str, last: int) -> None:
    async def there() -> bool:
        return await _last_sequence(peer, stream) >= last

    await until(there)


@asynccontextmanager
async def pair(
    native_server: Callable[..., NativeServer],
    raw_peer: OpenPeer,
    target_version: str,
    *,
    source_version: str = "2.15.3",
    config: str = "",
    source_config: str = "",
) -> AsyncIterator[Pair]:
    """Two servers; the target listens for leaf nodes."""
    source = native_server(source_version, config=source_config).start()
    target = native_server(target_version, config=f"{config}\nleafnodes {{{LEAF_LISTENER}}}").start()
    yield Pair(source, target, target.leaf_port, await raw_peer(source.url), await raw_peer(target.url))


async def publish_oddities(peer: RawPeer, number: int) -> None:
    """Messages with and without headers, and gaps: some are deleted again."""
    blocks = [
        b"",
        b"NATS/1.0\r\nx-lower:  two spaces \r\nX-Dup: a\r\nX-Dup: b\r\nX-Empty:\r\nX-Bin: \xff\x01\t\r\n\r\n",
        b"",
        b"NATS/1.0\r\nNats-Msg-Id: own-%d\r\nA: b\r\n\r\n",
    ]
    for count in range(number):
        block = blocks[count % len(blocks)]
        subject = b"orders.%d" % (count % 7) if count % 5 else b"more.%d.x" % (count % 3)
        await peer.store(subject, b"%d \r\n\x00\xff" % count, block % count if b"%d" in block else block)
        if count % 11 == 3:
            await peer.api("STREAM.MSG.DELETE.ORDERS", {"seq": count + 1})
