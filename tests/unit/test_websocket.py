"""The client's side of a WebSocket on bytes: upgrades, frames cut anywhere, what is refused."""

from __future__ import annotations

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_bridge.bridge.client.websocket import WebSocket, WebSocketError

SIZES = st.sampled_from([0, 1, 125, 126, 127, 65_535, 65_536, 70_000])


def answer(websocket: WebSocket) -> bytes:
    """A server's, in the words of nats-server."""
    (key,) = [line[19:] for line in websocket.request.split(b"\r\n") if line.startswith(b"Sec-WebSocket-Key: ")]
    accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    return b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %b\r\n\r\n" % accept


def upgraded() -> WebSocket:
    websocket = WebSocket("h:80", "/leafnode")
    assert websocket.feed(answer(websocket)) == b""
    return websocket


def of_server(data: bytes, kind: int = 2) -> bytes:
    """A frame of the server's, which masks none."""
    length = len(data)
    if length < 126:
        return bytes((0x80 | kind, length)) + data
    size = b"\x7e" + length.to_bytes(2, "big") if length < 65_536 else b"\x7f" + length.to_bytes(8, "big")
    return bytes((0x80 | kind,)) + size + data


def unmasked(data: bytes) -> tuple[int, bytes]:
    """The kind and the bytes of a client's frame, as a server reads it."""
    length, at = data[1] & 0x7F, 2
    assert data[0] & 0x80
    assert data[1] & 0x80, "a client's frame is masked"
    if length > 125:
        wide = 2 if length == 126 else 8
        length, at = int.from_bytes(data[2 : 2 + wide], "big"), 2 + wide
    key, body = data[at : at + 4], data[at + 4 :]
    assert len(body) == length
    return data[0] & 0x0F, bytes(byte ^ key[n % 4] for n, byte in enumerate(body))


def test_the_request_asks_for_the_path_at_the_host() -> None:
    lines = WebSocket("h:80", "/deep/leafnode").request.split(b"\r\n")
    assert lines[:2] == [b"GET /deep/leafnode HTTP/1.1", b"Host: h:80"]
    assert lines[-2:] == [b"", b""]


@given(sizes=st.lists(SIZES, max_size=5), step=st.sampled_from([1, 3, 1000, 65_536, 10**7]))
def test_reads_may_end_anywhere(sizes: list[int], step: int) -> None:
    websocket = WebSocket("h:80", "/leafnode")
    bodies = [bytes([n]) * size for n, size in enumerate(sizes)]
    first = answer(websocket)
    data = b"".join(of_server(body, kind=2 if n % 2 else 0) for n, body in enumerate(bodies))
    step = max(step, len(data) // 2000)
    pieces = [first[:40], first[40:] + data[:step], *(data[at : at + step] for at in range(step, len(data), step))]
    assert b"".join(map(websocket.feed, pieces)) == b"".join(bodies)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536])
def test_a_server_can_read_our_frames(size: int) -> None:
    body = bytes(n % 251 for n in range(size))
    assert unmasked(WebSocket.frame(body)) == (2, body)


def test_a_ping_is_answered_and_a_close_ends_it() -> None:
    websocket = upgraded()
    data = of_server(b"before") + of_server(b"here?", kind=9) + of_server(b"", kind=10)
    assert websocket.feed(data) == b"before"
    assert unmasked(websocket.to_send) == (10, b"here?")
    assert websocket.feed(of_server(b"last") + of_server(b"\x03\xe8", kind=8) + of_server(b"no more")) == b"last"
    assert websocket.is_closed


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b'INFO {"server_id":"A"}\r\n', "does not speak HTTP"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", r"no WebSocket is served there \(HTTP/1.1 404 Not Found\)"),
        (b"HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: x\r\n\r\n", "is another one's"),
        (b"HTTP/1.1 101\r\nA: " + b"x" * 70_000, "more than 65536 bytes"),
    ],
)
def test_what_is_no_upgrade(answer: bytes, said: str) -> None:
    with pytest.raises(WebSocketError, match=said):
        WebSocket("h:80", "/leafnode").feed(answer)


@pytest.mark.parametrize(
    "frame", [b"\xc2\x01x", b"\x82\x81\0\0\0\0x", b"\x83\x01x"], ids=["compressed", "masked", "unknown"]
)
def test_what_is_no_frame(frame: bytes) -> None:
    with pytest.raises(WebSocketError, match="frame"):
        upgraded().feed(frame)
