"""The configurations of a restored stream: the one that it ends with, and the one that it has until then.

Theory of operation. While it is restored a stream takes nothing but what the restore publishes: its subjects are
`nats-bridge.restore.STREAM.GENERATION.>`, and an ingress transform gives each message its own subject back. The
generation is another one for each attempt, so that nothing of an earlier attempt can be stored any more. Limits that
fillers would count for, and what would act on the messages, come last. A member of `metadata` says what is restored.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from nats_bridge.client.jetstream_api import Json
from nats_transforms.dialect import server_dialect
from nats_transforms.errors import StreamConfigError
from nats_transforms.reserved import is_reserved
from nats_transforms.stream_config import examine

MARK: Final = "nats-bridge-restore"
"""The member of a stream's metadata that says what it is restored from."""

FILLER: Final = "nats-bridge.filler"
"""The subject of what takes the place of a missing sequence, until it is purged."""

GENERATION: Final = 8
"""Letters of a generation."""

WINDOW: Final = 0.1
"""Seconds for which the stream remembers message ids until it is restored: the least that servers take."""

_NEVER: Final = ("mirror", "mirror_direct", "sources", "first_seq", "template_owner")
"""Not restored: native copying would begin again at its start; the rest says how a stream was created."""

_LAST: Final = (
    "sealed",
    "deny_delete",
    "deny_purge",
    "discard",
    "discard_new_per_subject",
    "max_msgs",
    "max_bytes",
    "max_age",
    "max_msg_size",
    "no_ack",
    "republish",
    "subject_transform",
    "subject_delete_marker_ttl",
    "allow_msg_schedules",
    "allow_atomic",
    "allow_batched",
)
"""What would refuse, remove or publish something, or store something of its own, while the stream is restored."""


@dataclass(frozen=True, slots=True)
class RestoreMark:
    """What a stream is restored from.

    Attributes:
        stream: the captured stream.
        created: when that was created, as its server reported it.
        selection: identifies the transforms; empty without any.
    """

    stream: str
    created: str
    selection: str = ""

    def metadata(self, *, done: bool) -> dict[str, str]:
        """As a member of a stream's metadata."""
        said = {"stream": self.stream, "created": self.created, "selection": self.selection, "done": done}
        return {MARK: json.dumps(said)}

    @classmethod
    def of(cls, config: Json) -> tuple[RestoreMark | None, bool]:
        """The mark in a stream's configuration, None without one; and whether the restore is done."""
        try:
            said = json.loads((config.get("metadata") or {})[MARK])
            return cls(said["stream"], said["created"], said["selection"]), bool(said["done"])
        except (KeyError, ValueError, TypeError):
            return None, False


def subject_of(stream: str, generation: str, rest: str) -> str:
    """Where a message with the subject `rest` is published."""
    return f"nats-bridge.restore.{stream}.{generation}.{rest}"


def probe_of(stream: str) -> str:
    """The subject for asking the stream; nothing is stored under it."""
    return f"nats-bridge.restore.{stream}"


def restored_config(saved: Json, name: str, subjects: Sequence[str] | None, without: Collection[str]) -> Json:
    """The configuration that a restored stream ends with, without its mark.

    Args:
        saved: the captured stream's.
        name: the name of the restored stream.
        subjects: its subjects; None for the captured stream's.
        without: members to leave out.
    """
    config = {member: value for member, value in saved.items() if member not in (*_NEVER, *without)}
    metadata = {key: value for key, value in (saved.get("metadata") or {}).items() if not key.startswith("_nats.")}
    config.pop("metadata", None)
    if metadata and "metadata" not in without:
        config["metadata"] = metadata
    return {**config, "name": name, "subjects": list(subjects or saved.get("subjects") or [name])}


def restoring_config(restored: Json, mark: RestoreMark, generation: str) -> Json:
    """The configuration that a stream has while it is restored.

    Args:
        restored: what it ends with.
        mark: what it is restored from.
        generation: of the present attempt.
    """
    name = str(restored["name"])
    config = {member: value for member, value in restored.items() if member not in _LAST}
    return {
        **config,
        "subjects": [subject_of(name, generation, ">"), probe_of(name)],
        "subject_transform": {"src": subject_of(name, "*", ">"), "dest": ">"},
        "duplicate_window": round(WINDOW * 1e9),
        # With more, each message would wait for the one before: one that is left out would shift all later ones.
        "num_replicas": 1,
        "metadata": {**config.get("metadata", {}), **mark.metadata(done=False)},
    }


def unsupported(restored: Json, server_version: str) -> tuple[tuple[str, ...], str]:
    """Why a server does not take a configuration.

    Args:
        restored: the configuration.
        server_version: of the server; a newer one than any known is taken for the newest.

    Returns:
        The members that it does not know; and its refusal, empty without one.
    """
    destination = str((restored.get("republish") or {}).get("dest", ""))
    if destination.startswith("$JS.") or is_reserved(destination.encode()):
        # Servers take it. Who had it in the captured account may not be allowed to command the server here.
        return (), f"it republishes to '{destination}', where each message is a command to the server (republish)"
    version = server_dialect(server_version)
    try:
        taken = examine({**restored, "sealed": False}, version, strict=False).config
    except StreamConfigError as error:
        return (), f"{error.description} ({error.err_code})"
    members = [name for name, value in restored.items() if value and name not in taken and name != "sealed"]
    return tuple(members), ""


def commands(saved: Json) -> bool:
    """Whether what a saved consumer delivers is a command to the server, where servers before 2.15.3 take it."""
    return is_reserved(str(saved.get("deliver_subject", "")).encode())


def consumer_config(saved: Json, acknowledged: int, last: int) -> Json:
    """The configuration of a restored consumer, which begins after what it had acknowledged.

    Args:
        saved: the configuration that it had.
        acknowledged: the sequence up to which it had acknowledged everything; 0 for nothing.
        last: the last sequence that was restored.
    """
    config = dict(saved)
    config["metadata"] = {k: v for k, v in (saved.get("metadata") or {}).items() if not k.startswith("_nats.")}
    if acknowledged:
        config.pop("opt_start_time", None)
        config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": min(acknowledged, last) + 1}
    return config
