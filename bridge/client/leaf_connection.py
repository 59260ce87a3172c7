"""A leaf connection: connects, reconnects, reads, writes; `leaf_protocol` is its core.

What it announces goes out in the same write as CONNECT, so that a server that asks again as soon as it sees interest
finds all of it there. A connection belongs to one owner, who gets its events in order. By ws:// and wss:// it reaches
the server's WebSocket listener; the server takes leaves there if it has a listener for leaf nodes as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol
from urllib.parse import SplitResult, urlsplit

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_exponential_jitter

from nats_bridge.bridge.client.connection import plain_reason
from nats_bridge.bridge.client.fenced_socket import FencedSocket
from nats_bridge.bridge.client.leaf_protocol import (
    PING,
    PONG,
    Event,
    Info,
    Interest,
    LeafParser,
    LeafProtocolError,
    Message,
    Ping,
    Pong,
    Refused,
    announcement,
    connect_line,
)
from nats_bridge.bridge.client.websocket import WebSocket, WebSocketError
from nats_bridge.bridge.client.wire import ClearTextError
from nats_bridge.bridge.client.write_fence import ALWAYS_OPEN, WriteFence
from nats_bridge.bridge.errors import ConfigError, CredentialsError, ServerUnreachableError
from nats_bridge.bridge.settings.tls_context import RenewedContext

_log = structlog.get_logger("bridge.connection")

_PORT: Final = 7422
"""Where servers listen for leaf nodes by default."""
_WEB_PORTS: Final = MappingProxyType({"ws": 80, "wss": 443})
_PATH: Final = "leafnode"
"""What the WebSocket listener's path for leaf nodes ends with."""
_READ_SIZE: Final = 256 * 1024
_PING_INTERVAL: Final = 10.0
"""Seconds without a byte after which the server is asked whether it is there; after as many more it counts as lost."""
_SHORT: Final = 1.0
"""Seconds; a connection that ends sooner after it was established is followed by a longer wait."""
_FIRST_WAIT: Final = 0.05
_BACKOFF: Final = wait_exponential_jitter(multiplier=_FIRST_WAIT, max=0.5, jitter=_FIRST_WAIT)
_RESTART: Final = 30.0
"""Seconds for a server to listen again."""
_LISTENS_SOON: Final = 0.025


class LeafOwner(Protocol):
    """Receives the events of a leaf connection, in order; its methods must not raise or block."""

    def established(self, info: Info) -> None:
        """The connection is usable: the server has handled what was announced."""

    def lost(self) -> None:
        """The connection ended after it was established, and is being restored."""

    def interest(self, interest: Interest, *, standing: bool) -> None:
        """The server's side wants a subject, or no longer; `standing` where it did before we connected."""

    def received(self, message: Message) -> None:
        """A message came."""

    def refused(self, text: str) -> None:
        """The server refuses a subscription or a publication (permissions)."""


class _RefusedError(Exception):
    """The server refused the connection before it was established."""


class _NoInfoError(ConnectionResetError):
    """The connection ended before INFO, as it does behind a proxy while no server listens."""


_FAILURES: Final = (OSError, LeafProtocolError, WebSocketError, ClearTextError, _RefusedError)


@dataclass(slots=True)
class _Session:
    """One TCP connection, from the server's INFO on; with a WebSocket on it or without."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    websocket: WebSocket | None
    parser: LeafParser
    info: Info

    async def events(self) -> list[Event]:
        """The events of the next read.

        Raises:
            OSError, LeafProtocolError, WebSocketError: the connection is over.
        """
        data = await self.reader.read(_READ_SIZE)
        if not data:
            raise ConnectionResetError("the server closed the connection")
        if (websocket := self.websocket) is not None:
            data = websocket.feed(data)
            if websocket.to_send:
                self.writer.write(websocket.to_send)
                websocket.to_send = b""
            if websocket.is_closed and not data:
                raise ConnectionResetError("the server closed the connection")
        return self.parser.feed(data)

    def write(self, operations: bytes) -> None:
        """Send operations."""
        self.writer.write(operations if self.websocket is None else WebSocket.frame(operations))


class LeafConnection:
    """One leaf connection, restored whenever it is lost.

    Args:
        name: the connection's name in the configuration, for messages.
        options: what `bridge.settings.connect_options` made of it.
        leaf_name: the leaf's name in the server's lists.
        subjects: what to subscribe to.
        owner: gets the events.
        fence: nothing is written, and no connection made, while it is closed.

    Attributes:
        is_up: whether it is established.
    """

    def __init__(
        self,
        name: str,
        options: Mapping[str, Any],
        leaf_name: str,
        subjects: Sequence[bytes],
        owner: LeafOwner,
        fence: WriteFence = ALWAYS_OPEN,
    ) -> None:
        self.name = name
        self._options = options
        self._leaf_name = leaf_name
        self._announcements = b"".join(map(announcement, subjects))
        self._owner = owner
        self._fence = fence
        self._session: _Session | None = None
        self.is_up = False
        self._gathered: list[bytes] = []
        self._reported = ""  # the reason last logged, until the next success

    async def run(self) -> None:
        """Connect, and reconnect whenever the connection ends; until cancelled."""
        while True:
            async for attempt in AsyncRetrying(
                retry=retry_if_exception_type(_FAILURES),
                wait=_wait,
            ):
                with attempt:
                    await self._live_once()

    def write(self, operations: bytes) -> None:
        """Write at the event loop's next turn, together with what else is written in this one; dropped when not up."""
        if not self._gathered:
            asyncio.get_running_loop().call_soon(self._send_gathered)
        self._gathered.append(operations)

    def reconnect(self) -> None:
        """Close the connection and reconnect at once."""
        if self._session is not None:
            self._session.writer.transport.abort()

    async def flushed(self) -> None:
        """Wait until the kernel has taken what was written."""
        self._send_gathered()
        if self._session is not None:
            with contextlib.suppress(OSError):
                await self._session.writer.drain()

    # -- one connection after the other ------------------------------------------------------------------------------

    async def _live_once(self) -> None:
        """Connect and read until the connection ends.

        Raises:
            _FAILURES: it ended before it was established, or right after that.
        """
        await self._fence.opened()
        loop = asyncio.get_running_loop()
        since, reason = 0.0, ""
        try:
            session = self._session = await _open(self._options, self._fence)
            session.write(_greeting(session.info, self._options, self._leaf_name, self._announcements))
            until, asked = loop.time() + float(self._options["connect_timeout"]), False
            while True:
                try:
                    async with asyncio.timeout(_PING_INTERVAL if self.is_up else until - loop.time()):
                        events = await session.events()
                except TimeoutError:
                    if not self.is_up:
                        raise
                    if asked:
                        raise ConnectionResetError("no answer to PING") from None
                    asked = True
                    self.write(PING)
                    continue
                asked = False
                for event in events:
                    if isinstance(event, Pong) and not self.is_up:
                        since, self.is_up, self._reported = loop.time(), True, ""
                        _log.info("connection.back", connection=self.name, version=session.info.version)
                        self._owner.established(session.info)
                    else:
                        self._handle(session, event)
        except _FAILURES as error:
            reason = plain_reason(error)
            if not since or loop.time() - since < _SHORT:
                self._report_failure(error)
                raise
        finally:
            was_up, self.is_up = self.is_up, False
            self._gathered.clear()
            if self._session is not None:
                self._session.writer.transport.abort()
                self._session = None
            if was_up:
                self._owner.lost()
        _log.warning("connection.lost", connection=self.name, reason=reason)

    def _handle(self, session: _Session, event: Event) -> None:
        match event:
            case Message():
                self._owner.received(event)
            case Interest():
                self._owner.interest(event, standing=not self.is_up)
            case Ping():
                session.write(PONG)
            case Refused(text):
                if "permissions violation" in text.lower():
                    _log.error("connection.refused", connection=self.name, server_says=text)
                    self._owner.refused(text)
                elif not self.is_up:
                    raise _RefusedError(text)
                else:  # the server closes the connection, such as where the user's time is over
                    _log.warning("connection.error", connection=self.name, error=text)
            case Info():
                session.info = event

    def _send_gathered(self) -> None:
        gathered, self._gathered = self._gathered, []
        if gathered and self._session is not None and not self._session.writer.is_closing():
            self._session.write(b"".join(gathered) if len(gathered) > 1 else gathered[0])

    def _report_failure(self, error: BaseException) -> None:
        reason = plain_reason(error)
        if reason != self._reported:
            self._reported = reason
            if isinstance(error, ssl.SSLError | ClearTextError | _RefusedError):
                _log.error("connection.rejected", connection=self.name, reason=reason, meaning="tried again")
            else:
                _log.warning("connection.error", connection=self.name, error=reason)


def _wait(state: RetryCallState) -> float:
    """How long to wait before the next attempt, in seconds; hardly, while a server may be starting again.

    Its streams ask their sources 0.1 to 0.2 s after it has read them, which is about when it listens. Without an
    answer to that, 2.10 pauses for ten seconds or more (2.10.27).
    """
    failure = state.outcome.exception() if state.outcome is not None else None
    if isinstance(failure, ConnectionRefusedError | _NoInfoError) and (state.seconds_since_start or 0.0) < _RESTART:
        return _LISTENS_SOON
    return _BACKOFF(state)


async def ask_listener(name: str, options: Mapping[str, Any], leaf_name: str) -> Info:
    """Connect as a leaf, announce nothing, and close.

    Args:
        name: the connection's name, for messages.
        options: as in `LeafConnection`.
        leaf_name: the leaf's name in the server's lists.

    Returns:
        The server's INFO.

    Raises:
        ServerUnreachableError: no server answers as a listener for leaf nodes.
        CredentialsError: the server refuses the credentials.
        ConfigError: TLS is asked for and the server offers none.
    """
    servers = ", ".join(options["servers"])
    try:
        async with asyncio.timeout(float(options["connect_timeout"])):
            session = await _open(options, ALWAYS_OPEN)
            try:
                session.write(_greeting(session.info, options, leaf_name, b""))
                while True:
                    for event in await session.events():
                        if isinstance(event, Refused):
                            raise _RefusedError(event.text)
                        if isinstance(event, Pong):
                            return session.info
            finally:
                session.writer.transport.abort()
    except ClearTextError:
        raise ConfigError(
            f"connection '{name}': the listener for leaf nodes at {servers} offers no TLS, which the connection asks"
            " for, so nothing was sent: turn TLS on there, or write nats:// and leave out tls"
        ) from None
    except (ssl.SSLError, _RefusedError) as error:
        raise CredentialsError(
            f"connection '{name}': the listener for leaf nodes at {servers} refuses the connection"
            f" ({plain_reason(error)}): check the connection's credentials and tls, and the authorization in the"
            " server's leafnodes"
        ) from None
    except (OSError, TimeoutError, LeafProtocolError, WebSocketError) as error:
        raise ServerUnreachableError(
            f"connection '{name}': no listener for leaf nodes answers at {servers} ({plain_reason(error)}):"
            " check the address, and that the server there has leafnodes {listen}, for a WebSocket as well"
        ) from None


async def _open(options: Mapping[str, Any], fence: WriteFence) -> _Session:
    """Connect to the first server that answers, up to its INFO, with TLS where either side asks for it.

    Raises:
        _FAILURES: none does; the reason of the last.
    """
    failure: BaseException = OSError("no servers")
    for server in options["servers"]:
        try:
            async with asyncio.timeout(float(options["connect_timeout"])):
                return await _open_one(str(server), options, fence)
        except _FAILURES as error:
            failure = error
    raise failure


async def _open_one(server: str, options: Mapping[str, Any], fence: WriteFence) -> _Session:
    parts = urlsplit(server if "://" in server else f"nats://{server}")
    fenced = await FencedSocket.connect_to(parts.hostname, parts.port or _WEB_PORTS.get(parts.scheme, _PORT))
    fenced.hold_by(fence)
    reader, writer = await asyncio.open_connection(sock=fenced)
    try:
        return await _begin(reader, writer, parts, options)
    except BaseException:
        writer.transport.abort()
        raise


async def _begin(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, parts: SplitResult, options: Mapping[str, Any]
) -> _Session:
    """Read INFO, and encrypt before it or after it; through a WebSocket where the URL says so."""
    context: ssl.SSLContext | None = options.get("tls")
    if isinstance(context, RenewedContext):
        context.renew()

    async def encrypt() -> None:
        host = options.get("tls_hostname") or parts.hostname
        await writer.start_tls(context or ssl.create_default_context(), server_hostname=host)

    session = _Session(reader, writer, None, LeafParser(), Info({}))
    by_web = parts.scheme in _WEB_PORTS
    if by_web:
        encrypts_first = parts.scheme == "wss" or context is not None
    else:
        encrypts_first = bool(options.get("tls_handshake_first"))
    if encrypts_first:
        await encrypt()
    if by_web:
        session.websocket = WebSocket(parts.netloc, f"{parts.path.rstrip('/')}/{_PATH}")
        writer.write(session.websocket.request)
    try:
        while not (events := await session.events()):
            pass
    except ConnectionError as error:
        raise _NoInfoError(*error.args) from None
    info = events[0]
    if not isinstance(info, Info) or not (info.members.get("info_on_connect") or info.members.get("leafnode_urls")):
        raise LeafProtocolError("what listens there is not a listener for leaf nodes")
    session.info = info
    if not encrypts_first and not by_web:
        offers, requires = info.members.get("tls_available"), info.members.get("tls_required")
        if context is not None or parts.scheme == "tls":
            if not (offers or requires):
                raise ClearTextError
            await encrypt()
        elif requires:
            await encrypt()
    return session


def _greeting(info: Info, options: Mapping[str, Any], leaf_name: str, announcements: bytes) -> bytes:
    return connect_line(info, leaf_name, _credentials(info, options)) + announcements + PING


def _credentials(info: Info, options: Mapping[str, Any]) -> dict[str, str]:
    """The members of CONNECT with the credentials; secrets are callables, read again each time."""
    found: dict[str, str] = {}
    if options.get("user"):
        found |= {"user": str(options["user"]), "pass": options["password"]()}
    if options.get("token"):
        found["auth_token"] = options["token"]()
    if sign := options.get("signature_cb"):
        found["sig"] = sign(str(info.members.get("nonce", ""))).decode()
        if options.get("user_jwt_cb"):
            found["jwt"] = bytes(options["user_jwt_cb"]()).decode()
        if sign.public_key:
            found["nkey"] = sign.public_key
    return found
