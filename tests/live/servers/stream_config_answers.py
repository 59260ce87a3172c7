"""Asking a server to create or update streams, and its answers in the form of the recorded cases."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from nats.aio.client import Client

from nats_conformance.native_servers import NativeServer
from tests.live.until import LIMIT


async def ask(server: NativeServer, cases: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answer to each case: ``{"error": …}`` or ``{"config": …}``, without what servers add about themselves.

    The server must be the caller's own: all its streams are removed before each case. A case has a ``config``, or the
    ``text`` of one, in which lone surrogates stand for bytes that are not UTF-8.
    """
    client = Client()
    await client.connect(server.url, connect_timeout=int(LIMIT))
    try:
        return [await _answer(client, case) for case in cases]
    finally:
        await client.close()


def difference(answer: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    """The answer with its configuration cut down to the members that differ from ``base`` (absent ones None)."""
    if "error" in answer:
        return answer
    config = answer["config"]
    changed = {key: value for key, value in config.items() if key not in base or base[key] != value}
    return {"config": changed | {key: None for key in base if key not in config}}


async def _answer(client: Client, case: dict[str, Any]) -> dict[str, Any]:
    names = (await _request(client, "STREAM.NAMES", None)).get("streams") or []
    for name in names:
        await _request(client, f"STREAM.DELETE.{name}", None)
    for source in case.get("source_streams", ()):
        await _prepared(client, source)
    action = "CREATE"
    config = case["text"].encode("utf-8", "surrogateescape") if "text" in case else case["config"]
    name = config["name"] if isinstance(config, dict) and isinstance(config.get("name"), str) else "S"
    if "previous" in case:
        await _prepared(client, case["previous"])
        action, name = "UPDATE", case["previous"]["name"]
    answer = await _request(client, f"STREAM.{action}.{name or 'S'}", config)
    if "error" in answer:
        return {"error": {key: answer["error"][key] for key in ("code", "err_code", "description")}}
    assert "config" in answer, (case, answer)
    kept: dict[str, Any] = answer["config"]
    own = {key: value for key, value in kept.pop("metadata", {}).items() if not key.startswith("_nats.")}
    return {"config": kept | {"metadata": own} if own else kept}


async def _prepared(client: Client, config: dict[str, Any]) -> None:
    answer = await _request(client, f"STREAM.CREATE.{config['name']}", config)
    assert "error" not in answer, (config, answer)


async def _request(client: Client, subject: str, body: object) -> dict[str, Any]:
    while True:
        answer = await _request_once(client, subject, body)
        # The folder of the stream deleted just before may still be there; that is no answer to the case.
        if answer.get("error", {}).get("description") != "error creating store for stream":
            return answer


async def _request_once(client: Client, subject: str, body: object) -> dict[str, Any]:
    inbox = client.new_inbox()
    replies = await client.subscribe(inbox)
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    await client.publish(f"$JS.API.{subject}", data, reply=inbox)
    while True:
        answer: dict[str, Any] = json.loads((await replies.next_msg(timeout=LIMIT)).data)
        # A stream that captures the API's subjects acknowledges the request as a message of its own.
        if "type" in answer:
            await replies.unsubscribe()
            return answer
