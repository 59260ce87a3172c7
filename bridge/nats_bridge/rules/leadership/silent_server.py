"""Decides when the leases try another server, without I/O.

A server that has lost its cluster keeps its clients. It answers PINGs, but not requests about a bucket that it cannot
reach. Other replicas may reach the bucket through other servers. With a `ttl` of 3 seconds, a replica without an answer
about one of its leases leaves the server after 15 seconds, then after 30, 60 and 120, until the bucket answers again.
"""

_PATIENCE = 5  # times the lease's time without an answer until the first move
_LONGEST = 8  # times that patience, after several moves


class SilentServer:
    """The time for which the bucket has not answered.

    Args:
        ttl: the lease's time in seconds.
    """

    def __init__(self, ttl: float) -> None:
        self._patience = ttl * _PATIENCE
        self._moves = 0
        self._since: dict[str, float] = {}

    def answered(self, rule: str) -> None:
        """Note an answer about the lease of a rule."""
        self._since.pop(rule, None)
        if not self._since:
            self._moves = 0

    def unanswered(self, rule: str, now: float) -> bool:
        """Note a missing answer about a rule's lease. Return whether to leave the server now."""
        since = self._since.setdefault(rule, now)
        if now - since < self._patience * min(2**self._moves, _LONGEST):
            return False
        self._since = dict.fromkeys(self._since, now)
        self._moves += 1
        return True

    def reconnected(self, now: float) -> None:
        """Note that the connection was lost and is back: the time without one does not count."""
        self._since = dict.fromkeys(self._since, now)
