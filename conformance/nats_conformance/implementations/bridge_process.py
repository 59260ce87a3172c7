"""The bridge as users run it: `nats-bridge` as a process, its log, its status, its exit code."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self

import aiohttp

from nats_conformance.errors import SubjectError

LIMIT: Final = 60.0
"""Seconds until a process that does not respond counts as stuck; generous, because machines can be busy."""
_LOOK: Final = 0.01
_LAST_EVENTS: Final = ("sidecar.ended", "sidecar.refused")


class SidecarEndedError(Exception):
    """The sidecar ended by itself. `rule` is the name of the rule that made it end, if its log names one."""

    def __init__(self, reason: str, rule: str | None) -> None:
        super().__init__(reason)
        self.rule = rule


@dataclass(frozen=True, slots=True)
class RefusedRule:
    """Why the bridge refuses a rule.

    Attributes:
        text: for a person.
        err_code: the number of the error with which a server refuses the same; 0 if none is named.
        is_loop: whether the rule takes part in a loop.
    """

    text: str
    err_code: int = 0
    is_loop: bool = False


async def check(file: Path, *, servers: bool) -> dict[str, RefusedRule]:
    """Run `nats-bridge check`; with `servers`, also against these. Return the refused rules, by name.

    Raises:
        SubjectError: its output cannot be parsed, or something else than a rule is wrong.
    """
    more = ("--server", "config") if servers else ()
    process = await asyncio.create_subprocess_exec(
        *(*_command(), "check", "-c", str(file), "--json", *more),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=_environment(),
    )
    try:
        async with asyncio.timeout(LIMIT):
            said, complaint = await process.communicate()
        answer = json.loads(said)
        refused: dict[str, RefusedRule] = {}
        for each in answer["findings"]:
            if not each["ok"] and each["code"] != "stream_missing":  # the sidecar waits for a missing stream
                found = RefusedRule(each["text"], each.get("err_code", 0), each["code"] == "loop")
                refused.setdefault(each["rule"], found)
        if "" in refused or (answer["problems"] and (servers or not refused)):
            raise SubjectError(f"nats-bridge check: {'; '.join(answer['problems'])}")
    except TimeoutError:
        raise SubjectError(f"nats-bridge check did not end within {LIMIT:g} s") from None
    except (ValueError, KeyError, TypeError):
        reported = complaint.decode("utf-8", "replace").strip()
        raise SubjectError(f"nats-bridge check ended with {process.returncode}: {reported or said!r}") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return refused


class RunningSidecar:
    """A running `nats-bridge run`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._log: list[dict[str, Any]] = []
        self._plain: list[str] = []
        self._ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._reader = asyncio.create_task(self._read())
        self._http: aiohttp.ClientSession | None = None
        self._address = ""
        self._looking: asyncio.Task[dict[str, Any]] | None = None

    @classmethod
    async def start(cls, file: Path) -> Self:
        """Start, and wait until it is ready.

        Raises:
            SidecarEndedError: it refused to start.
        """
        process = await asyncio.create_subprocess_exec(
            *(*_command(), "run", "-c", str(file)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=_environment(),
            limit=1 << 24,
        )
        sidecar = cls(process)
        try:
            async with asyncio.timeout(LIMIT):
                sidecar._address = await sidecar._ready
        except TimeoutError:
            await sidecar.kill()
            raise SubjectError(f"the sidecar was not ready within {LIMIT:g} s: {sidecar._last_words()}") from None
        except BaseException:
            await sidecar.kill()
            raise
        sidecar._http = aiohttp.ClientSession()
        return sidecar

    async def until(self, holds: Callable[[Mapping[str, Any]], bool], what: str, limit: float = LIMIT) -> None:
        """Wait until a condition is true for the rules' status (by name, as in `/status`), for `limit` seconds.

        Raises:
            SidecarEndedError: it ended before.
            SubjectError: the condition never becomes true.
        """
        rules: dict[str, Any] = {}
        try:
            async with asyncio.timeout(limit):
                while True:
                    rules = await self.status()
                    if holds(rules):
                        return
                    await asyncio.sleep(_LOOK)
        except TimeoutError:
            raise SubjectError(f"{what}: not within {limit:g} s; the status is {rules}") from None

    async def status(self) -> dict[str, Any]:
        """Return the status of every rule, by name. Simultaneous callers get the same answer."""
        if self._reader.done():
            raise self._ended()
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        return await asyncio.shield(self._looking)

    async def _look(self) -> dict[str, Any]:
        assert self._http is not None
        try:
            async with self._http.get(f"http://{self._address}/status") as answer:
                reported = await answer.json()
        except aiohttp.ClientError as error:
            await self._reader
            raise self._ended() from error
        for rule in reported["rules"]:
            if rule["state"] == "failed":
                await self._reader
                raise self._ended()
        return {rule["name"]: rule for rule in reported["rules"]}

    async def stop(self) -> None:
        """SIGTERM, and wait until it has drained.

        Raises:
            SidecarEndedError: it ended with an error.
        """
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(LIMIT):
                code = await self._process.wait()
                await self._reader
        except TimeoutError:
            raise SubjectError(f"the sidecar did not end within {LIMIT:g} s of SIGTERM") from None
        if code:
            raise self._ended()

    async def kill(self) -> None:
        """Kill the process, and close everything that belongs to it."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await asyncio.wait([self._reader])
        if self._http is not None:
            await self._http.close()

    async def _read(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            text = line.decode("utf-8", "replace").rstrip("\n")
            entry = json.loads(text) if text.startswith("{") else None
            if entry is None:
                self._plain.append(text)
                continue
            self._log.append(entry)
            if entry.get("event") == "sidecar.ready" and not self._ready.done():
                self._ready.set_result(str(entry["http"]))
        await self._process.wait()
        if not self._ready.done():
            self._ready.set_exception(self._ended())

    def _ended(self) -> SidecarEndedError:
        """Return the reason why it ended, from its own output."""
        failed = next((each for each in self._log if each.get("event") == "rule.failed"), None)
        if failed is not None:
            return SidecarEndedError(str(failed.get("reason")), failed.get("rule"))
        late = next((each for each in self._log if each.get("event") == "rule.drain_timeout"), None)
        if late is not None:
            return SidecarEndedError(f"the drain took more than {late['seconds']:g} s", late.get("rule"))
        return SidecarEndedError(self._last_words(), None)

    def _last_words(self) -> str:
        ended = [str(each.get("reason")) for each in self._log if each.get("event") in _LAST_EVENTS]
        return "\n".join(ended or self._plain[-5:]) or f"it ended with {self._process.returncode}"


def missing_package() -> str:
    """Return the command that installs the bridge. Empty if it is installed."""
    return "" if find_spec("nats_bridge") else f"pip install nats-bridge=={version('nats-conformance')}"


def _command() -> tuple[str, ...]:
    if missing := missing_package():
        raise SubjectError(f"the bridge is not installed: {missing}")
    return (sys.executable, "-m", "nats_bridge")


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("BRIDGE_")}
