"""Copies that several tasks have begun to store and not ended: the newest ones then show no position.

`nats-bridge backfill --parallel` stores copies in whatever order, and those that show a rule where to resume only at
its end. A rule that started before that would take the newest copies for all that there are, and leave messages out or
copy them twice. So the job leaves a mark until it has come to its end: a durable consumer of the source that no client
reads from, which outlives the job and restarts of the server. A rule looks for it before it believes any copy.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from nats_bridge.bridge.client.jetstream_api import JetStreamApi
from nats_bridge.bridge.errors import RuleRefusedError

__all__ = ["UnfinishedCopies"]

_RANGE = re.compile(r"copies ([0-9]+) to ([0-9]+) ")


@dataclass(frozen=True, slots=True)
class UnfinishedCopies:
    """The mark of one entry in one target; it means nothing to other entries, a new source or a new target.

    Attributes:
        api: the API of the connection that holds the source.
        source: the source's name.
        key: the entry's key with the present source.
        target: the target's name.
        created: when the target was created, as `STREAM.INFO` reports it.
    """

    api: JetStreamApi
    source: str
    key: bytes
    target: str
    created: str

    @property
    def consumer(self) -> str:
        """The consumer's name."""
        place = hashlib.sha256(f"{self.target}\n{self.created}".encode()).hexdigest()[: len(self.key)]
        return f"nats-bridge_unfinished_{self.key.decode()}_{place}"

    async def refuse(self, rule: str) -> None:
        """Let no rule resume after unfinished copies.

        Raises:
            RuleRefusedError: there are such.
            ApiError: the server cannot be asked.
        """
        held = await self.range()
        if held is not None:
            raise RuleRefusedError(
                f"rule '{rule}': a backfill --parallel has begun to copy {held[0]} to {held[1]} of '{self.source}' into"
                f" '{self.target}' and has not come to its end, so the position is unknown: let it end, or run"
                f" it again (its mark is consumer '{self.consumer}' of stream '{self.source}')"
            )

    async def range(self) -> tuple[int, int] | None:
        """The source's first and last sequence that are being copied; None if nothing is unfinished.

        Raises:
            ApiError: the server cannot be asked.
        """
        info = await self.api.consumer_info(self.source, self.consumer)
        if info is None:
            return None
        reported = _RANGE.search(str(info["config"].get("description", "")))
        return (int(reported[1]), int(reported[2])) if reported else (0, 0)

    async def begin(self, first: int, last: int) -> None:
        """From now on there are unfinished copies.

        Args:
            first: the source's first sequence that will be copied.
            last: the last one.

        Raises:
            ApiError: the server refuses, or cannot be asked.
        """
        await self.api.create_durable(
            self.source,
            {
                "durable_name": self.consumer,
                "description": f"nats-bridge copies {first} to {last} into {self.target} (backfill --parallel)",
                "deliver_policy": "new",
                "ack_policy": "explicit",
                "replay_policy": "instant",
                "max_ack_pending": 1,
            },
        )

    async def end(self) -> None:
        """End the mark: from now on the newest copies show the position.

        Raises:
            ApiError: the server refuses, or cannot be asked.
        """
        await self.api.delete_consumer(self.source, self.consumer)
