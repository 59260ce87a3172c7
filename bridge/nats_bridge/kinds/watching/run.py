"""Runs a watch rule: native mirrors and sources of an account, compared again and again with their sources.

Theory of operation. One task compares all links, at a bounded rate of requests, and begins again an interval after it
began. The result is one tuple, which status and metrics read. A failed comparison changes nothing: known stalls stay,
and time without an answer does not count against the others.
"""

import asyncio
import math
from collections.abc import Iterator, Sequence
from typing import Any

from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import Json
from nats_bridge.client.tasks import end_tasks
from nats_bridge.errors import ApiError, NotPermittedError
from nats_bridge.kinds.watching.counters import WatchCounters
from nats_bridge.kinds.watching.link import links_of
from nats_bridge.kinds.watching.model import WatchRule
from nats_bridge.kinds.watching.request_rate import RequestRate
from nats_bridge.kinds.watching.watch import CONDITIONS, LinkState, StreamSelection, Watch
from nats_bridge.rules.context import RuleContext
from nats_bridge.rules.run import RuleRun
from nats_bridge.telemetry import names
from nats_bridge.telemetry.names import Metric

_AGAIN = 600.0  # seconds from the end of a stall until the leader of the same stream may be asked to step down again
_NOT_SEEN = "not_permitted"  # the code of links that the user may not read


class WatchRun(RuleRun):
    """One watch rule.

    Args:
        connection: the connection whose account is watched.
    """

    rule: WatchRule

    def __init__(self, rule: WatchRule, connection: Connection, context: RuleContext) -> None:
        super().__init__(rule, WatchCounters(), context, "", connection)
        self._connection = connection
        self._selection = StreamSelection(rule.watched_streams)
        rate = RequestRate(rule.max_requests)
        self._watch = Watch(connection, rule.stalled_after, rate, self._selection)
        self._states: tuple[LinkState, ...] = ()
        self._logged: dict[object, str] = {}  # by link, the code of the reason
        self._helped: dict[str, str] = {}  # for each stalled stream, the action taken about its leader
        self._next_step_down: dict[str, float] = {}  # by stream, the time when its leader may be asked again
        self._unseen = "the first comparison"
        self._missing: dict[str, str] = {}
        self._looking: asyncio.Task[None] | None = None

    # -- life --------------------------------------------------------------------------------------------------------

    async def check(self) -> None:
        """Check that the account may be watched. Change nothing.

        Raises:
            NotPermittedError: the user may not ask.
            ApiError: the server does not answer.
        """
        listed, _ = await self._connection.api.streams()
        await self._connection.api.request("INFO")
        self.remarks = tuple(self._remarks(listed))

    def _remarks(self, listed: Sequence[Json]) -> Iterator[str]:
        infos = {info["config"]["name"]: info for info in listed}
        links = [link for link in links_of(listed) if link.target in self._selection]
        for name, lacks in self._selection.unwatched(infos, links).items():
            yield f"stream '{name}' {lacks}: there is nothing to watch until it has"
        watched = {link.target for link in links}
        has_replicas = any((infos[name].get("cluster") or {}).get("replicas") for name in watched)
        if self.rule.on_stall == "step_down" and watched and not has_replicas:
            yield "on_stall: step_down does nothing here: no watched stream has another server that can lead it"

    async def _open(self) -> dict[str, Any]:
        self.metrics.follow(self.rule.kind, self.counters)
        self._looking = self._follow(asyncio.create_task(self._look_until_stopped()))
        return {"streams": list(self.rule.watched_streams), "on_stall": self.rule.on_stall}

    async def _drain(self, *, failed: bool) -> None:
        await end_tasks(self._looking)

    async def _close(self) -> None:
        await end_tasks(self._looking)
        self._states = ()

    @property
    def ready(self) -> bool:
        """Whether it sees everything that it watches. Stalls count only with `unready_on_stall`."""
        return self.state == "ready" and self._connection.client.is_connected and self._waits_for() is None

    def _waits_for(self) -> str | None:
        if self._unseen:
            return self._unseen
        for stream, lacks in self._missing.items():
            return f"stream '{stream}', which {lacks}"
        if self.rule.unready_on_stall:
            for state in self._states:
                if state.condition == "stalled" and state.reason is not None:
                    return f"{state.link.name}, which is stalled: {state.reason.text}"
        return None

    def status(self) -> dict[str, Any]:
        """Return the watched copies, stalled ones first; see `RuleRun`."""
        copies = [
            {**state.as_dict(), "step_down": self._helped.get(state.link.target)}
            for state in sorted(self._states, key=lambda state: state.condition != "stalled")
        ]
        return {"stream": None, "position": None, "copies": copies}

    def readings(self) -> Iterator[tuple[Metric, tuple[str, ...], float]]:
        """Yield the measurements of each copy; see `RuleRun`."""
        for state in self._states:
            labels = (state.link.target, state.link.source, state.link.place)
            if state.missing is not None:
                yield names.WATCHED_MISSING, labels, state.missing
            yield names.WATCHED_STALLED, labels, state.stalled if state.condition == "stalled" else 0
            for condition in CONDITIONS:
                yield names.WATCHED_STATE, (*labels, condition), int(condition == state.condition)

    # -- looking -----------------------------------------------------------------------------------------------------

    async def _look_until_stopped(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._connection.connected()
            due = loop.time() + self.rule.interval
            try:
                states = await self._watch.look()
            except NotPermittedError as error:
                self._fail(error)
                return
            except ApiError as error:
                self.counters.failed_looks += 1
                self._unseen = f"an answer of the account: {error}"
                self._warn("watch.not_seen", reason=str(error))
            else:
                self._take(states, loop.time())
                if self.rule.on_stall == "step_down":
                    await self._help(states, loop.time())
            await asyncio.sleep(max(due - loop.time(), 0))

    def _take(self, states: Sequence[LinkState], now: float) -> None:
        self._states, self._unseen = tuple(states), ""
        self.counters.looks += 1
        self.metrics.progressed()
        for stream, lacks in self._watch.unwatched.items():
            if self._missing.get(stream) != lacks:
                self._log.warning("watch.nothing_to_watch", stream=stream, reason=f"stream '{stream}' {lacks}")
        self._missing = dict(self._watch.unwatched)
        before, self._logged = self._logged, {}
        for state in states:
            self._log_change(state, before.get(state.link.identity))
        stalled = {state.link.target for state in states if state.condition == "stalled"}
        for stream in self._helped.keys() - stalled:
            del self._helped[stream]
            if stream in self._next_step_down:
                self._next_step_down[stream] = now + _AGAIN

    def _log_change(self, state: LinkState, before: str | None) -> None:
        """Log and count the beginning or end of a link's stall, given the code that was logged before."""
        log, reason = self._log.bind(stream=state.link.target, source=state.link.source), state.reason
        was_stalled = before not in (None, _NOT_SEEN)
        if reason is None:
            if state.condition == "unknown" and before is not None:
                self._logged[state.link.identity] = before
            elif was_stalled:
                self.counters.recoveries += 1
                log.info("watch.recovered", missing=state.missing, position=state.position)
            return
        self._logged[state.link.identity] = reason.code
        if state.condition == "unknown":
            if before != reason.code:
                log.warning("watch.not_seen", reason=reason.text)
            return
        self.counters.stalls += not was_stalled
        if before != reason.code:
            log.warning(
                "watch.stalled",
                code=reason.code,
                reason=reason.text,
                remedy=reason.remedy,
                missing=state.missing,
                seconds=round(state.stalled, 1),
            )

    # -- a stalled copy's leader -------------------------------------------------------------------------------------

    async def _help(self, states: Sequence[LinkState], now: float) -> None:
        """Have one leader step down, if one may be asked and that can help: once in a stall."""
        for state in states:
            stream = state.link.target
            if state.condition != "stalled" or now < self._next_step_down.get(stream, now):
                continue
            log = self._log.bind(stream=stream, source=state.link.source)
            if refusal := _why_not(state):
                if self._helped.get(stream) != refusal:
                    self._helped[stream] = refusal
                    log.warning("watch.no_step_down", reason=refusal)
                continue
            self._next_step_down[stream] = math.inf  # in this stall not again
            try:
                await self._connection.api.request(
                    f"STREAM.LEADER.STEPDOWN.{stream}", fence=self._context.fence, patience=0
                )
            except ApiError as error:
                self._helped[stream] = f"refused: {error.description}"
                log.warning("watch.no_step_down", reason=str(error))
            else:
                self.counters.step_downs += 1
                self._helped[stream] = f"asked of {state.leader}"
                log.warning("watch.stepped_down", leader=state.leader)
            return


def _why_not(state: LinkState) -> str:
    """Return the reason why the leader of a stalled copy is not asked to step down; empty if it may be."""
    assert state.reason is not None
    if not state.reason.new_leader_helps:
        return f"another leader does not help: {state.reason.code}"
    if not state.replicas:
        return "no other server can lead it: it has one replica, or its server is in no cluster; restart that server"
    return ""
