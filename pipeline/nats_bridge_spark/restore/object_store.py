"""Removes chunks in an object store that no longer belong to an object.

Clients store an object's chunks under a subject with a new id, and then its metadata (with that id) under a subject
with its name. When an object is replaced or deleted, they purge its chunks (ADR-20). A capture has no purges, so it
contains the chunks of every object that it has ever seen.
"""

import json
from collections.abc import Collection

from nats_bridge.client.jetstream_api import JetStreamApi
from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.replay import Replay


async def purge_orphans(api: JetStreamApi, stream: str, subjects: Collection[str]) -> int:
    """Purge the chunks that no object names, from a stream that no client writes to.

    Args:
        subjects: the subjects of the open stream; without those of an object store, nothing is done.

    Returns:
        The number of chunks.
    """
    purged = 0
    for chunks in subjects:
        store = chunks.removesuffix(".C.>")
        metadata = f"{store}.M.>"
        if store == chunks or not store.startswith("$O.") or metadata not in subjects:
            continue
        described = [message[3] for message in await _newest(Replay(api, stream, (metadata,)))]
        try:
            named = {"" if each.get("deleted") else str(each["nuid"]) for each in map(json.loads, described)}
        except (ValueError, KeyError, AttributeError):
            continue  # any chunk may belong to an object whose metadata cannot be read
        for message in await _newest(Replay(api, stream, (chunks,), headers_only=True)):
            subject = message[0].decode()
            if subject.rpartition(".")[2] not in named:
                purged += int((await api.request(f"STREAM.PURGE.{stream}", {"filter": subject}))["purged"])
    return purged


async def _newest(replay: Replay) -> list[Delivered]:
    return [message async for batch in replay.last_per_subject() for message in batch]
