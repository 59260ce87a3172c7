"""NATS over bare sockets, so that publishers and subscribers never are what is measured."""

from __future__ import annotations

import json
import re
import socket
from typing import Any, Self

from benchmarks.errors import BenchmarkError

_RECEIVE = 1 << 20
_ANSWER = re.compile(rb"MSG _answer 900 (\d+)\r\n")


class RawSocket:
    """A connection to a server on loopback that writes and reads protocol bytes; blocking.

    Args:
        port: of the server.
        timeout: seconds that one read or write may take.
    """

    def __init__(self, port: int, *, timeout: float = 60.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.recv(65536)  # INFO
        self.send(b'CONNECT {"verbose":false,"headers":true,"protocol":1}\r\n')
        self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Write protocol bytes."""
        self.socket.sendall(data)

    def receive(self) -> bytes:
        """One read; PINGs are answered.

        Raises:
            ConnectionError: the server closed the connection.
            TimeoutError: nothing came in time.
        """
        data = self.socket.recv(_RECEIVE)
        if not data:
            raise ConnectionError("the server closed the connection")
        if b"PING\r\n" in data:
            self.send(b"PONG\r\n")
        return data

    def receive_into(self, buffer: bytearray, start: int) -> int:
        """Read once into a reused buffer, after `start`; answer PINGs.

        Returns:
            Where what was read ends.

        Raises:
            ConnectionError: the server closed the connection.
            TimeoutError: nothing came in time.
        """
        end = start + self.socket.recv_into(memoryview(buffer)[start:])
        if end == start:
            raise ConnectionError("the server closed the connection")
        if buffer.find(b"PING\r\n", start, end) >= 0:
            self.send(b"PONG\r\n")
        return end

    def flush(self) -> None:
        """Wait until the server has handled all that was written. Only where no messages are in flight."""
        self.send(b"PING\r\n")
        data = b""
        while b"PONG\r\n" not in data:
            data = data[-8:] + self.receive()

    def request(self, subject: str, body: object = None) -> dict[str, Any]:
        """One request (`subject` in full) and its JSON answer.

        Raises:
            BenchmarkError: the server answers with an error.
        """
        data = b"" if body is None else json.dumps(body).encode()
        self.send(b"SUB _answer 900\r\nPUB %b _answer %d\r\n%b\r\n" % (subject.encode(), len(data), data))
        text = b""
        # By its length: a PING of the server may come after it in the same read.
        while (found := _ANSWER.search(text)) is None or len(text) < found.end() + int(found[1]):
            text += self.receive()
        self.send(b"UNSUB 900\r\n")
        answer: dict[str, Any] = json.loads(text[found.end() : found.end() + int(found[1])])
        if "error" in answer:
            raise BenchmarkError(f"{subject}: {answer['error']}")
        return answer
