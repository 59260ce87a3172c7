"""The counters of a native_copy rule."""

from __future__ import annotations

from dataclasses import dataclass

from nats_bridge.bridge.consuming.counters import Counters


@dataclass(slots=True)
class NativeCopyCounters(Counters):
    """Counts of one native_copy rule since the process started, in messages unless the name says otherwise.

    Attributes:
        received: received from the stream, repetitions included.
        delivered: delivered to the server that copies, repetitions included; it ignores those.
        bytes_out: bytes of header blocks and payloads delivered.
        unselected: not meant by the rule's filters, or left out by `exclude`.
        headers_removed: delivered without headers that `remove_headers` names.
        consumers: consumers created for the server that copies: one at its start, and one each time it resumes.
        refused_requests: requests refused, by the stream's server or because they are not meant by the rule.
        woken: times that the server was made to ask again, because one side had been away.
        reconnects: times that the leaf connection was restored.
    """

    received: int = 0
    delivered: int = 0
    bytes_out: int = 0
    unselected: int = 0
    headers_removed: int = 0
    consumers: int = 0
    refused_requests: int = 0
    woken: int = 0
    reconnects: int = 0
