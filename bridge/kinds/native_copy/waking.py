"""Makes a server ask again at once; alone it notices only after many seconds that a source was away.

When the leaf connection comes up, the server announces what it waits for (2.9.10 to 2.15.1):

* a deliver subject below our prefix: it has a consumer that no longer delivers. A heartbeat with another last sequence
  than its own makes it ask for a new one, at most two seconds after it asked last. Otherwise it waits for 10 to 30 s.
* an inbox `$JSC.R.…`: its request was not answered and is pending, for up to 30 s. Whose request it is no inbox says
  (but those of the second form, which name stream and consumer), so only one that is still pending after a moment is
  answered, with an error: another source that leaves its server waiting that long is away, too, and a server that
  gets an error asks again. From 2.11 on a leaf that connects then makes it ask at once; 2.10 waits 10 s after an error.
"""

from __future__ import annotations

from typing import Final

from nats_bridge.bridge.client.leaf_protocol import message
from nats_bridge.bridge.kinds.native_copy.requests import answer_with

ASKS_ON_CONNECT: Final = (2, 11)
"""Since when a server asks for the consumers that it lacks when a leaf connects."""
PENDING_FOR: Final = 0.3
"""Seconds after which a request that was pending when we connected counts as unanswered."""

_INBOX: Final = b"$JSC.R."
_NAMED_TOKENS: Final = 7  # $JSC.R.domain.account.stream.consumer.random
_NO_SUCH_SEQUENCE: Final = 2**62
_UNAVAILABLE: Final = 10008


def outdated(deliver: bytes) -> bytes:
    """The operation that makes a server notice missed messages, on the deliver subject of one of its consumers."""
    block = b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n\r\n"
    return message(deliver, b"", block % (_NO_SUCH_SEQUENCE, _NO_SUCH_SEQUENCE), b"")


def may_be_ours(inbox: bytes, stream: bytes) -> bool:
    """Whether a subject that a server subscribes to can be the inbox of a request to us."""
    if not inbox.startswith(_INBOX):
        return False
    tokens = inbox.split(b".")
    return len(tokens) < _NAMED_TOKENS or tokens[4] == stream


def away(inbox: bytes) -> bytes:
    """The operation that answers a pending request."""
    return message(inbox, b"", b"", answer_with("CONSUMER.CREATE", 503, _UNAVAILABLE, "the sidecar was away"))
