"""The counters of a copying rule."""

from __future__ import annotations

from dataclasses import dataclass

from nats_bridge.observability.counters import ReaderCounters


@dataclass(slots=True)
class CopyCounters(ReaderCounters):
    """Counts of one rule since the process started, in messages unless the name says otherwise.

    Attributes:
        copied: stored in the target.
        acknowledged: acknowledged to the source after their copies or dead letters were stored.
        duplicates: the target had their id already, so they were not stored again.
        already_there: found in the target after an interruption, and not sent again.
        unselected: not selected by the entry's filters or `where`, or excluded.
        withheld_headers: lost a header that the target would refuse, such as Nats-Rollup.
        renamed_headers: stored with renamed counter or schedule headers, which have no effect in the target.
        assumed_increments: added only their own increment to a counter, because the total of the counter was unknown.
        rejected: permanently rejected by the target, and skipped.
        bytes_out: bytes of the written operations.
        waits: how often copying waited for a full or missing target.
        asked_again: written again to find out whether they are stored; message ids prevent duplicates.
        out_of_order: stored after later ones of the same source, because the target did not store them at first.
        rounds: how often an entry read its position from the target.
        fillers: empty messages, stored and purged to keep sequence numbers.
        shorter_targets: how often the target's server had lost confirmed copies.
    """

    copied: int = 0
    acknowledged: int = 0
    duplicates: int = 0
    already_there: int = 0
    unselected: int = 0
    withheld_headers: int = 0
    renamed_headers: int = 0
    assumed_increments: int = 0
    rejected: int = 0
    bytes_out: int = 0
    waits: int = 0
    asked_again: int = 0
    out_of_order: int = 0
    rounds: int = 0
    fillers: int = 0
    shorter_targets: int = 0
