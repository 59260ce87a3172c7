"""Finds the known divergences that explain a difference, and the mismatches that none explains."""

from collections.abc import Callable, Iterable
from itertools import combinations
from typing import Final, TypeAlias

from nats_conformance.catalogue.case import Case, Expectation
from nats_conformance.divergences import copies, ingress, old_servers, refused, republished
from nats_conformance.divergences.pair import Normaliser, Pair
from nats_conformance.identity import Identity
from nats_conformance.observation import Observation
from nats_conformance.outcome import Mismatch

Compare: TypeAlias = Callable[[Expectation, Observation], Iterable[Mismatch]]

NORMALISERS: Final[dict[str, Normaliser]] = {
    name: normalise
    for room in (refused, old_servers, copies, ingress, republished)
    for name, normalise in room.NORMALISERS.items()
}
"""Every normaliser by its id, in the order of application."""

_NAMED_TOO: Final = frozenset(
    {"kd/transforms/before-2.10", "kd/older-server/ingest", "kd/copy/record-name", "kd/order/two-rules"}
)
"""Ids that a case may name although they have a normaliser, as that sees a part of them only.

A case about servers before 2.10 does not cover 2.10. Lines that newer servers remove from a block with odd line ends
join the first line to the next one. The other name of a record also allows copies into streams that refuse a server's.
Of two messages with the same id, the one of the faster rule is stored.
"""


def reconciled(
    case: Case, subject: Identity, expectation: Expectation, observation: Observation, compare: Compare
) -> tuple[tuple[str, ...], tuple[Mismatch, ...]]:
    """Return the ids of the known divergences that occurred, and the mismatches that none explains."""
    raw = Pair(case, subject, expectation, observation)
    before = tuple(compare(expectation, observation))
    if not before:
        return (), ()
    possible = [name for name, normalise in NORMALISERS.items() if normalise(raw) != raw]
    for count in range(1, len(possible) + 1):
        for names in combinations(possible, count):
            pair = raw
            for name in names:
                pair = NORMALISERS[name](pair)
            if not any(compare(pair.expectation, pair.observation)):
                return names, ()
    named = tuple(name for name in case.kd if name not in NORMALISERS or name in _NAMED_TOO)
    return (named, ()) if named and _may_be_named(before, expectation, observation) else ((), before)


def _may_be_named(found: Iterable[Mismatch], expectation: Expectation, observation: Observation) -> bool:
    """Return whether a divergence named by the case can explain the mismatches.

    It must be about different messages. A wrong or missing answer to a configuration does not count, and a bridge
    without any visible message did nothing.
    """
    is_about_messages = all(mismatch.where.startswith(("received", "stored", "acks")) for mismatch in found)
    expects = bool(expectation.received) or any((expectation.stored or {}).values())
    shows = bool(observation.received) or any(observation.stored.values())
    return is_about_messages and (shows or not expects)
