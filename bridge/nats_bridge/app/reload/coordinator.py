"""Reloads the configuration on a signal, on request, and when the file changes; one reload at a time."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import structlog

from nats_bridge.app.reload.file_watch import changes_of, content_hash
from nats_bridge.client.tasks import end_tasks
from nats_bridge.errors import BridgeError
from nats_bridge.settings import Settings, load

_log = structlog.get_logger("bridge.reload")

_AGAIN = 10.0  # seconds until a file that could not be taken because of a server is tried again, if it is watched


@dataclass(frozen=True, slots=True)
class ReloadFacts:
    """The outcome of a reload.

    Attributes:
        result: `applied`, `unchanged` (nothing differs), or `refused`: the previous configuration stays in force.
        at: when it was decided.
        asked_by: the trigger, such as `SIGHUP`.
        reason: the reason for a refusal; empty otherwise.
        changed: names of the rules that were changed, added or removed.
        retriable: whether the same file may be taken later.
    """

    result: Literal["applied", "refused", "unchanged"]
    at: datetime
    asked_by: str
    reason: str = ""
    changed: tuple[str, ...] = ()
    retriable: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "result": self.result,
            "at": self.at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "asked_by": self.asked_by,
            "reason": self.reason or None,
            "changed": list(self.changed),
        }


class Reloader:
    """Reads the file again and applies it.

    Args:
        path: the configuration file; None if there is none, and every reload is refused.
        file_hash: the hash of the content in force.
        take: applies a configuration, or raises a `BridgeError` and changes nothing. It returns the names of the rules
            that were changed, added or removed, or None if nothing differed.
        watches: whether a changed file is reloaded automatically at this moment.

    Attributes:
        file_hash: the hash of the content in force; None if unknown.
        loaded_at: when that was read.
        last: how the last reload went.
        results: the number of reloads, by result.
    """

    def __init__(
        self,
        path: Path | None,
        file_hash: str | None,
        take: Callable[[Settings], Awaitable[tuple[str, ...] | None]],
        watches: Callable[[], bool],
    ) -> None:
        self.file_hash = file_hash
        self.loaded_at = datetime.now(UTC)
        self.last: ReloadFacts | None = None
        self.results = {"applied": 0, "refused": 0, "unchanged": 0}
        self._path = path
        self._take = take
        self._watches = watches
        self._seen = file_hash  # of the content that was checked last, applied or not
        self._asked: asyncio.Queue[str] = asyncio.Queue()
        self._waiting: list[asyncio.Future[ReloadFacts]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._closed = False
        self._again_at = 0.0

    def start(self) -> None:
        """Accept reloads, and watch the file."""
        self._tasks.append(asyncio.create_task(self._work()))
        if self._path is not None:
            self._tasks.append(asyncio.create_task(self._watch(self._path)))

    async def close(self) -> None:
        """Start no more reloads, but let a running one finish."""
        self._closed = True
        await end_tasks(*self._tasks)
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(self._refused("", "the sidecar is draining"))

    async def reload(self, asked_by: str) -> ReloadFacts:
        """Read the file and apply it, after a running reload, together with others that wait."""
        if self._closed:
            return self._refused(asked_by, "the sidecar is draining")
        answer: asyncio.Future[ReloadFacts] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        self._asked.put_nowait(asked_by)
        return await answer

    async def _work(self) -> None:
        while True:
            asked_by = await self._asked.get()
            while not self._asked.empty():  # the content that is read now serves all requests so far
                asked_by = self._asked.get_nowait()
            waiting, self._waiting = self._waiting, []
            try:
                facts = await self._reload(asked_by)
            except asyncio.CancelledError:
                self._waiting += waiting
                raise
            self.last = facts
            self._again_at = asyncio.get_running_loop().time() + _AGAIN
            self.results[facts.result] += 1
            for answer in waiting:
                if not answer.done():
                    answer.set_result(facts)

    async def _reload(self, asked_by: str) -> ReloadFacts:
        if self._path is None:
            return self._refused(asked_by, "the configuration was not read from a file")
        _log.info("reload.begins", asked_by=asked_by, config=str(self._path))
        # Before it is read: if it changes afterwards, the watch sees that.
        seen = self._seen = await asyncio.to_thread(content_hash, self._path)
        try:
            settings = await asyncio.to_thread(load, self._path)
            changed = await self._take(settings)
        except BridgeError as error:
            return self._refused(asked_by, str(error), retriable=error.retriable)
        except Exception as error:
            _log.error("reload.failed", reason=str(error), exc_info=error)
            return self._refused(asked_by, f"unexpected {type(error).__name__}: {error}")
        self.file_hash, self.loaded_at = seen, datetime.now(UTC)
        if changed is not None:
            _log.info("reload.applied", asked_by=asked_by, rules=list(changed))
        else:
            _log.info("reload.unchanged", asked_by=asked_by)
        result: Literal["applied", "unchanged"] = "unchanged" if changed is None else "applied"
        return ReloadFacts(result, datetime.now(UTC), asked_by, changed=changed or ())

    def _refused(self, asked_by: str, reason: str, *, retriable: bool = False) -> ReloadFacts:
        _log.error(
            "reload.refused", asked_by=asked_by, reason=reason, meaning="the previous configuration stays in force"
        )
        return ReloadFacts("refused", datetime.now(UTC), asked_by, reason, retriable=retriable)

    async def _watch(self, path: Path) -> None:
        async for found in changes_of(path):
            if not self._watches():
                continue
            if found != self._seen:
                await self.reload("file changed")
            elif self.last is not None and self.last.retriable and asyncio.get_running_loop().time() >= self._again_at:
                await self.reload("file changed, tried again")
