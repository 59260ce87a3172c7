"""Decides which server a connection tries next: the newest information first, no I/O.

Servers send the addresses of their cluster with every INFO, complete each time (2.9.10 to 2.15.3). An address that is
neither configured nor in the last INFO is forgotten. Servers that have accepted the connection before alternate with
those that have not, so stale addresses cannot block either group. In each group, servers with fewer failures come
first.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass

# failures that are counted; after days of failures, a server is still tried like one that failed for a minute
_MOST_KEPT = 8
_FIRST_PATIENCE = 1.0  # seconds; a SYN is repeated after one


@dataclass(slots=True)
class _Known:
    """A server's record: failures since it accepted the connection, and whether it has ever accepted one."""

    failures: int = 0
    has_accepted: bool = False


class ServerPool:
    """The servers of one connection, by address (host and port).

    Args:
        configured: addresses that are never forgotten.
        seed: the seed of the order among equals; without one, each connection has its own.

    Attributes:
        current: the server that the connection has, had last, or tries.
    """

    def __init__(self, configured: Iterable[str], seed: int | None = None) -> None:
        self.current = ""
        self._configured = tuple(dict.fromkeys(configured))
        self._known = {address: _Known() for address in self._configured}
        self._advertised: frozenset[str] = frozenset()
        self._random = random.Random(seed)
        self._lost = ""
        self._left = ""  # until another server has been tried
        self._tries_accepted = False  # next

    @property
    def addresses(self) -> tuple[str, ...]:
        """All that may be tried."""
        return tuple(self._known)

    def advertise(self, addresses: Iterable[str]) -> None:
        """Replace the advertised addresses by those of the newest INFO. Forget all others that are not configured.

        The server that sent it stays until the next INFO: in lame duck mode it leaves itself out.
        """
        before, self._advertised = self._advertised, frozenset(addresses)
        wanted = dict.fromkeys((*self._configured, *self._advertised, *filter(None, [self.current])))
        self._known = {address: self._known.get(address) or _Known() for address in wanted}
        for address in self._advertised - before:  # it is new, or back
            self._known[address].failures = 0

    def next(self) -> str:
        """Return the address to try, which is `current` from now on."""
        others = [address for address in self._known if address != self._left]
        if self._left and others:
            self.current, self._left = min(others, key=self._rank), ""
            return self.current
        accepted = self._best(has_accepted=True)
        other = self._best(has_accepted=False)
        if accepted is None or other is None:
            self.current = accepted or other or ""
        else:
            self.current = accepted if self._tries_accepted else other
            self._tries_accepted = not self._tries_accepted
        return self.current

    def failed(self) -> None:
        """Note that `current` did not accept the connection."""
        if known := self._known.get(self.current):
            known.failures += 1

    def accepted(self) -> None:
        """Note that `current` accepted the connection."""
        known = self._known.setdefault(self.current, _Known())
        known.failures, known.has_accepted = 0, True

    def lost(self) -> None:
        """Note that `current` ended the connection, or is gone: the next attempt is on another server, if it can be."""
        self._lost = self.current
        for known in self._known.values():
            known.failures = min(known.failures, _MOST_KEPT)
        other = self._best(has_accepted=False)
        # A server that another one vouches for, and that has not failed, is more likely to be there.
        self._tries_accepted = not (other in self._advertised and not self._known[other].failures)

    def leave(self) -> None:
        """Note that `current` is of no use although it accepts connections: the next attempt is on another server."""
        self._left = self.current

    def patience(self) -> float:
        """Return the seconds to wait for `current` to accept, because a stale address may swallow every packet."""
        known = self._known.get(self.current)
        return _FIRST_PATIENCE * 2.0 ** min(known.failures if known else 0, _MOST_KEPT)

    def _best(self, *, has_accepted: bool) -> str | None:
        found = [address for address, known in self._known.items() if known.has_accepted == has_accepted]
        return min(found, key=self._rank, default=None)

    def _rank(self, address: str) -> tuple[int, bool, bool, float]:
        is_vouched_for = address in self._advertised
        return self._known[address].failures, address == self._lost, not is_vouched_for, self._random.random()
