"""Implements the JSON-lines protocol of libraries: the form of requests and answers in `docs/conformance-protocol.md`.

Bytes are a string if they are UTF-8, and otherwise `{"base64": …}`; both are accepted everywhere.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nats_conformance.catalogue.case import ExpectedRefusal, Json, Message
from nats_conformance.observation import Decision, Stored

PROTOCOL = 1
"""The protocol version of this suite."""

CAPABILITIES = ("transform", "bare_transform", "stream_config", "republish", "sourcing")
"""Features that a library can offer; each is the `op` of a request."""


def protocol_schema() -> dict[str, Any]:
    """Return the JSON schema of a request, with one of its answer for each op below `$defs` (`OP-answer`)."""
    schema: dict[str, Any] = json.loads(Path(__file__).with_name("protocol.schema.json").read_text(encoding="utf-8"))
    return schema


def json_of_bytes(raw: bytes) -> Json:
    """Bytes for a line."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": b64encode(raw).decode()}


def bytes_of(value: Json) -> bytes:
    """Return the bytes of a value in a line. Raise ValueError or TypeError for an invalid one."""
    if isinstance(value, str):
        return value.encode("utf-8")
    if isinstance(value, Mapping) and isinstance(value.get("base64"), str):
        return b64decode(value["base64"], validate=True)
    raise TypeError(f'bytes are a text or {{"base64": "…"}}, not {value!r}')


def json_of_message(message: Message | None) -> Json:
    """Return a message, or that there is none."""
    if message is None:
        return None
    return {
        "subject": json_of_bytes(message.subject),
        "headers": json_of_bytes(message.header_block),
        "payload": json_of_bytes(message.payload),
    }


def message_of(value: Json) -> Message:
    """Return the message in a line; headers and payload may be left out."""
    if not isinstance(value, Mapping):
        raise TypeError(f"a message is an object, not {value!r}")
    return Message(bytes_of(value["subject"]), bytes_of(value.get("headers", "")), bytes_of(value.get("payload", "")))


def json_of_stored(stored: Stored) -> dict[str, Any]:
    """Return a stored message. Its time is a text: it has more digits than many JSON readers keep of a number."""
    return {**json_of_message(stored.message), "sequence": stored.sequence, "time_ns": str(stored.time_ns)}


def decision_of(answer: Mapping[str, Json]) -> Decision:
    """Return the decision in an answer."""
    refusal = refusal_of(answer)
    if refusal is not None:
        return Decision(refusal=refusal)
    if not isinstance(answer["config"], Mapping):
        raise TypeError(f"config is an object, not {answer['config']!r}")
    return Decision(config=answer["config"])


def refusal_of(answer: Mapping[str, Json]) -> ExpectedRefusal | None:
    """Return the refusal in an answer, if any. Unknown members may be left out."""
    refused = answer.get("refused")
    if refused is None:
        return None
    if not isinstance(refused, Mapping):
        raise TypeError(f"refused is an object, not {refused!r}")
    return ExpectedRefusal(refused.get("code"), refused.get("err_code"), refused.get("description"))
