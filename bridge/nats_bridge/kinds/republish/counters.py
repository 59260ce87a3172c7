"""The counters of a republish rule: plain integers, which `/status`, metrics and the log show."""

from dataclasses import dataclass

from nats_bridge.observability.counters import ReaderCounters


@dataclass(slots=True)
class RuleCounters(ReaderCounters):
    """Counts of a republish rule since the process started, in messages unless the name says otherwise.

    Attributes:
        republished: written to the target connection.
        bytes_out: bytes of the written operations.
        unmatched: not selected by the rule's `src` or `where`, or excluded.
        suppressed: not published, because the new subject cannot be published.
        reserved: not published, because the new subject is a command to the server.
        looped: not published, because the rule's own stream would store it again.
        too_large: not published, because their new headers would make them exceed the target's `max_payload`.
        in_doubt: written when the target connection broke or the server refused a publication, or taken when the lead
            was lost, unknown if they arrived (at_most_once).
        repeated_out: written again after the target connection broke (at_least_once).
        vanished: sequences that were removed before the consumer reached them.
        last_sequence_lookups: previous messages looked up on the server after a delete or purge.
        last_sequence_uncertain: values of `Nats-Last-Sequence` that depend on removals unknown to the sidecar.
        removals: server-reported events of the stream that can remove messages: deletes, purges and configuration
            updates.
    """

    republished: int = 0
    bytes_out: int = 0
    unmatched: int = 0
    suppressed: int = 0
    reserved: int = 0
    looped: int = 0
    too_large: int = 0
    in_doubt: int = 0
    repeated_out: int = 0
    vanished: int = 0
    last_sequence_lookups: int = 0
    last_sequence_uncertain: int = 0
    removals: int = 0
