"""Removes chunks in an object store that no longer belong to an object.

Clients store an object's chunks under a subject with a new id, and then its metadata (with that id) under a subject
with its name. When an object is replaced or deleted, they purge its chunks (ADR-20). A capture has no purges, so it
contains the chunks of every object that it has ever seen.
"""

import json
from collections.abc import Collection

from nats_bridge.client.jetstream_api import JetStreamApi
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
        replay = Replay(api, stream, (metadata,))
        described = [payload async for batch in replay.last_per_subject() for *_, payload in batch]
        try:
            named = {"" if each.get("deleted") else str(each["nuid"]) for each in map(json.loads, described)}
        except (ValueError, KeyError, AttributeError):
            continue  # any chunk may belong to an object whose metadata cannot be read
        for subject in await _subjects(api, stream, chunks):
            if subject.rpartition(".")[2] not in named:
                purged += int((await api.request(f"STREAM.PURGE.{stream}", {"filter": subject}))["purged"])
    return purged


async def _subjects(api: JetStreamApi, stream: str, filtered: str) -> list[str]:
    """Return the subjects of a stream's messages, which servers give in pages."""
    found: list[str] = []
    while True:
        info = await api.request(f"STREAM.INFO.{stream}", {"subjects_filter": filtered, "offset": len(found)})
        page = info["state"].get("subjects") or {}
        found += page
        if not page or len(found) >= int(info.get("total", 0)):
            return found
