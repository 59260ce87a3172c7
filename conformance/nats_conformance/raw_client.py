"""A NATS client that shows every byte: it neither parses nor normalises header blocks, and sends nothing again.

Theory of operation. One task reads the protocol and passes each message to its subscription, in the order of the wire.
Each request has a separate reply subject below one inbox. `flush` is a PING whose PONG follows everything that the
server had for this connection, so nothing more is in flight then.
"""

import asyncio
import base64
import contextlib
import json
import secrets
import socket
import ssl
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

import nkeys  # type: ignore[import-untyped]

from nats_conformance.catalogue.case import Message
from nats_conformance.errors import SubjectError

LIMIT = 90.0
"""Seconds until a server that does not answer counts as gone; generous, because busy machines are slow."""
_NO_RESPONDERS = b"NATS/1.0 503"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials; those of the URL (`user:password@` or `token@`) apply if these are empty."""

    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    creds: Path | None = None


@dataclass(frozen=True, slots=True)
class Delivered:
    """A message as it arrived."""

    message: Message
    reply: bytes


class Collected:
    """The messages of a subscription, in order."""

    def __init__(self) -> None:
        self.deliveries: list[Delivered] = []
        self.changed = asyncio.Event()

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages alone."""
        return tuple(each.message for each in self.deliveries)


class RawClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, info: Mapping[str, Any]) -> None:
        self._reader = reader
        self._writer = writer
        self.info = info
        self._subscriptions: dict[bytes, Collected] = {}
        self._next = 0
        self._inbox = f"_INBOX.{secrets.token_hex(8)}"
        self._answers: dict[bytes, asyncio.Future[Delivered]] = {}
        self._pongs: deque[asyncio.Future[None]] = deque()
        self._ended: SubjectError | None = None
        self._errors: list[str] = []
        self._task = asyncio.create_task(self._read())

    @property
    def server_version(self) -> str:
        """The version in the server's INFO."""
        return str(self.info.get("version", ""))

    @classmethod
    async def connect(cls, url: str, credentials: Credentials | None = None) -> Self:
        """Connect and authenticate.

        Raises:
            SubjectError: not reachable, not a NATS server, or it refuses the credentials.
        """
        try:
            async with asyncio.timeout(LIMIT):
                return await cls._connect(url, credentials or Credentials())
        except TimeoutError:
            raise SubjectError(f"{shown_address(url)}: no answer within {LIMIT:g} s") from None
        except ValueError:
            # Not the error's own text: it quotes the address with its credentials.
            raise SubjectError(f"{shown_address(url)}: expected an address such as nats://127.0.0.1:4222") from None
        except (ConnectionRefusedError, socket.gaierror) as error:
            why = "connection refused" if isinstance(error, ConnectionRefusedError) else "the name is not known"
            raise SubjectError(
                f"no server answers at {shown_address(url)} ({why}): check the address, and that nats-server runs there"
            ) from None
        except (OSError, asyncio.IncompleteReadError) as error:
            raise SubjectError(f"{shown_address(url)}: {error}") from None

    @classmethod
    async def _connect(cls, url: str, credentials: Credentials) -> Self:
        parts = urlsplit(url if "://" in url else f"nats://{url}")
        if parts.scheme not in ("nats", "tls"):
            raise ValueError(parts.scheme)
        reader, writer = await asyncio.open_connection(parts.hostname or "127.0.0.1", parts.port or 4222, limit=1 << 26)
        line = await reader.readline()
        if not line.startswith(b"INFO "):
            writer.close()
            raise SubjectError(f"{shown_address(url)}: this is no NATS server, it said {line[:40]!r}")
        info = json.loads(line[5:])
        if parts.scheme == "tls" or info.get("tls_required"):
            await writer.start_tls(ssl.create_default_context(), server_hostname=parts.hostname)
        client = cls(reader, writer, info)
        options = {
            "verbose": False,
            "pedantic": False,
            "headers": True,
            "no_responders": True,
            "protocol": 1,
            "lang": "python",
            "version": "1",
            "name": "nats-conform",
            **_identified(parts.username, parts.password, credentials, info),
        }
        client._write(b"CONNECT %b\r\n" % json.dumps(options).encode())
        try:
            await client.flush()
            await client._subscribe(f"{client._inbox}.*".encode(), b"inbox")
        except SubjectError as error:
            await client.close()
            raise SubjectError(f"{shown_address(url)}: {error}") from None
        return client

    async def close(self) -> None:
        """End the connection. Everything written before reaches the server."""
        self._end(SubjectError("the connection was closed"))
        if not self._writer.is_closing():
            with contextlib.suppress(OSError):
                await self._writer.drain()
            self._writer.close()
        self._task.cancel()
        await asyncio.wait([self._task])

    def publish(self, message: Message, reply: bytes = b"") -> None:
        """Write a message as raw bytes."""
        middle = b"%b " % reply if reply else b""
        block, payload = message.header_block, message.payload
        if block:
            line = b"HPUB %b %b%d %d\r\n" % (message.subject, middle, len(block), len(block) + len(payload))
        else:
            line = b"PUB %b %b%d\r\n" % (message.subject, middle, len(payload))
        self._write(line + block + payload + b"\r\n")

    async def subscribe(self, subject: bytes) -> Collected:
        """Collect everything that arrives on a subject. The server has the subscription when this returns."""
        self._next += 1
        return await self._subscribe(subject, b"%d" % self._next)

    async def _subscribe(self, subject: bytes, number: bytes) -> Collected:
        collected = self._subscriptions[number] = Collected()
        self._write(b"SUB %b %b\r\n" % (subject, number))
        await self.flush()
        return collected

    def unsubscribe(self, collected: Collected) -> None:
        """End a subscription."""
        for number, each in list(self._subscriptions.items()):
            if each is collected:
                del self._subscriptions[number]
                self._write(b"UNSUB %b\r\n" % number)

    async def ask(self, message: Message) -> Delivered | None:
        """Publish, and return the answer; None without responders.

        Raises:
            SubjectError: the connection ended, or no answer came.
        """
        self._next += 1
        inbox = f"{self._inbox}.{self._next}".encode()
        answer: asyncio.Future[Delivered] = asyncio.get_running_loop().create_future()
        self._answers[inbox] = answer
        try:
            self.publish(message, inbox)
            found = await self._awaited(answer, f"an answer to {message.subject.decode('utf-8', 'replace')}")
        finally:
            self._answers.pop(inbox, None)
        return None if found.message.header_block.startswith(_NO_RESPONDERS) else found

    async def arrived(self, collected: Collected, number: int, limit: float = LIMIT) -> bool:
        """Wait until a subscription has received `number` messages. Return False after `limit` seconds.

        Raises:
            SubjectError: the connection ended.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                while self._ended is None:
                    if len(collected.deliveries) >= number:
                        return True
                    collected.changed.clear()
                    await collected.changed.wait()
        if self._ended is not None:
            raise self._ended
        return False

    async def api(self, subject: str, body: object = None) -> dict[str, Any]:
        """Send a JetStream API request (`subject` without `$JS.API.`). Return its JSON answer, which may be an error.

        Raises:
            SubjectError: JetStream does not answer.
        """
        data = b"" if body is None else json.dumps(body).encode("utf-8", "surrogateescape")
        found = await self.ask(Message(f"$JS.API.{subject}".encode(), payload=data))
        if found is None:
            raise SubjectError("JetStream is not enabled on the server, or not in this account")
        answer: dict[str, Any] = json.loads(found.message.payload)
        return answer

    async def flush(self) -> None:
        """Wait until the server has handled everything written, and everything that it had sent has arrived."""
        pong: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pongs.append(pong)
        self._write(b"PING\r\n")
        await self._awaited(pong, "a PONG")

    async def _awaited(self, future: asyncio.Future[Any], what: str) -> Any:
        if self._ended is not None:
            raise self._ended
        try:
            async with asyncio.timeout(LIMIT):
                return await future
        except TimeoutError:
            said = f"; the server said: {self._errors[-1]}" if self._errors else ""
            raise SubjectError(f"{what} did not come within {LIMIT:g} s{said}") from None

    def _write(self, data: bytes) -> None:
        if self._ended is None:
            self._writer.write(data)

    async def _read(self) -> None:
        try:
            while True:
                line = await self._reader.readuntil(b"\r\n")
                await self._protocol(line)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            said = f"; it said: {self._errors[-1]}" if self._errors else ""
            self._end(SubjectError(f"the server ended the connection{said}"))

    async def _protocol(self, line: bytes) -> None:
        verb = line[:4].upper()
        if verb in (b"MSG ", b"HMSG"):
            await self._message(line)
        elif verb == b"PING":
            self._write(b"PONG\r\n")
        elif verb == b"PONG":
            if self._pongs:
                _resolve(self._pongs.popleft(), None)
        elif verb == b"-ERR":
            self._errors.append(line[5:].decode("utf-8", "replace").strip().strip("'"))
        elif verb == b"INFO":
            self.info = json.loads(line[5:])

    async def _message(self, line: bytes) -> None:
        # Counted from the right, because a subject of an old server may contain spaces.
        verb, sizes = (b"HMSG ", 2) if line.startswith(b"HMSG") else (b"MSG ", 1)
        address, *lengths = line[len(verb) : -2].rsplit(b" ", sizes)
        total, head = int(lengths[-1]), int(lengths[0]) if sizes == 2 else 0
        data = await self._reader.readexactly(total + 2)
        subject, number, reply = self._addressed(address)
        delivered = Delivered(Message(subject, data[:head], data[head:total]), reply)
        answer = self._answers.get(subject)
        if answer is not None:
            _resolve(answer, delivered)
        elif number in self._subscriptions:
            collected = self._subscriptions[number]
            collected.deliveries.append(delivered)
            collected.changed.set()

    def _addressed(self, address: bytes) -> tuple[bytes, bytes, bytes]:
        """Subject, number of the subscription and reply."""
        before, _, last = address.rpartition(b" ")
        if last in self._subscriptions:
            return before, last, b""
        subject, _, number = before.rpartition(b" ")
        return subject, number, last

    def _end(self, error: SubjectError) -> None:
        if self._ended is not None:
            return
        self._ended = error
        for collected in self._subscriptions.values():
            collected.changed.set()
        waiting: list[asyncio.Future[Any]] = [*self._answers.values(), *self._pongs]
        for future in waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()  # retrieved: there may be no waiter
        self._answers.clear()
        self._pongs.clear()


def _resolve(future: asyncio.Future[Any], value: object) -> None:
    if not future.done():
        future.set_result(value)


def _identified(
    user: str | None, password: str | None, credentials: Credentials, info: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the members of CONNECT that authenticate the client."""
    if credentials.creds is not None:
        return _signed(credentials.creds, str(info.get("nonce", "")))
    if credentials.user:
        return {"user": credentials.user, "pass": credentials.password}
    if credentials.token:
        return {"auth_token": credentials.token}
    if user and password is not None:
        return {"user": unquote(user), "pass": unquote(password)}
    return {"auth_token": unquote(user)} if user else {}


def _signed(file: Path, nonce: str) -> dict[str, Any]:
    """JWT and signed nonce from a credentials file."""
    try:
        text = file.read_text("utf-8")
        jwt = text.split("-----BEGIN NATS USER JWT-----")[1].split("------END NATS USER JWT------")[0].strip()
        seed = text.split("-----BEGIN USER NKEY SEED-----")[1].split("------END USER NKEY SEED------")[0].strip()
    except OSError as error:
        raise SubjectError(f"{file}: {error.strerror}") from None
    except IndexError:
        raise SubjectError(f"{file}: not a credentials file: it needs a user JWT and an NKEY seed") from None
    signature = nkeys.from_seed(seed.encode()).sign(nonce.encode())
    return {"jwt": jwt, "sig": base64.urlsafe_b64encode(signature).decode().rstrip("=")}


def shown_address(url: str) -> str:
    """Return the address without credentials."""
    scheme, separator, rest = url.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
