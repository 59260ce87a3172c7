"""Renames the bucket in the metadata of copied objects to the target's bucket.

Servers copy an object's metadata unchanged, so its `bucket` is the one where it was written (ADR-20). A client that
writes to the bucket in the metadata would then change the source.
"""

from __future__ import annotations

import json

from nats_bridge.client.wire import Delivered
from nats_bridge.kinds.copying.model import OBJECT_STREAM


class ObjectMetadata:
    """Names one bucket for another in metadata."""

    __slots__ = ("_new", "_old", "_subjects")

    def __init__(self, source: str, target: str) -> None:
        self._old, self._new = source.removeprefix(OBJECT_STREAM), target.removeprefix(OBJECT_STREAM)
        self._subjects = b"$O.%b.M." % self._old.encode()

    def renamed(self, batch: list[Delivered]) -> list[Delivered]:
        """Return the batch, with metadata of the source's bucket renamed to the target's."""
        if not any(message[0].startswith(self._subjects) for message in batch):
            return batch
        return [
            (subject, reply, block, self._named(payload) if subject.startswith(self._subjects) else payload)
            for subject, reply, block, payload in batch
        ]

    def _named(self, payload: bytes) -> bytes:
        try:
            metadata = json.loads(payload)
        except ValueError:
            return payload
        if not isinstance(metadata, dict) or metadata.get("bucket") != self._old:
            return payload
        return json.dumps(metadata | {"bucket": self._new}, separators=(",", ":"), ensure_ascii=False).encode()
