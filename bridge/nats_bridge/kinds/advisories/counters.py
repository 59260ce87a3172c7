"""The counters of an advisories rule."""

from dataclasses import dataclass

from nats_bridge.observability.counters import Counters


@dataclass(slots=True)
class AdvisoriesCounters(Counters):
    """Counts of one advisories rule since the process started, in advisories unless the name says otherwise.

    Attributes:
        received: received.
        republished: published, each once.
        bytes_out: bytes of header blocks and payloads written, repetitions included.
        attached: advisories published with their message.
        messages_gone: advisories published without their message, which was deleted or cannot be read.
        too_large: advisories published without their message, which would exceed the target's `max_payload`.
        stored: confirmed by a stream.
        duplicates: of these, those that the stream had already.
        repeated_out: publications that no stream confirmed, written again.
        refused: not published, because the stream rejects them permanently, or the user may not publish.
        in_doubt: published where no stream confirms, and the connection broke, unknown whether they arrived.
        unmatched: not selected by the rule's `src`, or about a sidecar's own consumer.
        suppressed: not published, because the new subject cannot be published.
        reserved: not published, because the new subject is a command to the server.
        looped: about the stream that stores the rule's own messages.
        dropped: lost, because too many were waiting or the drain was cut short.
        reconnects: how often the rule resumed after a lost connection.
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
