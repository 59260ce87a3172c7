"""What a rule counts. Plain integers beside the code that raises them; `/status` and the log show them."""

from __future__ import annotations

from dataclasses import asdict, dataclass

__all__ = ["IntakeCounters", "RuleCounters"]


@dataclass(slots=True)
class IntakeCounters:
    """What reading a stream counts, in messages unless the name says otherwise.

    Attributes:
        received: taken from the stream.
        repeated: delivered again by the server and dropped, because they had been handled.
        gaps: times that deliveries were missing.
        recovered: missing deliveries that were read again from the stream.
        lost: missing deliveries that the stream no longer holds.
        reconnects: times that the rule resumed after a lost connection.
        recreated_consumers: times that the rule's consumer was gone and was made anew.
        recreated_streams: times that the stream itself was a new one.
    """

    received: int = 0
    repeated: int = 0
    gaps: int = 0
    recovered: int = 0
    lost: int = 0
    reconnects: int = 0
    recreated_consumers: int = 0
    recreated_streams: int = 0

    def as_dict(self) -> dict[str, int]:
        """All counts by name."""
        return asdict(self)


@dataclass(slots=True)
class RuleCounters(IntakeCounters):
    """Counts of a republish rule since the process started, in messages unless the name says otherwise.

    Attributes:
        republished: written to the target connection.
        bytes_out: bytes of the written operations.
        unmatched: not meant by the rule's `src`, or excluded.
        suppressed: the destination is not a subject that can be published.
        looped: the destination belongs to the rule's own stream; not published, native would loop.
        too_large: with its new headers larger than the target's `max_payload`; not published. Where the server lowered
            that limit later, among `republished` as well.
        in_doubt: written when the target connection broke, unknown whether they arrived (at_most_once).
        repeated_out: written again after the target connection broke (at_least_once).
        vanished: sequences that were gone before the consumer reached them.
        last_sequence_lookups: predecessors looked up on the server after a delete or purge.
        last_sequence_uncertain: values that depend on removals which cannot be computed from outside.
        removals: deletes, purges and updates of the stream that the server told of.
    """

    republished: int = 0
    bytes_out: int = 0
    unmatched: int = 0
    suppressed: int = 0
    looped: int = 0
    too_large: int = 0
    in_doubt: int = 0
    repeated_out: int = 0
    vanished: int = 0
    last_sequence_lookups: int = 0
    last_sequence_uncertain: int = 0
    removals: int = 0
