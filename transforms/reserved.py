"""Subjects on which a message is a command to the server."""

from __future__ import annotations

_PREFIXES = (b"_R_.", b"_GR_.", b"$GR.")
_COMMANDS = (b"API", b"ACK", b"FC", b"SNAPSHOT", b"EVENT")


def is_reserved(subject: bytes) -> bool:
    """Whether a server takes a message on the subject as a command, or clients as a server's word."""
    if subject.startswith(_PREFIXES):
        return True
    tokens = subject.split(b".")
    return tokens[0] == b"$JS" and ((tokens[1:2] != [] and tokens[1] in _COMMANDS) or tokens[2:3] == [b"API"])
