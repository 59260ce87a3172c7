"""The requests that a server sends to the source of a mirror or of `sources`, and their answers; pure.

What servers send (2.9.10 to 2.15.1): `CONSUMER.CREATE.<stream>`, with a filter as `CONSUMER.CREATE.<stream>.<consumer>.
<filter>`, `CONSUMER.DELETE.<stream>.<consumer>` and `STREAM.INFO.<stream>`. From 2.14 on also `CONSUMER.RESET`, for
sources with a consumer of their own, which deliver to a fixed subject: refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from nats_bridge.bridge.client.jetstream_api import CONSUMER_NOT_FOUND, STREAM_NOT_FOUND
from nats_bridge.bridge.consuming.replay import filter_members
from nats_bridge.transforms.subject import is_valid_publish

_DELETE: Final = "CONSUMER.DELETE"
_FORWARDED: Final = ("STREAM.INFO", _DELETE)
_OF_SERVERS: Final = ("JS_MIRROR_", "JS_SRC_")
"""What the names of consumers begin with that servers delete (2.15)."""
_CREATE: Final = "CONSUMER.CREATE"
_BAD_REQUEST: Final = 10003
_TYPES: Final = {
    _CREATE: "io.nats.jetstream.api.v1.consumer_create_response",
    _DELETE: "io.nats.jetstream.api.v1.consumer_delete_response",
    "STREAM.INFO": "io.nats.jetstream.api.v1.stream_info_response",
}


@dataclass(frozen=True, slots=True)
class CreateRequest:
    """A server wants a consumer.

    Attributes:
        deliver: the subject that it wants deliveries on.
        body: the request.
    """

    deliver: bytes
    body: dict[str, Any]

    def redirected(self, inbox: str, filters: Sequence[str]) -> bytes:
        """The request with another deliver subject, for the stream's own server.

        Args:
            inbox: where the consumer is to deliver.
            filters: what to select, where the request selects nothing itself; empty for everything.
        """
        config = {**self.body["config"], "deliver_subject": inbox, **filter_members(filters)}
        return json.dumps({**self.body, "config": config}).encode()


def refusal_of(api: str, stream: str, deliver: bytes, payload: bytes) -> bytes | None:
    """Why a request is not forwarded, as the stream's server would answer; None if it is.

    Only what servers ask for is: clients of the server that copies may use the prefix, too, and the rule's user is
    allowed more on the stream's server.

    Args:
        api: the request's subject after the prefix of the API.
        stream: the stream that is served.
        deliver: what deliver subjects begin with.
        payload: the request's JSON.
    """
    kind, name = _parts(api)
    if kind not in (_CREATE, *_FORWARDED):
        return answer_with(kind, 400, _BAD_REQUEST, "bad request: the sidecar serves mirrors and sources only")
    if name != stream:
        return answer_with(kind, 404, STREAM_NOT_FOUND, "stream not found")
    if kind == _DELETE and not api.rpartition(".")[2].startswith(_OF_SERVERS):
        return answer_with(kind, 404, CONSUMER_NOT_FOUND, "consumer not found")
    if kind == _CREATE and (reason := _unserved(read_create(api, payload), deliver)):
        return answer_with(kind, 400, _BAD_REQUEST, f"bad request: {reason}")
    return None


def _unserved(create: CreateRequest | None, deliver: bytes) -> str:
    """Why a consumer is not served; empty if it is."""
    if create is None:
        return "the sidecar serves consumers with a deliver subject"
    if not (create.deliver.startswith(deliver) and is_valid_publish(create.deliver)):
        return f"external.deliver is to be {deliver.decode().removesuffix('.')}, as the sidecar's rule has it"
    config = create.body["config"]
    if not config.get("flow_control") or config.get("durable_name"):  # nothing else bounds what is in flight
        return "the sidecar serves consumers with flow control, and no durable ones"
    return ""


def read_create(api: str, payload: bytes) -> CreateRequest | None:
    """A request for a consumer; None for any other, or for one without a deliver subject.

    Args:
        api: the request's subject after the prefix of the API.
        payload: its JSON.
    """
    if _parts(api)[0] != _CREATE:
        return None
    try:
        body = json.loads(payload)
        deliver = body["config"]["deliver_subject"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return CreateRequest(deliver.encode(), body) if isinstance(deliver, str) and deliver else None


def restored(answer: bytes, deliver: bytes) -> tuple[bytes, bool]:
    """An answer to `CreateRequest.redirected` with the deliver subject that was asked for; if it is a consumer's."""
    body = json.loads(answer)
    config = body.get("config")
    if body.get("error") or not isinstance(config, dict):
        return answer, False
    return json.dumps({**body, "config": {**config, "deliver_subject": deliver.decode()}}).encode(), True


def answer_with(kind: str, code: int, err_code: int, description: str) -> bytes:
    """An API error as a server answers it."""
    error = {"code": code, "err_code": err_code, "description": description}
    return json.dumps({"type": _TYPES.get(kind, "io.nats.jetstream.api.v1.error"), "error": error}).encode()


def _parts(api: str) -> tuple[str, str]:
    """The kind of a request and the stream that it is about."""
    tokens = api.split(".")
    return ".".join(tokens[:2]), tokens[2] if len(tokens) > 2 else ""
