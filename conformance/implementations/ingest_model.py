"""Removes from a header block what a server removes before it stores a message."""

from __future__ import annotations

from nats_bridge.transforms.dialect import Feature, Version
from nats_bridge.transforms.header_block import START, remove

__all__ = ["ingested"]

_CUTS_STATUS = Feature(since=((2, 11, 15), (2, 12, 6), (2, 14, 0)))
"""Text after ``NATS/1.0`` in the first line is cut, and every Nats-Request-Info removed; before, the first."""
_LOOKS_ON = Feature(since=((2, 11, 11), (2, 12, 2), (2, 14, 0)))
"""Nats-Request-Info is found after a longer name that contains it; before, nothing is."""

_REQUEST_INFO = b"Nats-Request-Info"
_CRLF = b"\r\n"


def ingested(block: bytes, version: Version) -> bytes:
    """The header block as it is stored."""
    if _CUTS_STATUS.holds(version):
        return remove(_without_status(block), _REQUEST_INFO)
    at = block.find(b"\n" + _REQUEST_INFO + b":") + 1
    if not at or (not _LOOKS_ON.holds(version) and block.find(_REQUEST_INFO) != at):
        return block
    end = block.find(_CRLF, at) + len(_CRLF)
    left = block[:at] + block[end:]
    return b"" if len(left) <= len(START + _CRLF) else left


def _without_status(block: bytes) -> bytes:
    name = START.removesuffix(_CRLF)
    end = block.find(_CRLF)
    if not block.startswith(name) or end <= len(name):
        return block
    left = name + block[end:]
    return b"" if left == START + _CRLF else left
