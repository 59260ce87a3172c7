"""The parts of a lease's time, all derived from one number, so that they cannot contradict each other.

From the time when a holder sends a renewal that is stored, until another replica may take over:

    0              renew_every         open_for                  open_for + unsent_for    ttl
    |--- may write -----|--- may write ----|--- what was written ------|--- slack ----------|
         renewal sent        next renewal      leaves the machine, or      another replica
                             due               never does                  may take over
"""

from __future__ import annotations

import time
from dataclasses import dataclass

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # on Linux, this also counts while the machine sleeps


def clock() -> float:
    """Return the time of the clock that measures this replica's waiting. It is never compared with another machine's.

    Returns:
        Seconds since some time in the past. It keeps counting while the process or the machine is stopped.
    """
    return time.clock_gettime(_CLOCK)


@dataclass(frozen=True, slots=True)
class Timing:
    """The parts of a lease's time.

    Attributes:
        ttl: seconds without a renewal after which another replica takes over.
    """

    ttl: float

    @property
    def renew_every(self) -> float:
        """Seconds between two renewals, and between two reads of a standby."""
        return self.ttl / 5

    @property
    def open_for(self) -> float:
        """Seconds for which a holder may write, from sending a renewal that is known to be stored."""
        return self.ttl * 0.6

    @property
    def unsent_for(self) -> float:
        """Seconds after which the kernel drops bytes that the peer has not acknowledged."""
        return self.ttl * 0.3

    @property
    def answer_within(self) -> float:
        """Seconds to wait for an answer of the bucket before the request is repeated."""
        return self.ttl * 0.5

    @property
    def silent_for(self) -> float:
        """Seconds after which a silent replica no longer shares rules, which is before its leases are free."""
        return self.ttl * 0.7

    @property
    def missed_for(self) -> float:
        """Seconds without a new revision after which a standby no longer reports that the rule has a leader."""
        return self.ttl * 0.5

    @property
    def unseen_for(self) -> float:
        """Seconds between two reads above which the time in between counts as not observed."""
        return self.ttl * 0.75
