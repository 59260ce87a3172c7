"""The accounts that the connections reach: their streams, and the loops that rules would form with them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Set
from dataclasses import dataclass
from itertools import combinations

import structlog

from nats_bridge.client.account_identity import Pair, SharedAccounts
from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import NOT_ENABLED, Json
from nats_bridge.errors import ApiError, NotPermittedError, RuleRefusedError
from nats_bridge.rules.loops.moves import Reach
from nats_bridge.rules.loops.search import Loop, find_loops
from nats_bridge.settings import Settings
from nats_transforms.dialect import server_dialect

_log = structlog.get_logger("bridge.sidecar")


@dataclass(frozen=True, slots=True)
class Outlook:
    """The result of a search.

    Attributes:
        loops: as `find_loops` gives them.
        unseen: a line for each part that could not be read; loops through it are not found.
    """

    loops: tuple[Loop, ...]
    unseen: tuple[str, ...]

    def of(self, rule: str) -> Loop | None:
        """Return the loop that a rule takes part in, if it does."""
        return next((loop for loop in self.loops if loop.rule == rule), None)

    @property
    def native(self) -> tuple[Loop, ...]:
        """The loops that no rule takes part in."""
        return tuple(loop for loop in self.loops if loop.rule is None)


class AccountGraph:
    """The streams and rules of one configuration, read as often as needed.

    A user's permissions do not change while a connection is open, so a refused request is made once: a running rule
    treats a refused publication as its own.

    Args:
        connections: the open connections by name.
        earlier: the graph of another configuration, whose facts about shared connections are still valid.
        patiently: wait for late answers about accounts, see `SharedAccounts.ask`.

    Attributes:
        shared: the connections that share an account. If two turn out to do so later, it can request another search.
    """

    def __init__(
        self,
        settings: Settings,
        connections: Mapping[str, Connection],
        earlier: AccountGraph | None = None,
        *,
        patiently: bool = False,
    ) -> None:
        self._settings = settings
        self._connections = connections
        self._patiently = patiently
        self.shared: SharedAccounts = SharedAccounts() if earlier is None else earlier.shared
        self._forbidden: dict[str, str] = {}
        if earlier is not None:
            kept = {name for name, connection in connections.items() if earlier._connections.get(name) is connection}
            self._forbidden = {name: reason for name, reason in earlier._forbidden.items() if name in kept}

    async def look(self) -> Outlook:
        """Read all streams and search for loops, without changing anything on a server."""
        listed: dict[str, list[Json]] = {}
        there = {name: connection for name, connection in self._connections.items() if connection.was_up}
        unseen = [
            f"connection '{name}': no server yet; loops through its streams are not found"
            for name in sorted(self._connections.keys() - there.keys())
        ]
        for name, connection in there.items():
            listed[name], reasons = await self._streams(connection)
            unseen += reasons
        spaces, undecided = await self._find_spaces(listed)
        reaches = {
            name: Reach(spaces[name], listed[name], server_dialect(connection.server_version))
            for name, connection in there.items()
        }
        # Rules may be running, and an account may have thousands of streams.
        loops = await asyncio.to_thread(find_loops, self._settings, reaches)
        return Outlook(tuple(loops), (*unseen, *undecided))

    async def refuse(self, rules: Set[str]) -> None:
        """Search now, log findings about the accounts, and raise if one of these rules is in a loop.

        Raises:
            RuleRefusedError: one of the named rules takes part in a loop.
        """
        found = await self.refused()
        for rule, error in found.items():
            if rule in rules:
                raise error

    async def refused(self) -> dict[str, RuleRefusedError]:
        """Search now, and log findings about the accounts. Return the rules in loops by name, with the errors."""
        outlook = await self.look()
        for reason in outlook.unseen:
            _log.warning("loops.not_seen", reason=reason)
        for loop in outlook.native:
            _log.warning("loops.native", reason=str(loop))
        return {loop.rule: RuleRefusedError(str(loop)) for loop in outlook.loops if loop.rule is not None}

    async def _find_spaces(self, listed: Mapping[str, list[Json]]) -> tuple[dict[str, str], list[str]]:
        """Return for each connection the first one that reaches the same subjects, and the pairs left undecided."""
        # Equal names prove nothing, but streams created at the same nanosecond are the same.
        streams = {
            self._connections[name]: {(info["config"]["name"], info["created"]) for info in infos}
            for name, infos in listed.items()
        }
        pairs: dict[Pair, bool] = {
            frozenset((one, other)): not streams[one].isdisjoint(streams[other])
            for one, other in combinations(streams, 2)
        }
        await self.shared.ask((pair for pair, alike in pairs.items() if not alike), patiently=self._patiently)
        spaces: dict[str, str] = {}
        undecided: list[str] = []
        for name in listed:
            connection = self._connections[name]
            spaces[name] = name
            for first in sorted(set(spaces.values()) - {name}):
                pair = frozenset((self._connections[first], connection))
                same = pairs[pair] or self.shared.answers[pair]
                if same is None:
                    undecided.append(
                        f"connections '{first}' and '{name}': neither user may publish to the other's inbox, so it is"
                        " not known whether they reach the same account; loops through both are not found"
                    )
                if same:
                    spaces[name] = first
                    break
        return spaces, undecided

    async def _streams(self, connection: Connection) -> tuple[list[Json], list[str]]:
        """Return the streams of a connection's account, and the reasons for any that could not be read."""
        place = f"connection '{connection.name}'"
        if connection.name not in self._forbidden:
            try:
                streams, silent = await connection.api.streams()
            except NotPermittedError as error:
                self._forbidden[connection.name] = f"{error}; loops through streams that no rule names are not found"
            except ApiError as error:
                if error.err_code == NOT_ENABLED:
                    return [], []  # nothing is stored there
                return [], [f"{error}; loops through its streams are not found"]
            else:
                names = ", ".join(sorted(silent))
                return streams, [f"{place}: no answer from {names}: loops through them are not found"] if silent else []
        return await self._named_streams(connection), [self._forbidden[connection.name]]

    async def _named_streams(self, connection: Connection) -> list[Json]:
        found = []
        named = {stream for rule in self._settings.rules for where, stream in rule.streams if where == connection.name}
        for stream in sorted(named):
            try:
                found.append(await connection.api.stream_info(stream))
            except ApiError:
                continue  # the rule's own check reports the mistake
        return found
