"""A TCP socket that discards bytes written under a fence that has closed.

A process that was stopped (SIGSTOP, a debugger, a suspended machine) resumes where it was. Bytes that it had written
and the kernel had not accepted would then be sent before any other code of the bridge runs. So the check is made where
the bytes leave the process. A refusal breaks the connection and discards the unsent bytes.
"""

import asyncio
import socket
from typing import Any, Self

from nats_bridge.client.write_fence import ALWAYS_OPEN, WriteFence

_USER_TIMEOUT = getattr(socket, "TCP_USER_TIMEOUT", None)  # Linux


class FencedSocket(socket.socket):
    """A socket for one connection.

    Attributes:
        fences: those under which bytes are still unsent.
    """

    fences: set[WriteFence]
    _drops: bool = False  # whether it has a TCP user timeout

    @classmethod
    async def connect_to(cls, host: str | None, port: int | None) -> Self:
        """Connect to the first address of a host that accepts.

        Raises:
            OSError: no address accepts, with the reason of the first one; or the host name is unknown.
        """
        loop = asyncio.get_running_loop()
        first: OSError | None = None
        for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            try:
                fenced = cls(family, kind, protocol)
            except OSError as error:  # a family that this machine does not have
                first = first or error
                continue
            fenced.fences = set()
            fenced.setblocking(False)
            try:
                await loop.sock_connect(fenced, address)
            except OSError as error:
                fenced.close()
                first = first or error
            except BaseException:
                fenced.close()
                raise
            else:
                return fenced
        raise first or OSError(f"no address of {host}")

    def hold_by(self, fence: WriteFence) -> None:
        """Send bytes written from now on only while a fence is open, and for no longer than it allows.

        If the system supports it, the connection is closed when the peer has not acknowledged bytes for that time.
        """
        if fence is ALWAYS_OPEN:
            return
        self.fences.add(fence)
        if fence.unsent_for is not None and not self._drops and _USER_TIMEOUT is not None:
            self._drops = True
            self.setsockopt(socket.IPPROTO_TCP, _USER_TIMEOUT, max(int(fence.unsent_for * 1000), 1))

    def send(self, *arguments: Any) -> int:
        """Send like `socket.send`.

        Raises:
            ConnectionAbortedError: a fence holds back the unsent bytes.
        """
        self._ask()
        return super().send(*arguments)

    def sendmsg(self, *arguments: Any) -> int:
        """Send like `socket.sendmsg`; see `send`."""
        self._ask()
        return super().sendmsg(*arguments)

    def _ask(self) -> None:
        for fence in self.fences:
            if fence.holds_back:
                raise ConnectionAbortedError("the lease under which this was written is over")
