"""All links of an account, compared until each is known to make progress or to be stalled."""

import asyncio
import re
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import Json
from nats_bridge.client.tasks import end_tasks
from nats_bridge.errors import ApiError, NotPermittedError
from nats_bridge.kinds.watching.link import Link, links_of
from nats_bridge.kinds.watching.looking import Looking, Sight
from nats_bridge.kinds.watching.reasons import Reason, leaderless, not_permitted, overtaken, reason_of
from nats_bridge.kinds.watching.request_rate import RequestRate
from nats_transforms.dialect import server_dialect

Condition: TypeAlias = Literal["complete", "behind", "stalled", "unknown"]
CONDITIONS: Final[tuple[Condition, ...]] = ("complete", "behind", "stalled", "unknown")
"""`complete`: nothing is missing; `behind`: it makes progress, or has made none for a short time only."""


@dataclass(frozen=True, slots=True)
class LinkState:
    """The state of one link.

    Attributes:
        condition: how it does.
        missing: the number of messages missing in the target; None if unknown.
        position: the newest sequence of the source that the target has.
        last: the newest sequence of the source; None if unknown.
        stalled: seconds without progress; 0 while it makes progress.
        overtaken: the number of sequences that the source removed before they were copied.
        reported_lag: the lag that the server reports; None without one.
        reason: of a stall that lasts long enough, or why nothing is known.
        replicas: the number of other servers that can lead the target.
        leader: the server that leads it; None outside a cluster.
    """

    link: Link
    condition: Condition
    missing: int | None = None
    position: int = 0
    last: int | None = None
    stalled: float = 0.0
    overtaken: int = 0
    reported_lag: int | None = None
    reason: Reason | None = None
    replicas: int = 0
    leader: str | None = None

    @property
    def behind(self) -> bool:
        """Whether messages are missing, or the source cannot be read, or is another one than was copied."""
        return self.condition != "complete"

    def as_dict(self) -> dict[str, Any]:
        """Return the state as plain data."""
        return {
            "target": self.link.target,
            "source": self.link.source,
            "mirror": self.link.is_mirror,
            "entry": self.link.place,
            "filters": list(self.link.filters),
            "api": self.link.api,
            "condition": self.condition,
            "missing": self.missing,
            "position": self.position,
            "source_last": self.last,
            "stalled_seconds": round(self.stalled, 1),
            "overtaken": self.overtaken,
            "reported_lag": self.reported_lag,
            "reason": self.reason
            and {"code": self.reason.code, "text": self.reason.text, "remedy": self.reason.remedy},
        }


@dataclass(slots=True)
class LinkProgress:
    """Since when one link makes no progress. Pure.

    A stall takes at least three observations: of the time between two of them, at most half the limit counts. If this
    process was paused for longer, the servers may have been paused as well.

    Attributes:
        stalled_after: seconds without progress that make a stall.
        since: the time, on the caller's clock, when it was first seen without progress; None while it makes progress.
        is_stalled: whether it is stalled, which lasts until it makes progress.
    """

    stalled_after: float
    since: float | None = None
    is_stalled: bool = False
    _mark: tuple[int, ...] = ()
    _seen_at: float = 0.0
    _observed: float = 0.0

    def see(self, now: float, mark: tuple[int, ...], behind: bool) -> None:
        """Take a look.

        Args:
            now: seconds of the caller's clock.
            mark: a value that changes whenever a message is stored; see `Sight.mark`.
            behind: whether something is missing in the target, or the source cannot be read.
        """
        if not behind or mark != self._mark:
            self.since = now if behind else None
            self.is_stalled, self._observed = False, 0.0
        else:
            self._without_progress(now)
        self._mark, self._seen_at = mark, now

    def see_nothing(self, now: float) -> None:
        """Note that the target's leader does not answer, although its cluster does."""
        self._without_progress(now)
        self._seen_at = now

    def interrupted(self) -> None:
        """Note that a comparison failed. The time until the next one does not count as a stall."""
        if not self.is_stalled:
            self.since, self._observed = None, 0.0

    def stalled_for(self, now: float) -> float:
        """Return the seconds without progress; 0 while it makes progress."""
        return 0.0 if self.since is None else now - self.since

    def _without_progress(self, now: float) -> None:
        if self.since is None:
            self.since = now
            return
        self._observed += min(now - self._seen_at, self.stalled_after / 2)
        if self._observed >= self.stalled_after:
            self.is_stalled = True


@dataclass(slots=True)
class _Watched:
    looking: Looking
    progress: LinkProgress
    state: LinkState


class StreamSelection:
    """Names of streams, with `*` for any characters.

    Attributes:
        named: those without `*`: streams that must be there.
    """

    def __init__(self, patterns: Iterable[str] = ("*",)) -> None:
        patterns = tuple(patterns)
        self.named = tuple(each for each in patterns if "*" not in each)
        alternatives = "|".join(re.escape(each).replace(r"\*", ".*") for each in patterns)
        self._selected = re.compile(alternatives, re.DOTALL)

    def __contains__(self, stream: str) -> bool:
        return self._selected.fullmatch(stream) is not None

    def unwatched(self, streams: Container[str], links: Iterable[Link], silent: Container[str] = ()) -> dict[str, str]:
        """Return the streams that it names and that have nothing to watch, with the reason.

        Args:
            streams: the streams that exist in the account.
            links: the links of all streams.
            silent: the streams that did not answer.
        """
        targets = {link.target for link in links}
        return {
            name: "has no mirror and no sources" if name in streams else "does not exist"
            for name in self.named
            if name not in silent and name not in targets
        }


@dataclass(slots=True)
class Watch:
    """Watches the links of one account.

    Attributes:
        stalled_after: seconds without progress that make a stall.
        rate: the limit of requests.
        selection: the streams whose mirrors and sources are watched.
        clock: the time in seconds.
        unwatched: streams that the selection names but that have no links, with the reason; from the last comparison.
    """

    connection: Connection
    stalled_after: float
    rate: RequestRate
    selection: StreamSelection = field(default_factory=StreamSelection)
    clock: Callable[[], float] = field(default_factory=lambda: asyncio.get_running_loop().time)
    unwatched: dict[str, str] = field(default_factory=dict)
    _watched: dict[object, _Watched] = field(default_factory=dict)

    async def look(self) -> list[LinkState]:
        """Compare source and target of every link there is now."""
        try:
            return await self._look()
        except ApiError:
            for watched in self._watched.values():
                watched.progress.interrupted()
            raise

    async def _look(self) -> list[LinkState]:
        await self.rate.turn()
        listed, silent = await self.connection.api.streams()
        # Servers list a stream whose servers are all away, by its configuration (2.15).
        infos = {info["config"]["name"]: info for info in listed if info["config"]["name"] not in silent}
        links = {link.identity: link for link in links_of(listed) if link.target in self.selection}
        away = {known for known, watched in self._watched.items() if watched.looking.link.target in silent}
        for identity in self._watched.keys() - links.keys() - away:
            del self._watched[identity]
        for identity, link in links.items():
            known = self._watched.get(identity)
            if known is None:
                looking = Looking(self.connection, link, self.rate)
                self._watched[identity] = _Watched(
                    looking, LinkProgress(self.stalled_after), LinkState(link, "unknown")
                )
            else:
                known.looking.link = link  # whose place in `sources` may be another one
        self.unwatched = self.selection.unwatched(infos, links.values(), silent)
        account = await self._account() if links else {}
        # All at once: the rate limit spreads their requests.
        looks = [asyncio.create_task(self._state(watched, infos, account)) for watched in self._watched.values()]
        try:
            return await asyncio.gather(*looks)
        finally:
            await end_tasks(*looks)

    async def _state(self, watched: _Watched, infos: dict[str, Json], account: dict[str, int]) -> LinkState:
        link, progress = watched.looking.link, watched.progress
        target = infos.get(link.target)
        if target is None:
            progress.see_nothing(self.clock())
            watched.state = replace(
                watched.state,
                condition="stalled" if progress.is_stalled else "unknown",
                stalled=progress.stalled_for(self.clock()),
                reason=leaderless(link.target) if progress.is_stalled else None,
            )
            return watched.state
        try:
            sight = await watched.looking.look(target, None if link.is_external else infos.get(link.source))
        except NotPermittedError as error:
            progress.interrupted()
            watched.state = LinkState(link, "unknown", reason=not_permitted(error))
            return watched.state
        except ApiError:
            if not self.connection.client.is_connected:
                raise
            progress.interrupted()  # the target has just lost its leader, or was deleted
            watched.state = replace(watched.state, condition="stalled" if progress.is_stalled else "unknown")
            return watched.state
        now = self.clock()
        progress.see(now, sight.mark, sight.is_behind)
        cluster = target.get("cluster") or {}
        watched.state = LinkState(
            link,
            "stalled" if progress.is_stalled else "behind" if sight.is_behind else "complete",
            sight.missing,
            sight.position,
            int(sight.source["state"]["last_seq"]) if sight.source is not None else None,
            progress.stalled_for(now),
            overtaken(sight),
            sight.reported.get("lag"),
            self._reason(sight, account) if progress.is_stalled else None,
            len(cluster.get("replicas") or ()),
            cluster.get("leader"),
        )
        return watched.state

    def _reason(self, sight: Sight, account: dict[str, int]) -> Reason:
        return reason_of(sight, server_dialect(self.connection.server_version), account)

    async def _account(self) -> dict[str, int]:
        await self.rate.turn()
        info = await self.connection.api.request("INFO")
        limits = info.get("limits") or {}
        return {
            "storage": int(info.get("storage", 0)),
            "memory": int(info.get("memory", 0)),
            "max_storage": int(limits.get("max_storage", -1)),
            "max_memory": int(limits.get("max_memory", -1)),
        }
