"""A stream's backup, and its restoration with another configuration, as `nats stream backup` and `restore` do it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.live.raw_messages import RawPeer


@dataclass(frozen=True, slots=True)
class Backup:
    """A stream as a server hands it out.

    Attributes:
        config: its configuration.
        state: its state.
        chunks: its contents.
    """

    config: dict[str, Any]
    state: dict[str, Any]
    chunks: tuple[bytes, ...]


async def backup(peer: RawPeer, stream: str) -> Backup:
    """Back a stream up, without its consumers."""
    inbox = peer.client.new_inbox()
    arrived = await peer.collect(inbox)
    answer = await peer.api(f"STREAM.SNAPSHOT.{stream}", {"deliver_subject": inbox, "no_consumers": True})
    assert "error" not in answer, answer
    chunks: list[bytes] = []
    while True:
        await arrived.count(len(chunks) + 1)
        _, reply, _, payload = arrived.messages[len(chunks)]
        if not payload:
            return Backup(answer["config"], answer["state"], tuple(chunks))
        chunks.append(payload)
        if reply:
            peer.publish(reply, b"")


async def restore(peer: RawPeer, config: dict[str, Any], kept: Backup) -> None:
    """Create a stream with the contents of a backup."""
    asked = {"config": config, "state": kept.state}
    answer = await peer.api(f"STREAM.RESTORE.{config['name']}", asked)
    assert "error" not in answer, answer
    subject = answer["deliver_subject"].encode()
    for chunk in kept.chunks:
        await peer.request_raw(subject, chunk)
    done = await peer.request_raw(subject)
    assert done is not None
    assert "error" not in json.loads(done), done
