"""Leases as in a bucket, released ones among them: then the first replica does not wait."""

from __future__ import annotations

import base64
import json
from typing import Any

from nats_bridge.rules.leadership.lease_store import bucket_config
from tests.live.raw_messages import RawPeer

LONG = 60.0
"""Seconds of a lease where no replica may lose a lead, however slow the machine is."""


async def free(peer: RawPeer, bucket: str, *rules: str) -> None:
    """Create the bucket, with released leases of these rules (or of `rule`)."""
    await peer.create_stream(**bucket_config(bucket, 1))
    for rule in rules or ("rule",):
        await write_lease(peer, bucket, rule, holder="before", released=True)


async def write_lease(peer: RawPeer, bucket: str, rule: str = "rule", **record: Any) -> None:
    """Write the record of a rule's lease, as another replica does; members that are left out say that it holds it."""
    said = {"holder": "other", "term": 1, "beat": 1, "ttl": LONG, "released": False, **record}
    subject = f"$KV.{bucket}.lease.nats-bridge.{rule}"
    assert "error" not in await peer.store(subject.encode(), json.dumps(said).encode())


async def lease(peer: RawPeer, bucket: str, rule: str = "rule") -> dict[str, Any] | None:
    """The record of a rule's lease; None if there is none, or it was purged."""
    answer = await peer.api(f"STREAM.MSG.GET.KV_{bucket}", {"last_by_subj": f"$KV.{bucket}.lease.nats-bridge.{rule}"})
    if not answer.get("message", {}).get("data"):
        return None
    record: dict[str, Any] = json.loads(base64.b64decode(answer["message"]["data"]))
    return record
