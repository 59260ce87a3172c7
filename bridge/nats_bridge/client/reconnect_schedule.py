"""Decides how long a connection waits before each attempt to connect: exponential back-off with full jitter, no I/O.

Every wait is drawn uniformly between zero and a ceiling. The ceiling grows with each attempt, on any server, so the
rate does not depend on the number of servers. It is higher if servers refuse the credentials, because a new attempt
only helps once a file or a server's configuration has changed.
"""

import random

LONGEST_WAIT = 5.0
"""Seconds of the highest ceiling by default: on average an attempt every 2.5 s."""
_FIRST, _GROWTH = 0.1, 1.15  # seconds; the default's highest ceiling is reached after about 16 s
_FIRST_REFUSED, _GROWTH_REFUSED = 1.0, 2.0
_FURTHER = 6  # times the longest wait, for servers that refuse the credentials
_STABLE = 5.0  # seconds; a connection that lasted this long begins with short waits again


class ReconnectSchedule:
    """The waits of one connection; the caller passes the time, in seconds.

    Args:
        longest_wait: the highest ceiling, in seconds.
        seed: the seed of the jitter; without one, each connection has its own.
    """

    def __init__(self, longest_wait: float = LONGEST_WAIT, seed: int | None = None) -> None:
        self._longest = longest_wait
        self._random = random.Random(seed)
        self._attempts = 0
        self._refusals = 0
        self._was_refused = False
        self._since: float | None = None
        self._inbox_refusals = 0  # in succession
        self._inbox_refused = float("-inf")  # when

    def wait(self) -> float:
        """Return the seconds to wait before the next attempt; zero before the very first one."""
        attempts, self._attempts = self._attempts, self._attempts + 1
        if self._was_refused:
            self._was_refused = False
            ceiling = _bounded(_FIRST_REFUSED, _GROWTH_REFUSED, self._refusals - 1, _FURTHER * self._longest)
        elif self._since is None and not attempts:
            return 0.0
        else:
            ceiling = _bounded(_FIRST, _GROWTH, attempts, self._longest)
        return self._random.uniform(0.0, ceiling)

    def refused(self) -> None:
        """Note that the last attempt reached a server that refused the credentials or the certificate."""
        self._refusals += 1
        self._was_refused = True

    def keep(self, now: float) -> float:
        """Seconds to keep a connection whose inbox the server refuses: a new one may have other permissions."""
        highest = _FURTHER * self._longest
        if now - self._inbox_refused > 2 * highest:
            self._inbox_refusals = 0
        self._inbox_refusals, self._inbox_refused = self._inbox_refusals + 1, now
        return self._random.uniform(0.0, _bounded(_FIRST_REFUSED, _GROWTH_REFUSED, self._inbox_refusals - 1, highest))

    def established(self, now: float) -> None:
        """Note that the connection is established."""
        self._since = now

    def lost(self, now: float) -> None:
        """Note that the connection is lost. If it was not stable, the waits of the last outage continue."""
        if self._since is not None and now - self._since >= _STABLE:
            self._attempts = self._refusals = 0
        self._was_refused = False


def _bounded(first: float, growth: float, times: int, highest: float) -> float:
    # A power of a number of attempts without end would overflow.
    return min(first * growth ** min(times, 64), highest)
