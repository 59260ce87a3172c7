"""Shares the rules evenly among replicas, from their announcements. No I/O.

Theory of operation. Every replica announces, several times in a lease's time, how many rules it leads. Each replica
decides for itself. One that leads more than its share hands rules over, and one that leads its share leaves a free
lease to the others for a while (`Lease.restraint`). A replica that is silent for `silent_for` no longer counts, so
nobody waits for a dead one. Announcements only decide who *should* lead. Leases decide who does, so a lost or late
announcement makes the sharing less even, but does no other harm.
"""


class Share:
    """One replica's share of the rules.

    All times are seconds of the replica's own clock.

    Args:
        me: the name of this replica.
        silent_for: seconds without an announcement after which a replica counts no more.
    """

    def __init__(self, me: str, silent_for: float) -> None:
        self._me = me
        self._silent_for = silent_for
        # the number of rules that each replica leads, and the time of the announcement
        self._others: dict[str, tuple[int, float]] = {}

    def receive(self, replica: str, leads: int | None, now: float) -> bool:
        """Note a replica's announcement (None when it stops). Return whether that replica has just come or stopped."""
        if replica == self._me:
            return False
        if leads is None:
            return self._others.pop(replica, None) is not None
        new = replica not in self._received_lately(now)
        self._others[replica] = (leads, now)
        return new

    def surplus(self, leads: int, rules: int, now: float) -> int:
        """Return the number of rules that this replica should hand over.

        Args:
            leads: the number of rules it leads.
            rules: the number of rules for all replicas together.
        """
        others = self._received_lately(now)
        if not others:
            return 0
        if (above := leads - _even_share(rules, len(others) + 1)) > 0:
            return above
        # Within the share, and yet another replica can lead two less: 4, 4, 2 of 10. One replica hands one over.
        busiest = min((-led, replica) for replica, led in (*others.items(), (self._me, leads)))[1]
        return 1 if busiest == self._me and min(others.values()) <= leads - 2 else 0

    def leaves_to_others(self, leads: int, rules: int, now: float) -> bool:
        """Return whether this replica leads its share, so that another one should take a free lease first."""
        others = self._received_lately(now)
        return bool(others) and leads >= _even_share(rules, len(others) + 1)

    def _received_lately(self, now: float) -> dict[str, int]:
        return {name: led for name, (led, at) in self._others.items() if now - at < self._silent_for}


def _even_share(rules: int, replicas: int) -> int:
    return -(-rules // replicas)
