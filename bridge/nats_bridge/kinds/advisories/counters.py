"""The counters of an advisories rule."""

from __future__ import annotations

from dataclasses import dataclass

from nats_bridge.observability.counters import Counters


@dataclass(slots=True)
class AdvisoriesCounters(Counters):
    """Counts of one advisories rule since the process started, in advisories unless the name says otherwise.

    Attributes:
        received: received.
        republished: published, each once.
        bytes_out: bytes of header blocks and payloads written, repetitions included.
        attached: published with their message.
        messages_gone: their message was deleted, or cannot be read; the advisory is published without it.
        too_large: with their message larger than the target's `max_payload`; published without it.
        stored: confirmed by a stream.
        duplicates: of these, those that the stream had already.
        repeated_out: publications that no stream confirmed, written again.
        refused: rejected by the target's stream permanently, or not allowed to the user; not published.
        in_doubt: published where no stream confirms, and the connection broke, unknown whether they arrived.
        unmatched: not selected by the rule's `src`, or about a consumer that a sidecar reads with.
        suppressed: the destination is not a subject that can be published.
        reserved: the destination is a command to the server, such as a request to its API; not published.
        looped: about the stream that stores the rule's own messages.
        dropped: lost because too many waited, or because the drain was cut short.
        reconnects: times that the rule resumed after a lost connection.
    """

    received: int = 0
    republished: int = 0
    bytes_out: int = 0
    attached: int = 0
    messages_gone: int = 0
    too_large: int = 0
    stored: int = 0
    duplicates: int = 0
    repeated_out: int = 0
    refused: int = 0
    in_doubt: int = 0
    unmatched: int = 0
    suppressed: int = 0
    reserved: int = 0
    looped: int = 0
    dropped: int = 0
    reconnects: int = 0
