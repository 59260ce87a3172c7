"""Asks a server whether it ended a connection as a slow consumer's.

A server ends such a connection silently (2.9.10 to 2.15.3). Afterwards any user of the account may
ask for it, if permissions allow `$SYS.REQ.ACCOUNT.PING.CONNZ` and `.STATZ`: the list of closed connections has the
reason. In the account `$G` servers leave that list empty, but their counter of slow consumers has grown.
"""

import asyncio
import json
from dataclasses import dataclass
from typing import Any, Self

from nats_bridge.client import nats_py
from nats_bridge.client.tasks import end_tasks
from nats_bridge.client.wire import WireClient

_ASK = "$SYS.REQ.ACCOUNT.PING"
WHY_IT_ENDED = f"{_ASK}.*"
"""The subjects of the questions."""
_CLOSED = 1  # the state of connections to list
_SAME_SERVER, _OTHER_SERVER = 2.0, 0.5  # seconds for the answer; another server may have stopped


@dataclass(frozen=True, slots=True)
class _Established:
    """A connection, by the ids that its server uses."""

    server_id: str
    server_name: str
    address: str
    client_id: int | None

    @classmethod
    def of(cls, client: WireClient) -> Self:
        return cls(client.server_id, client.server_name, client.pool.current, client.client_id)

    def is_restarted(self, now: Self) -> bool:
        """Return whether the server that the client has now is this one after a restart."""
        is_there = self.server_name == now.server_name if self.server_name else self.address == now.address
        return is_there and self.server_id != now.server_id


class EndedConnections:
    """The past connections of one client."""

    def __init__(self, client: WireClient) -> None:
        self._client = client
        self._last: _Established | None = None
        self._counted: tuple[str, int] = "", 0  # slow consumers, by that server
        self._refused = asyncio.Event()

    def established(self) -> None:
        """Note the present connection, to ask about when it is lost."""
        self._last = _Established.of(self._client)

    def refused(self, subject: bytes) -> bool:
        """Note a refused publication by its subject. Return whether it is a question of this class."""
        is_ours = subject.startswith(_ASK.encode())
        if is_ours:
            self._refused.set()
        return is_ours

    async def was_slow_consumer(self) -> bool | None:
        """Return whether the last connection ended as a slow consumer; None if its server does not report it.

        Ask when the client is connected again, before `established`.
        """
        last, now = self._last, _Established.of(self._client)
        if last is None or last.is_restarted(now):
            return False
        is_same = last.server_id == now.server_id
        closed = await self._ask("CONNZ", last, {"state": _CLOSED, "cid": last.client_id}, is_same=is_same)
        if closed is None:
            return None if is_same or self._refused.is_set() else False  # a server that does not answer has stopped
        if listed := closed.get("connections"):
            return str(listed[0].get("reason")).startswith("Slow Consumer")
        counted = await self._ask("STATZ", last, {}, is_same=is_same)
        accounts = (counted or {}).get("account_statz")
        if not accounts:
            return None
        server, before = self._counted
        count = int(accounts[0].get("slow_consumers", 0))
        self._counted = last.server_id, count
        return count > (before if server == last.server_id else 0)

    async def _ask(self, what: str, last: _Established, body: dict[str, Any], *, is_same: bool) -> Any:
        """Return the answer of the server that held the last connection; None if it does not answer."""
        self._refused.clear()
        request = {**body, "server_name": last.server_name or last.server_id, "exact_match": True}
        limit = _SAME_SERVER if is_same else _OTHER_SERVER
        answer = asyncio.create_task(
            self._client.request(f"{_ASK}.{what}", json.dumps(request).encode(), timeout=limit)
        )
        refused = asyncio.create_task(self._refused.wait())
        try:
            await asyncio.wait((answer, refused), return_when=asyncio.FIRST_COMPLETED)
            document = json.loads(answer.result().data) if answer.done() else {}
        except (nats_py.errors.Error, TimeoutError, ValueError, OSError):
            return None
        finally:
            await end_tasks(answer, refused)
        is_its = isinstance(document, dict) and document.get("server", {}).get("id") == last.server_id
        return document.get("data") if is_its else None
