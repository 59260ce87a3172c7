"""Computes the configurations of a restored stream: the final one, and the one until then.

Theory of operation. During the restore, a stream only stores messages of the restore: its subjects are
`nats-bridge.restore.STREAM.GENERATION.>`, and an ingress transform gives each message its own subject back. Each
attempt has another generation, so no message of an earlier attempt can be stored later. Limits that also count fillers,
and settings that act on messages, are set at the end. A member of `metadata` describes the restore.
"""

import json
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Self

from nats_bridge.client.jetstream_api import Json
from nats_transforms.dialect import server_dialect
from nats_transforms.errors import StreamConfigError
from nats_transforms.reserved import is_reserved
from nats_transforms.stream_config import examine

MARK: Final = "nats-bridge-restore"
"""The member of a stream's metadata that describes the restore."""

FILLER: Final = "nats-bridge.filler"
"""The subject of messages that fill missing sequences, until they are purged."""

WINDOW: Final = 0.1
"""Duplicate window in seconds until the stream is restored: the minimum that servers accept."""

_NEVER: Final = ("mirror", "mirror_direct", "sources", "first_seq", "template_owner")
"""Not restored: native copying would begin again at its start, and the others describe how a stream was created."""

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
"""Settings that would refuse, remove, publish or add messages during the restore."""


@dataclass(frozen=True, slots=True)
class RestoreMark:
    """The source of a restored stream.

    Attributes:
        created: when that was created, as its server reported it.
        selection: identifies the transform; empty without one.
    """

    stream: str
    created: str
    selection: str = ""

    def metadata(self, opened: int | None) -> dict[str, str]:
        """Return the mark as a member of a stream's metadata.

        Args:
            opened: the sequence up to which the stream was restored when it was opened; None as long as it is closed.
        """
        said = {"stream": self.stream, "created": self.created, "selection": self.selection, "opened": opened}
        return {MARK: json.dumps(said)}

    @classmethod
    def of(cls, config: Json) -> tuple[Self | None, int | None]:
        """Return the mark in a stream's configuration (None without one), and `opened` of `metadata`."""
        try:
            said = json.loads((config.get("metadata") or {})[MARK])
            return cls(said["stream"], said["created"], said["selection"]), said["opened"]
        except (KeyError, ValueError, TypeError):
            return None, None


def subject_of(stream: str, generation: str, rest: str) -> str:
    """Return the subject on which a message with the subject `rest` is published."""
    return f"nats-bridge.restore.{stream}.{generation}.{rest}"


def probe_of(stream: str) -> str:
    """Return the subject for probing the stream. No message is stored under it."""
    return f"nats-bridge.restore.{stream}"


def restored_config(saved: Json, name: str, subjects: Sequence[str], without: Collection[str]) -> Json:
    """Return the configuration that a restored stream ends with, without its mark."""
    config = {member: value for member, value in saved.items() if member not in ("metadata", *_NEVER, *without)}
    metadata = {key: value for key, value in (saved.get("metadata") or {}).items() if not key.startswith("_nats.")}
    if metadata and "metadata" not in without:
        config["metadata"] = metadata
    return {**config, "name": name, "subjects": list(subjects or saved.get("subjects") or [name])}


def restoring_config(restored: Json, mark: RestoreMark, generation: str | None = None) -> Json:
    """Return the configuration that a stream has while it is restored; of a new generation if none is given."""
    name, generation = str(restored["name"]), generation or secrets.token_hex(4)
    config = {member: value for member, value in restored.items() if member not in _LAST}
    return {
        **config,
        "subjects": [subject_of(name, generation, ">"), probe_of(name)],
        "subject_transform": {"src": subject_of(name, "*", ">"), "dest": ">"},
        "duplicate_window": round(WINDOW * 1e9),
        # With more, each message would have to wait for the previous one, because a missing one would shift all later
        # ones.
        "num_replicas": 1,
        "metadata": {**config.get("metadata", {}), **mark.metadata(None)},
    }


def unsupported(restored: Json, server_version: str) -> tuple[tuple[str, ...], str]:
    """Return the reason why a server does not take a configuration.

    Returns:
        The members that it does not support, and its refusal (empty without one).
    """
    destination = str((restored.get("republish") or {}).get("dest", ""))
    if destination.startswith("$JS.") or is_reserved(destination.encode()):
        # Servers accept it. A user of the captured account may not be allowed to command the server here.
        return (), f"it republishes to '{destination}', where each message is a command to the server (republish)"
    version = server_dialect(server_version)
    try:
        taken = examine({**restored, "sealed": False}, version, strict=False).config
    except StreamConfigError as error:
        return (), f"{error.description} ({error.err_code})"
    members = [name for name, value in restored.items() if value and name not in taken and name != "sealed"]
    return tuple(members), ""


def commands(saved: Json) -> bool:
    """Return whether a saved consumer would deliver commands to the server, which servers before 2.15.3 allow."""
    return is_reserved(str(saved.get("deliver_subject", "")).encode())


def consumer_config(saved: Json, acknowledged: int, last: int) -> Json:
    """Return the configuration of a restored consumer, which begins after its acknowledged messages."""
    config = dict(saved)
    config["metadata"] = {k: v for k, v in (saved.get("metadata") or {}).items() if not k.startswith("_nats.")}
    if acknowledged:
        config.pop("opt_start_time", None)
        config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": min(acknowledged, last) + 1}
    return config
