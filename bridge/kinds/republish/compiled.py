"""The hot loop as a compiled module, where `nats-bridge-compiled` is installed.

It does what `RepublishEncoder.run` does to messages that need nothing but their subject's entry, from the read of the
socket on and byte for byte, with the encoder's own entries. Everything else is left to Python, which may continue at
any message. Without the module everything is Python's, and nothing else changes.
"""

from __future__ import annotations

from typing import NamedTuple

from nats_bridge.bridge.kinds.republish.encoder import RepublishEncoder

try:
    from nats_bridge_compiled import INTERFACE, HotLoop, SubjectSequences
except ImportError:
    INTERFACE, HotLoop, SubjectSequences = 0, None, None


_INTERFACE = 2  # what this module calls; another one's loop is not used


class Made(NamedTuple):
    """What was done with deliveries.

    Attributes:
        position: where the read continues behind them.
        messages: how many deliveries.
        republished: how many of them.
        too_large: how many exceed what the target takes.
        size: bytes of their header blocks and payloads.
        last: stream sequence of the last one.
        operations: what to write, joined.
        first_reply: reply subject of the first one.
        last_reply: of the last one.
    """

    position: int
    messages: int
    republished: int
    too_large: int
    size: int
    last: int
    operations: bytes
    first_reply: bytes
    last_reply: bytes


class CompiledLoop:
    """Republishes what needs no care; `HotLoop` of `compiled/src/lib.rs` says what its loop takes and returns.

    Args:
        encoder: whose entries it uses, and which it counts for.
    """

    def __init__(self, encoder: RepublishEncoder) -> None:
        self._loop = encoder.compiled(HotLoop, SubjectSequences)
        self._encoder = encoder

    def run(
        self, data: bytes, position: int, sid: bytes, following: int, handled: int, *, filtered: bool
    ) -> Made | None:
        """Republish deliveries off a read; None where the first one needs care.

        Args:
            data: the read.
            position: where it begins.
            sid: of the subscription, as in the protocol.
            following: the next consumer sequence.
            handled: the last stream sequence.
            filtered: whether sequences between deliveries are left out by a filter.
        """
        encoder = self._encoder
        if not encoder.is_plain:
            return None
        found = self._loop.take(data, position, sid, following, handled, filtered, encoder.max_payload)
        if found is None:
            return None
        made = Made(*found)
        counters = encoder.counters
        counters.received += made.messages
        counters.republished += made.republished
        counters.too_large += made.too_large
        return made


def compiled_loop(encoder: RepublishEncoder) -> CompiledLoop | None:
    """The compiled loop for an encoder; None where the module is not installed, or is of another version."""
    return CompiledLoop(encoder) if INTERFACE == _INTERFACE else None
