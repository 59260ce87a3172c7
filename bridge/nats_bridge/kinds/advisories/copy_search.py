"""Finds a message that its stream has removed in a stream that copied it, by its source record.

A mirror keeps sequence numbers. Elsewhere copies of one source stand in the order of the source, so that a binary
search over their records finds one with about as many requests as the number of messages has bits.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from nats_bridge.client.jetstream_api import STREAM_NOT_FOUND, JetStreamApi
from nats_bridge.errors import ApiError
from nats_transforms.republish import StoredMessage
from nats_transforms.source_record import SourceRecord, last_record

_STEPS: Final = 1000  # messages of others that a step of the search goes past before it gives up


class CopySearch:
    """Finds copies.

    Args:
        api: the API of the connection that holds the streams.
    """

    def __init__(self, api: JetStreamApi, streams: Sequence[str]) -> None:
        self._api = api
        self._streams = streams

    async def find(self, source: str, sequence: int) -> StoredMessage | None:
        """Return the copy of a message, restored to its form in the source as far as possible.

        None if no copy is found.
        """
        for stream in self._streams:
            try:
                found = await self._find_in(stream, source, sequence)
            except ApiError as error:
                if error.err_code != STREAM_NOT_FOUND:
                    raise
                continue
            if found is not None:
                return found
        return None

    async def _find_in(self, stream: str, source: str, sequence: int) -> StoredMessage | None:
        info = await self._api.stream_info(stream)
        mirror = info["config"].get("mirror") or {}
        if mirror.get("name") == source and not mirror.get("external"):  # else of another account's stream
            return await self._api.stored_message(stream, sequence)
        low, high = int(info["state"]["first_seq"]), int(info["state"]["last_seq"])
        while low <= high:
            middle = (low + high) // 2
            copy, record = await self._copy_from(stream, source, middle)
            if copy is None or record is None or copy.sequence > high:
                high = middle - 1
            elif record.sequence == sequence:
                return replace(copy, subject=record.subject or copy.subject, sequence=sequence)
            elif record.sequence < sequence:
                low = copy.sequence + 1
            else:
                high = middle - 1
        return None

    async def _copy_from(
        self, stream: str, source: str, sequence: int
    ) -> tuple[StoredMessage | None, SourceRecord | None]:
        """Return the first copy from the source at or after a sequence."""
        for _ in range(_STEPS):
            message = await self._api.message_from(stream, sequence)
            if message is None:
                break
            record = last_record(message.header_block)
            name, _, rest = record.source.partition(b":") if record is not None else (b"", b"", b"")
            if name == source.encode() and (not rest or rest.startswith(b"C=")):  # of the account itself
                return message, record
            sequence = message.sequence + 1
        return None, None
