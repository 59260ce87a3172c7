"""A nats-py connection that delivers whole reads as batches of raw messages.

nats-py keeps its role (servers, authentication, TLS, reconnecting, requests). Its parser and its transport are replaced
with `batch_parser` and `wide_transport`. Only these three modules use nats-py's internals, and
`tests/live/servers/test_wire.py` checks that they still fit.

A subscription made with `subscribe_batches` gets its messages in batches; nats-py handles all others.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import ParseResult

from nats_bridge.client.batch_parser import BatchParser, Delivered, InBulk, Route
from nats_bridge.client.nats_py import Client, errors
from nats_bridge.client.reconnect_schedule import ReconnectSchedule
from nats_bridge.client.server_pool import ServerPool
from nats_bridge.client.tasks import end_tasks
from nats_bridge.client.wide_transport import WideTransport
from nats_bridge.client.write_fence import ALWAYS_OPEN, WriteFence
from nats_bridge.settings.tls_context import RenewedContext

if TYPE_CHECKING:
    from nats.aio.client import Srv
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

__all__ = ["BatchSubscription", "ClearTextError", "Delivered", "InBulk", "WireClient"]


@dataclass(frozen=True, slots=True)
class BatchSubscription:
    """A subscription whose messages arrive in batches; `unsubscribe` ends it."""

    client: WireClient
    sid: bytes
    subscription: Subscription

    async def unsubscribe(self) -> None:
        """Ask the server to stop. Messages in flight still arrive until `release`."""
        if not self.client.is_closed:
            await self.client._send_unsubscribe(int(self.sid))

    def forget(self) -> None:
        """While the connection is down: do not subscribe again when it is back."""
        self.client.release_route(self.sid)
        self.client._remove_sub(int(self.sid))
        self.subscription._stop_processing()

    async def release(self) -> None:
        """Forget the subscription, and drop messages that still arrive for it."""
        self.client.release_route(self.sid)
        if not self.client.is_closed and not self.subscription._closed:
            await self.subscription.unsubscribe()


class ClearTextError(errors.Error):
    """TLS is required and the server does not offer it."""

    def __str__(self) -> str:
        return "the server offers no TLS"


class NoInfoError(errors.Error):
    """A server ended the connection before it said anything."""

    def __str__(self) -> str:
        return (
            "the server ended the connection without INFO: if it expects TLS first, set tls.handshake_first;"
            " if not, no nats-server listens there"
        )


async def _discard(_: Msg) -> None:
    """Callback of subscriptions whose messages the parser hands on itself."""


class WireClient(Client):
    """A nats-py client that can also deliver raw batches and write raw protocol bytes.

    Args:
        schedule: the times of reconnects; without one, nats-py decides them.

    Attributes:
        pool: the servers that may be tried; only with a schedule.
        ended_by: the error that ended the last connection.
        is_leaving: whether the connected server is in lame duck mode.
    """

    def __init__(self, schedule: ReconnectSchedule | None = None) -> None:
        super().__init__()
        self._schedule = schedule
        self.pool = ServerPool(())
        self.ended_by: Exception | None = None
        self.is_leaving = False
        self._batches = BatchParser(self)
        self._ps = self._batches  # type: ignore[assignment]
        self._asked: tuple[asyncio.Future[bool] | None, int] = None, 0  # the last PONG, and the writes before it
        self._wide = WideTransport(self._take)
        self._transport = self._wide

    def _take(self, chunk: bytes) -> bytes:
        """Handle a read at once, and write the operations that result. The rest is returned for nats-py's own task."""
        if not self.is_connected:
            return chunk
        self._wide.holds = True
        try:
            return self._batches.take(chunk)
        finally:
            self._wide.holds = False
            self._wide.send_gathered()

    @property
    def reported_version(self) -> str:
        """The version that the connected server reports, such as `2.16.0-RC.1`; empty if it reports none."""
        return str(self._server_info.get("version", ""))

    async def subscribe_batches(
        self,
        subject: str,
        on_batch: Callable[[list[Delivered]], None],
        on_control: Callable[[bytes, bytes], None] | None = None,
        *,
        queue: str = "",
        in_bulk: InBulk | None = None,
    ) -> BatchSubscription:
        """Subscribe, and receive the messages of each read as one list, in order.

        Args:
            subject: what to subscribe to.
            on_batch: called with the messages of one read; it must neither raise nor wait.
            on_control: called with (reply subject, header block) of flow control requests and heartbeats, in order with
                the messages around them; it must not raise. None if the messages come from publishers instead of a
                consumer: then all are messages.
            queue: the queue group that shares the messages; empty for none.
            in_bulk: called first, to take messages from a read that begins with a message of the subscription.
        """
        # The route is put in place before SUB is sent: nothing that the server sends back can miss it.
        sid = b"%d" % (self._sid + 1)
        self._batches.routes[sid] = Route(on_batch, on_control, in_bulk)
        subscription = await self.subscribe(subject, queue, cb=_discard)
        return BatchSubscription(self, sid, subscription)

    def new_inbox(self) -> str:
        """Return a new inbox.

        Other clients can see the inbox that a consumer delivers to. nats-py's inboxes are predictable once one is
        known.
        """
        return f"{self._inbox_prefix.decode()}.{secrets.token_hex(11)}"

    def is_inbox(self, subject: str) -> bool:
        """Return whether a subject is one of this client's inboxes."""
        return subject.startswith(f"{self._inbox_prefix.decode()}.")

    async def reconnect(self, reason: Exception) -> None:
        """End the connection, and connect again."""
        self.ended_by = reason
        await self.force_reconnect()

    async def close(self) -> None:
        """Close permanently, also in the middle of a reconnect, whose socket nats-py would leave open."""
        reconnect = self._reconnection_task
        if reconnect is not asyncio.current_task():
            await end_tasks(reconnect)
        # nats-py writes the rest; if the connection were lost just then, its close() would end half way.
        self._wide.is_left = True
        await super().close()
        self._wide.release()

    def _setup_server_pool(self, connect_url: Any) -> None:
        super()._setup_server_pool(connect_url)
        self.pool = ServerPool(map(_address, self.servers))

    async def _select_next_server(self) -> None:
        if self._schedule is None:
            await super()._select_next_server()
            return
        # As nats-py does it, but in the order and at the times of the schedule.
        while True:
            await asyncio.sleep(self._schedule.wait())
            server = self._next_server()
            limit = self.pool.patience() if self.ended_by is not None else self.options["connect_timeout"]
            try:
                async with asyncio.timeout(min(limit, self.options["connect_timeout"])):
                    await self._connect_to_server(server)
            except Exception as error:  # any error of a system call for this name or address
                self.pool.failed()
                self._err = error
                await self._error_cb(error)
            else:
                self._current_server = server
                return

    def _next_server(self) -> Srv:
        address = self.pool.next()
        return next(server for server in self._server_pool if _address(server.uri) == address)

    async def _process_connect_init(self) -> None:
        # If a connection is lost before its reconnect has ended, nats-py leaves its tasks.
        await end_tasks(self._reading_task, self._ping_interval_task, self._flusher_task)
        try:
            await super()._process_connect_init()
        except Exception as error:
            self.pool.failed()
            if "when expecting INFO" in str(error):
                raise NoInfoError from None
            if isinstance(error, (OSError, errors.Error, TimeoutError)):
                raise
            # nats-py tries again after those alone, and would silently stop trying after any other.
            raise errors.Error(f"{type(error).__name__}: {error}") from error
        self.pool.accepted()
        if self._schedule is not None:
            self._schedule.established(asyncio.get_running_loop().time())

    async def _process_info(self, info: Mapping[str, Any], initial_connection: bool = False) -> None:
        await super()._process_info(dict(info), initial_connection)
        self.is_leaving = bool(info.get("ldm"))
        if self._schedule is None:
            return
        self.pool.advertise(_listed(info.get("connect_urls")))
        known = set(self.pool.addresses)
        self._server_pool[:] = [server for server in self._server_pool if _address(server.uri) in known]

    async def _process_op_err(self, e: Exception) -> None:
        if self.is_connected:
            self.ended_by = e
        await super()._process_op_err(e)

    async def _attempt_reconnect(self) -> None:
        self.pool.lost()
        if self._schedule is not None:
            self._schedule.lost(asyncio.get_running_loop().time())
        await super()._attempt_reconnect()

    def _connect_command(self) -> bytes:
        # CONNECT carries the credentials. nats-py would send them in clear text if the server does not offer TLS.
        server = self._current_server
        if public_key := getattr(self._signature_cb, "public_key", ""):
            self._public_nkey = public_key  # read again, like the seed that signs
        asked_for = self.options.get("tls") is not None or (server is not None and server.uri.scheme == "tls")
        if asked_for and not self._wide.encrypted:
            raise ClearTextError
        return super()._connect_command()

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """The TLS context, which nats-py requests before every handshake."""
        context = super().ssl_context
        if isinstance(context, RenewedContext):
            context.renew()
        return context

    @property
    def server_id(self) -> str:
        """The connected server's id, which is unique."""
        return str(self._server_info.get("server_id", ""))

    @property
    def server_name(self) -> str:
        """The name of the connected server; empty if it has no configured name: then servers report their id."""
        name = str(self._server_info.get("server_name", ""))
        return "" if name == self.server_id else name

    def release_route(self, sid: bytes) -> None:
        """Stop handing on messages of a subscription."""
        self._batches.routes.pop(sid, None)

    def fail_requests(self) -> None:
        """Fail every pending request with a timeout: its answer went with the connection."""
        for future in self._resp_map.values():
            if not future.done():
                future.set_exception(errors.TimeoutError())

    def write_raw(self, data: bytes, fence: WriteFence = ALWAYS_OPEN) -> None:
        """Write protocol bytes (whole operations) in this turn of the event loop, past nats-py's buffer.

        Write at once, only when `is_connected`. Anything written in another way afterwards is sent later.

        Args:
            data: the bytes.
            fence: open now. If it closes before all bytes have left the process, the rest is not sent, and the
                connection is broken instead.
        """
        self._wide.gather(data, fence)

    def answer(self, subject: bytes) -> None:
        """Publish an empty message, to answer flow control or acknowledge. Do nothing while the connection is lost.

        Args:
            subject: a subject that the server made. The reply subject of a delivery may have been chosen by any client.
        """
        if self.is_connected:
            self.write_raw(b"PUB %b 0\r\n\r\n" % subject)

    @property
    def unsent_bytes(self) -> int:
        """Bytes written to the socket's buffer that the kernel has not taken yet."""
        return self._wide.unsent_bytes

    async def drained(self) -> None:
        """Wait until the socket's buffer is below its low-water mark."""
        await self._wide.drain()

    def flushed(self) -> asyncio.Future[bool]:
        """Send PING. The future is done at its PONG, when the server has handled everything written before.

        Calls with nothing written in between get the same one.
        """
        self._write_pending()
        asked, writes = self._asked
        if asked is None or asked.done() or writes != self._wide.writes:
            asked = asyncio.get_running_loop().create_future()
            self._pongs.append(asked)
            self._wide.gather(b"PING\r\n", ALWAYS_OPEN)
            self._asked = asked, self._wide.writes
        return asked

    async def _send_ping(self, future: asyncio.Future[Any] | None = None) -> None:
        # nats-py's `flush` also waits for them.
        self._write_pending()
        await super()._send_ping(future)

    def _write_pending(self) -> None:
        """nats-py keeps SUB and UNSUB until its flusher runs; a PING must not overtake them."""
        if self._pending:
            self._wide.writelines(self._pending)
            self._pending = []
            self._pending_data_size = 0


def _address(uri: ParseResult) -> str:
    return str(uri.netloc).rpartition("@")[2]


def _listed(addresses: Any) -> list[str]:
    return [str(address) for address in addresses] if isinstance(addresses, list) else []
