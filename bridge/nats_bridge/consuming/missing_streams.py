"""Missing streams: an error that names similar streams, and a wait until one exists."""

from __future__ import annotations

import asyncio
import difflib

from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import STREAM_NOT_FOUND, Json
from nats_bridge.client.tasks import happens
from nats_bridge.client.waiting import WITHOUT_ADVISORY
from nats_bridge.errors import ApiError, NotPermittedError, StreamMissingError

_SHOWN = 5  # streams that are named


async def existing_stream(connection: Connection, rule: str, stream: str) -> Json:
    """`STREAM.INFO` of a stream that a rule needs; or a command, with no rule.

    Raises:
        StreamMissingError: the stream does not exist; the error names similar ones.
        ApiError: the server refuses, or does not answer.
    """
    try:
        return await connection.api.stream_info(stream)
    except ApiError as error:
        if error.err_code == STREAM_NOT_FOUND:
            raise await _missing(connection, rule, stream) from None
        raise


async def _missing(connection: Connection, rule: str, stream: str) -> StreamMissingError:
    try:
        names = await connection.api.stream_names()
    except NotPermittedError:
        known = "the user may not list the streams"
    else:
        alike = ", ".join(difflib.get_close_matches(stream, sorted(names), _SHOWN, 0.0)) or "none"
        few = len(names) <= _SHOWN
        known = f"the account has {alike}" if few else f"the most similar of {len(names)} streams: {alike}"
    place = f"rule '{rule}': " if rule else ""
    return StreamMissingError(
        f"{place}stream '{stream}' does not exist on connection '{connection.name}': {known}",
        connection=connection.name,
        stream=stream,
    )


async def appeared(connection: Connection, stream: str) -> None:
    """Wait until a stream exists: until an advisory reports it, or a poll finds it."""
    created = asyncio.Event()

    async def on_created(_: object) -> None:
        created.set()

    advisories = await connection.client.subscribe(f"$JS.EVENT.ADVISORY.STREAM.CREATED.{stream}", cb=on_created)
    try:
        while True:
            created.clear()
            await connection.connected()
            try:
                await connection.api.stream_info(stream)
            except ApiError as error:
                if error.err_code != STREAM_NOT_FOUND and not error.passing:
                    raise
            else:
                return
            await happens(created, within=WITHOUT_ADVISORY)
    finally:
        if not connection.client.is_closed:
            await advisories.unsubscribe()
