"""Policies for waiting: when something is tried again, how often something is checked, how long an answer may take.

Everything that waits for a server takes its policy from here. A policy is named after the reason for the wait, so two
waits for the same reason last equally long. Times that belong to one mechanism stay in its module: leases, reconnects,
the window and the drain.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    wait_chain,
    wait_exponential,
    wait_exponential_jitter,
    wait_fixed,
    wait_random,
)
from tenacity.wait import wait_base

_RETRYING: Final = AsyncRetrying()


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The pauses between attempts after a failure.

    Attributes:
        wait: the pauses in seconds, by the number of failures; also for tenacity's `AsyncRetrying`.
    """

    wait: wait_base

    def after(self, failures: int = 1) -> float:
        """Return the seconds until the next try, after this number of failures."""
        state = RetryCallState(_RETRYING, None, (), {})
        state.attempt_number = failures
        return float(self.wait(state))

    async def pause(self, failures: int = 1) -> None:
        """Wait until the next try is due, after this number of failures."""
        await asyncio.sleep(self.after(failures))


def _in_turn(*pauses: float, random_part: float = 0.0) -> RetryPolicy:
    return RetryPolicy(wait_chain(*(wait_random((1 - random_part) * pause, pause) for pause in pauses)))


# Pauses between attempts:

NOT_NOTICED: Final = RetryPolicy(wait_fixed(0.05))
"""The server has not noticed yet that a subscription or a connection ended."""

LEADER_AWAY: Final = RetryPolicy(wait_fixed(0.1))
"""The leader changes, or a replica that answers has not caught up."""

NO_ANSWER: Final = RetryPolicy(wait_fixed(0.25))
"""The server could not answer, or a stream is away."""

SERVER_BUSY: Final = RetryPolicy(wait_exponential_jitter(multiplier=0.05, max=1.0))
"""A request timed out, or its stream has no leader."""

MISSING_AGAIN: Final = RetryPolicy(wait_exponential(multiplier=0.05, max=1.0))
"""Messages that were missed could not be read again."""

NOT_IN_CLUSTER: Final = _in_turn(0.1, 0.3)
"""A cluster's server reports that a consumer does not exist, which can be wrong for a moment after its start."""

NOT_STORED: Final = _in_turn(0.05, 0.1, 0.25, 0.5, 1.0, 2.0)
"""A stream did not confirm a published message."""

SERVER_AWAY: Final = _in_turn(0.25, 0.5, 1.0, 2.0, 5.0)
"""Something could not start because a server was unreachable."""

RULE_FAILED: Final = _in_turn(1.0, 2.0, 5.0, 10.0, 30.0, 60.0, random_part=0.2)
"""A rule failed. The random part keeps many sidecars from starting at the same time."""

# Intervals of repeated checks, in seconds:

FOUR_A_SECOND: Final = 0.25
"""Whether an obstacle still exists."""

EVERY_SECOND: Final = 1.0
"""A state of the process or of a stream that nothing reports."""

WITHOUT_ADVISORY: Final = 2.0
"""A change that an advisory reports. 2.9 and 2.10 sometimes lose the advisory, and only current subscribers get it."""

HEARTBEAT: Final = 2.0
"""An idle consumer sends a heartbeat; see `SILENT_BEATS`."""

SILENT_BEATS: Final = 3
"""Heartbeats without a message, after which a reading consumer counts as lost, or as finished."""

# Time limits, in seconds:

ANSWER: Final = 5.0
"""A server's answer to a request, and a stream's to a publication."""

ANSWER_ELSEWHERE: Final = 3.0
"""An answer of another account or domain, which need not exist."""

ANSWER_OF_LEADER: Final = 1.0
"""An answer of a leader that may just change, which loses requests."""

QUIET: Final = 2.0
"""Silence after which nothing more is expected: from a server that need not answer, or of a subject."""

ROUND_TRIP: Final = 10.0
"""The server has received all that was sent before, and its messages until then have arrived here."""

CLOSING: Final = 3.0
"""Something that ends, such as a connection or the last export, before it is given up."""
