"""Leases that a test finds free, so that the first replica need not wait until they would be over."""

from __future__ import annotations

import json

from bridge.leadership.lease_store import Bucket
from tests.live.raw_messages import RawPeer

__all__ = ["LONG", "free"]

LONG = 60.0
"""Seconds of a lease where nobody is to lose a lead, however slow the machine is."""


async def free(peer: RawPeer, bucket: str, *rules: str) -> None:
    """Make the bucket, with leases of these rules (or of `rule`) that were given back."""
    await peer.create_stream(**Bucket(bucket).config(1))
    record = {"holder": "before", "term": 1, "beat": 1, "ttl": LONG, "released": True}
    for rule in rules or ("rule",):
        subject = f"$KV.{bucket}.lease.nats-bridge.{rule}"
        assert "error" not in await peer.store(subject.encode(), json.dumps(record).encode())
