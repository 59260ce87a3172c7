"""Header blocks as raw bytes: append, read and remove lines with everything else left as it is.

Theory of operation. A block is `NATS/1.0`, perhaps a status, CRLF, lines `Name: value` that each end with CRLF, and an
empty line; no headers is `b""`. Clients may send other bytes and servers keep them, so nothing here parses a block as a
whole. Like the server, it finds a header by its name directly after a line feed and directly before a colon (names are
case-sensitive; the first line is never a header). The header ends at the next CRLF.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

START = b"NATS/1.0\r\n"
TRACE = b"\nNats-Trace-Dest:"
"""The start of a line that makes a server trace a message; see `untraced`."""

_CRLF = b"\r\n"
# After a removal, the server treats a block that is no longer than an empty one as no headers.
_EMPTY_LENGTH = len(START + _CRLF)
_TRACED = re.compile(rb"(?<=\n)Nats-Trace-Dest:(?![ \t]*trace disabled[ \t]*\r\n).*?\r\n", re.DOTALL)


def opened(block: bytes) -> bytes:
    """Return the block without its final empty line, ready for more lines; a first line if it has none.

    Like the server, it removes the last two bytes without looking at them (2.9 to 2.15; 2.9 treats two bytes as no
    block).
    """
    return block[:-2] if len(block) > 1 else START


def append(block: bytes, lines: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the block with `(name, value)` lines added at its end, with one space after each colon.

    Nothing is replaced, so an existing name then appears twice. Without lines the block is returned unchanged. A block
    of two bytes counts as none, as when servers append a source record (2.9 to 2.15).
    """
    added = b"".join([b"%b: %b\r\n" % line for line in lines])
    return opened(block if len(block) > len(_CRLF) else b"") + added + _CRLF if added else block


def read(block: bytes, name: bytes) -> bytes | None:
    """Return the last value of exactly this name, without white space around it; None without such a line.

    The last one is the server's: it appends after anything that the publisher sent under the same name.
    """
    start = block.rfind(b"\n" + name + b":")
    if start < 0:
        return None
    start += len(name) + 2
    end = block.find(_CRLF, start)
    return block[start : end if end >= 0 else len(block)].strip(b" \t")


def remove(block: bytes, name: bytes) -> bytes:
    """Return the block without the lines of exactly this name; `b""` if no header is left."""
    return _without(block, _lines(re.escape(name) + b":")) if name in block else block


def remove_first(block: bytes, name: bytes) -> bytes:
    """Return the block without the first line of exactly this name; `b""` if no header is left.

    Like servers up to 2.11, it stops searching if the name occurs earlier as part of other text.
    """
    start = block.find(name)
    if start < 1 or block[start - 1 : start] != b"\n" or block[start + len(name) :][:1] != b":":
        return block
    return _without(block, _lines(re.escape(name) + b":"), 1)


def remove_prefix(block: bytes, prefix: bytes) -> bytes:
    """Return the block without the lines whose name starts with `prefix`; `b""` if no header is left."""
    return _without(block, _lines(re.escape(prefix))) if prefix in block else block


def untraced(block: bytes) -> bytes:
    """Return the block without lines that have a server report the message on a subject of its publisher's choice.

    A server sends trace reports with the permissions of the client that publishes the block, which is the bridge for
    messages that another client wrote. A server that has acted on it stores `trace disabled` instead, which stays. A
    server that does not support it (before 2.11), or that finds a status in the block (2.12 to 2.15), stores it.
    """
    return _without(block, _TRACED) if TRACE in block else block


@lru_cache(maxsize=256)
def _lines(beginning: bytes) -> re.Pattern[bytes]:
    return re.compile(b"(?<=\n)" + beginning + b".*?\r\n", re.DOTALL)


def _without(block: bytes, pattern: re.Pattern[bytes], most: int = 0) -> bytes:
    left, removed = pattern.subn(b"", block, most)
    return b"" if removed and len(left) <= _EMPTY_LENGTH else left
