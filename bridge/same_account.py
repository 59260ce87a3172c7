"""Whether two connections reach the same subjects: what one publishes, the other hears."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from bridge.connection import Link
from bridge.jetstream_api import Json

__all__ = ["have_stream_in_common", "hear_each_other"]

_PATIENCE = 1.0  # seconds: a cluster tells its servers of a new subscription, which takes a moment
_ANSWER_LIMIT = 10.0  # seconds: one server needs no such moment, but may be slow to answer
_AGAIN = 0.05  # seconds between two tries


def have_stream_in_common(some: Iterable[Json], others: Iterable[Json]) -> bool:
    """Whether a stream is in both lists: the same name alone says nothing, created at the same nanosecond it does."""
    known = {(info["config"]["name"], info["created"]) for info in some}
    return any((info["config"]["name"], info["created"]) in known for info in others)


async def hear_each_other(one: Link, other: Link) -> bool | None:
    """Whether one connection hears what is published on the other, or the other way round; None if no user may try."""
    answers = await asyncio.gather(_hears(one, other), _hears(other, one))
    if any(answers):
        return True
    return None if all(answer is None for answer in answers) else False


async def _hears(listener: Link, speaker: Link) -> bool | None:
    """Whether a message arrives; None if a user lacks the permission for a subject that nobody else uses."""
    inbox = str(listener.client.new_inbox())
    heard, refused = asyncio.Event(), asyncio.Event()

    def on_refusal(text: str) -> None:
        if inbox.lower() in text.lower():
            refused.set()

    for link in (listener, speaker):
        link.on_refusal(on_refusal)
    subscription = await listener.client.subscribe_batches(inbox, lambda _: heard.set(), lambda *_: None)
    try:
        await listener.flush()
        same_server = speaker.client.server_id == listener.client.server_id
        async with asyncio.timeout(_ANSWER_LIMIT if same_server else _PATIENCE):
            while not (heard.is_set() or refused.is_set()):
                await speaker.client.publish(inbox, b"")
                # A server hands a message on before it answers the PING behind it, on every connection.
                certain = await speaker.flush() and await listener.flush()
                if certain and same_server:
                    break
                try:
                    async with asyncio.timeout(_AGAIN):
                        await heard.wait()
                except TimeoutError:
                    continue
    except TimeoutError:
        pass
    finally:
        for link in (listener, speaker):
            link.forget(on_refusal)
        await subscription.unsubscribe()
        await subscription.release()
    return None if refused.is_set() and not heard.is_set() else heard.is_set()
