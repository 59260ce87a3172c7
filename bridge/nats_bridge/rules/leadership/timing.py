"""The parts of a lease's time, all derived from one number, so that they cannot contradict each other.

From the time when a holder sends a renewal that is stored, until another replica may take over:

    0              renew_every         open_for                  open_for + unsent_for    ttl
    |--- may write -----|--- may write ----|--- what was written ------|--- slack ----------|
         renewal sent        next renewal      leaves the machine, or      another replica
                             due               never does                  may take over
"""

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # on Linux, this also counts while the machine sleeps


def clock() -> float:
    """Return the time of the clock that measures this replica's waiting. It is never compared with another machine's.

    Returns:
        Seconds since some time in the past. It keeps counting while the process or the machine is stopped.
    """
    return time.clock_gettime(_CLOCK)


class Timing:
    """The parts of a lease's time, in seconds.

    Attributes:
        ttl: the time without a renewal after which another replica takes over.
        renew_every: between two renewals, and between two reads of a standby.
        open_for: for which a holder may write, from sending a renewal that is known to be stored.
        unsent_for: after which the kernel drops bytes that the peer has not acknowledged.
        answer_within: to wait for an answer of the bucket before the request is repeated.
        silent_for: after which a silent replica no longer shares rules, which is before its leases are free.
        missed_for: without a new revision, after which a standby no longer reports that the rule has a leader.
        unseen_for: between two reads, above which the time in between counts as not observed.
    """

    def __init__(self, ttl: float) -> None:
        self.ttl = ttl
        self.renew_every = ttl / 5
        self.open_for = ttl * 0.6
        self.unsent_for = ttl * 0.3
        self.answer_within = ttl * 0.5
        self.silent_for = ttl * 0.7
        self.missed_for = ttl * 0.5
        self.unseen_for = ttl * 0.75
