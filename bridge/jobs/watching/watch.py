"""Compares all links of an account until each makes progress or is stalled for certain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nats_bridge.bridge.client.connection import Connection
from nats_bridge.bridge.client.jetstream_api import Json
from nats_bridge.bridge.jobs.watching.link import Link, links_of
from nats_bridge.bridge.jobs.watching.looking import Looking, Sight
from nats_bridge.bridge.jobs.watching.progress import Progress
from nats_bridge.bridge.jobs.watching.reasons import Reason, overtaken, reason_of

__all__ = ["LinkState", "Watch"]


@dataclass(frozen=True, slots=True)
class LinkState:
    """The state of one link.

    Attributes:
        link: the link.
        behind: whether messages are missing, or the source cannot be read, or is another one than was copied.
        missing: how many messages the target lacks; None where that is unknown.
        position: the newest sequence of the source that the target has.
        last: the newest sequence of the source; None where that is unknown.
        stalled: seconds without progress; 0 while there is some.
        overtaken: how many sequences the source removed before they were copied.
        reported_lag: what the server says; None if it says nothing.
        reason: of a stall that lasts long enough.
    """

    link: Link
    behind: bool
    missing: int | None
    position: int
    last: int | None
    stalled: float
    overtaken: int
    reported_lag: int | None
    reason: Reason | None

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "target": self.link.target,
            "source": self.link.source,
            "mirror": self.link.is_mirror,
            "filters": list(self.link.filters),
            "api": self.link.api,
            "missing": self.missing,
            "position": self.position,
            "source_last": self.last,
            "stalled_seconds": round(self.stalled, 1),
            "overtaken": self.overtaken,
            "reported_lag": self.reported_lag,
            "reason": self.reason
            and {"code": self.reason.code, "text": self.reason.text, "remedy": self.reason.remedy},
        }


class Watch:
    """Watches the links of one account.

    Args:
        connection: its connection.
        stalled_after: seconds without progress that make a stall.
        clock: the time in seconds.
    """

    def __init__(self, connection: Connection, stalled_after: float, clock: Callable[[], float] | None = None) -> None:
        self._connection = connection
        self._stalled_after = stalled_after
        self._clock = clock or asyncio.get_running_loop().time
        self._looking: dict[object, tuple[Looking, Progress]] = {}

    async def look(self) -> list[LinkState]:
        """Compare source and target of every link there is now.

        Raises:
            ApiError: the server cannot be asked.
        """
        listed, _ = await self._connection.api.streams()
        links = {link.identity: link for link in links_of(listed)}
        for identity in [known for known in self._looking if known not in links]:
            del self._looking[identity]
        for identity, link in links.items():
            self._looking.setdefault(identity, (Looking(self._connection, link), Progress()))
        infos = {info["config"]["name"]: info for info in listed}
        account = await self._account() if links else {}
        return await asyncio.gather(*(self._state(identity, infos, account) for identity in links))

    async def _state(self, identity: object, infos: dict[str, Json], account: dict[str, int]) -> LinkState:
        looking, progress = self._looking[identity]
        sight = await looking.look(infos[looking.link.target])
        now = self._clock()
        progress.see(now, sight.mark, sight.is_behind)
        stalled = progress.stalled_for(now)
        is_stalled = progress.since is not None and stalled >= self._stalled_after
        return LinkState(
            looking.link,
            sight.is_behind,
            sight.missing,
            sight.position,
            int(sight.source["state"]["last_seq"]) if sight.source is not None else None,
            stalled,
            overtaken(sight),
            sight.reported.get("lag"),
            self._reason(sight, account) if is_stalled else None,
        )

    def _reason(self, sight: Sight, account: dict[str, int]) -> Reason:
        version = self._connection.client.connected_server_version
        return reason_of(sight, (version.major, version.minor, version.patch), account)

    async def _account(self) -> dict[str, int]:
        info = await self._connection.api.request("INFO")
        limits = info.get("limits") or {}
        return {
            "storage": int(info.get("storage", 0)),
            "memory": int(info.get("memory", 0)),
            "max_storage": int(limits.get("max_storage", -1)),
            "max_memory": int(limits.get("max_memory", -1)),
        }
