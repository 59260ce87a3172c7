"""The client's side of a WebSocket, without I/O: the upgrade by HTTP, and frames around the bytes (RFC 6455).

As nats-server speaks it (2.9.10 to 2.15.1; `server/websocket.go`): all that either side sends is one stream of bytes,
cut into binary frames at any place. Frames to the server are masked; a key of zeros is one, and leaves the bytes as
they are. No compression is offered, so the server uses none.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from typing import Final

_ACCEPTS: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""What a server adds to the key before it hashes it (RFC 6455, section 1.3)."""
_LONGEST_ANSWER: Final = 64 * 1024
"""Bytes of a server's answer to the upgrade."""
_HTTP: Final = b"HTTP/"
_CONTINUATION, _BINARY, _CLOSE, _PING, _PONG = 0, 2, 8, 9, 10
_FINAL, _MASKED = 0x80, 0x80
_RESERVED: Final = 0x70
_NO_MASK: Final = b"\0\0\0\0"


class WebSocketError(Exception):
    """The server does not upgrade the connection, or sent what is no frame."""


class WebSocket:
    """One connection.

    Args:
        host: as in the URL, with its port.
        path: of the URL to ask for.

    Attributes:
        request: what to send first.
        to_send: answers to the server's pings, to be sent; its user takes them away.
        is_closed: whether the server said that nothing follows.
    """

    def __init__(self, host: str, path: str) -> None:
        key = base64.b64encode(secrets.token_bytes(16))
        self._expected = base64.b64encode(hashlib.sha1(key + _ACCEPTS, usedforsecurity=False).digest())
        self.request = (
            f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key.decode()}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        ).encode()
        self.to_send = b""
        self.is_closed = False
        self._is_upgraded = False
        self._unread = b""

    def feed(self, data: bytes) -> bytes:
        """The bytes that frames carry which are complete with these; reads may end anywhere.

        Raises:
            WebSocketError: the server refuses the upgrade, or sent what is no frame.
        """
        self._unread += data
        if not self._is_upgraded and not self._upgrade():
            return b""
        unread, position, carried = self._unread, 0, list[bytes]()
        while not self.is_closed and (found := _cut(unread, position)) is not None:
            kind, start, position = found
            if kind in (_BINARY, _CONTINUATION):
                carried.append(unread[start:position])
            elif kind == _PING:
                self.to_send += _frame(_PONG, unread[start:position])
            elif kind == _CLOSE:
                self.is_closed = True
            elif kind != _PONG:
                raise WebSocketError(f"a frame of kind {kind}")
        self._unread = unread[position:]
        return b"".join(carried)

    @staticmethod
    def frame(data: bytes) -> bytes:
        """A frame that carries these bytes."""
        return _frame(_BINARY, data)

    def _upgrade(self) -> bool:
        """Whether the server's answer is complete; it is taken off what is unread."""
        if self._unread[: len(_HTTP)] != _HTTP[: len(self._unread)]:
            raise WebSocketError("what listens there does not speak HTTP")
        head, end, rest = self._unread.partition(b"\r\n\r\n")
        if not end:
            if len(self._unread) > _LONGEST_ANSWER:
                raise WebSocketError(f"more than {_LONGEST_ANSWER} bytes in answer to the upgrade")
            return False
        status, *lines = head.split(b"\r\n")
        fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
        if status.split(b" ")[1:2] != [b"101"]:
            raise WebSocketError(f"no WebSocket is served there ({status[:80].decode('utf-8', 'replace')})")
        if fields.get(b"sec-websocket-accept") != self._expected:
            raise WebSocketError("the answer to the upgrade is another one's")
        self._is_upgraded, self._unread = True, rest
        return True


def _cut(data: bytes, position: int) -> tuple[int, int, int] | None:
    """The frame at a position: its kind, and where its bytes start and end; None until it is complete."""
    if len(data) < position + 2:
        return None
    first, second = data[position], data[position + 1]
    if first & _RESERVED or second & _MASKED:
        raise WebSocketError("a frame that is compressed or masked")
    length, start = second, position + 2
    if length > 125:
        start += 2 if length == 126 else 8
        if len(data) < start:
            return None
        length = int.from_bytes(data[position + 2 : start], "big")
    return (first & 0x0F, start, start + length) if len(data) >= start + length else None


def _frame(kind: int, data: bytes) -> bytes:
    length = len(data)
    if length <= 125:
        size = bytes((_MASKED | length,))
    elif length <= 0xFFFF:
        size = bytes((_MASKED | 126,)) + length.to_bytes(2, "big")
    else:
        size = bytes((_MASKED | 127,)) + length.to_bytes(8, "big")
    return b"%c%b%b%b" % (_FINAL | kind, size, _NO_MASK, data)
