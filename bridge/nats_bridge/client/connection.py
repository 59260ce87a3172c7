"""Connections by name: opened from the settings, watched, and shared by the rules."""

import asyncio
import socket
import ssl
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

import structlog

from nats_bridge.client import nats_py
from nats_bridge.client.audit_advisories import Removals
from nats_bridge.client.consumer_names import place
from nats_bridge.client.ended_connections import EndedConnections
from nats_bridge.client.jetstream_api import OWN_API, JetStreamApi
from nats_bridge.client.permission_violations import refused_publication, refused_subscription
from nats_bridge.client.reconnect_schedule import LONGEST_WAIT, ReconnectSchedule
from nats_bridge.client.tasks import end_tasks
from nats_bridge.client.untested_server import untested
from nats_bridge.client.wire import ClearTextError, WireClient
from nats_bridge.errors import BridgeError, ConfigError, CredentialsError, ServerUnreachableError
from nats_transforms.tested_versions import TESTED_VERSIONS

_log = structlog.get_logger("bridge.connection")

_BY_THE_SERVER = (nats_py.errors.UnexpectedEOF, OSError)
"""The errors of a connection that its server closes without a reason."""
_Event: TypeAlias = Literal["disconnect", "reconnect", "refusal", "end"]

_PING = 10  # seconds between two PINGs; the third without a PONG ends the connection
_REPEAT = 60.0  # seconds until the same cause of failed attempts is logged again


@dataclass(frozen=True, slots=True)
class FailedAttempts:
    """Attempts on one server since it accepted the connection, all without success.

    Attributes:
        reason: why the last one failed.
        at: when that was.
        count: the number of attempts.
        rejected: whether one of them got an answer: the credentials or the certificates do not suffice.
    """

    server: str
    reason: str
    at: datetime
    count: int
    rejected: bool


class Connection:
    """One named connection: its client, its API, and its events.

    Attributes:
        api: the JetStream API of the connection's account.
        removals: the server's advisories about removed messages of that account.
        servers: the configured addresses, without user names and passwords.
        reconnects: how often it reconnected.
        losses: how often it was lost. It grows before a new connection answers anything.
        last_error: the last error, and when it occurred.
        refused_inbox: the inbox that the server refuses at present, which makes the connection useless; None otherwise.
        untested_server: a remark if this release was not tested with the last server's version; None otherwise.
        was_up: whether it was usable at some time.
        failure: the reason why the connection has never been up; None if it has.
        effect_of: returns the effect of a refusal, from the server's text, if the user can do without the permission;
            otherwise an empty string.
    """

    def __init__(
        self,
        name: str,
        longest_wait: float = LONGEST_WAIT,
        client_name: str = "nats-bridge",
        api_prefix: str = OWN_API,
    ) -> None:
        self.name = name
        self._schedule = ReconnectSchedule(longest_wait)
        self.client = WireClient(self._schedule)
        self.api = JetStreamApi(self.client, name, client_name, api_prefix)
        self.removals = Removals(self.client, self.api.reports)
        self.servers: tuple[str, ...] = ()
        self.reconnects = self.losses = 0
        self.last_error: tuple[datetime, str] | None = None
        self._failed: dict[str, FailedAttempts] = {}
        self._logged: dict[str, tuple[str, float]] = {}  # by server: the reason, and when
        self._ended = EndedConnections(self.client)
        self._ended_soon = False
        self.refused_inbox: str | None = None
        self.untested_server: str | None = None
        self._renewal: asyncio.Task[None] | None = None  # of a connection with a refused inbox
        self._closing = False
        self.was_up = False
        self.failure: BridgeError | None = None
        self.effect_of: Callable[[str], str] = lambda _: ""
        self._connecting: asyncio.Task[None] | None = None  # of a client that no server has taken
        self._opening: asyncio.Task[None] | None = None  # which waits for that
        self._up = asyncio.Event()
        self._down = asyncio.Event()
        self._down.set()
        self._lost: asyncio.Future[None] | None = None  # of the present connection
        self._listeners: defaultdict[_Event, list[Callable[..., None]]] = defaultdict(list)

    @property
    def server_version(self) -> str:
        """The version of the connected server, such as `2.10.27`.

        The newest tested one if the server's text is not a version.
        """
        version = self.client.connected_server_version
        try:
            return f"{version.major}.{version.minor}.{version.patch}"
        except ValueError:
            return TESTED_VERSIONS[-1]

    @property
    def server(self) -> str:
        """The address of the connected server."""
        return self.client.pool.current

    @property
    def failed_attempts(self) -> list[FailedAttempts]:
        """The servers that have not accepted the connection since they were tried, each with the last cause."""
        known = self.client.pool.addresses
        return [failed for server, failed in sorted(self._failed.items()) if server in known]

    @property
    def is_closed(self) -> bool:
        """Whether it is closed permanently, by the server or by `close`.

        nats-py's own flag is also set between first attempts.
        """
        return self._closing or (self.was_up and self.client.is_closed)

    def on_disconnect(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever the connection is lost, but not when it is closed."""
        self._listeners["disconnect"].append(listener)

    def on_reconnect(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever the connection is back, its subscriptions included, or up after a patient start."""
        self._listeners["reconnect"].append(listener)

    def on_refusal(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the server's text when it refuses a publish or subscription (permissions)."""
        self._listeners["refusal"].append(listener)

    def on_end(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the reason when the server closes the connection permanently."""
        self._listeners["end"].append(listener)

    def forget(self, *listeners: Callable[..., None]) -> None:
        """Remove these listeners from all events."""
        for kind in self._listeners.values():
            kind[:] = [each for each in kind if each not in listeners]

    def _notify(self, event: _Event, *what: str) -> None:
        for listener in tuple(self._listeners[event]):
            listener(*what)

    async def connected(self) -> None:
        """Wait until the connection is up, its subscriptions included."""
        await self._up.wait()
        # nats-py notices a loss before it reports it: until then both would be true, and a caller that loops would
        # spin.
        while not self.client.is_connected:
            await self._down.wait()
            await self._up.wait()

    async def flush(self) -> bool:
        """Wait until the server has handled everything written so far. Return False if the connection broke first."""
        if not self.client.is_connected or self._down.is_set():
            return False
        if self._lost is None:
            self._lost = asyncio.get_running_loop().create_future()
        pong, lost = self.client.flushed(), self._lost
        either: tuple[asyncio.Future[Any], ...] = pong, lost
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        # Others may wait for the same PONG, and one of them may have given up.
        return pong.done() and not pong.cancelled() and not lost.done()

    async def leave(self, reason: str) -> None:
        """Leave the server and connect to another one, or to the same one if no other is known."""
        self.client.pool.leave()
        await self.client.reconnect(nats_py.errors.Error(reason))

    async def close(self) -> None:
        """Close the connection permanently."""
        self._closing = True
        await end_tasks(self._renewal, self._opening, self._connecting)
        await self.client.close()

    def open_later(self, connecting: asyncio.Task[None], failure: BridgeError) -> None:
        """Let a client that has not reached a server yet keep trying in the background."""
        self.failure_is(failure)
        _log.warning("connection.not_up", connection=self.name, reason=str(failure), meaning="tried again")
        self._connecting = connecting
        self._opening = asyncio.create_task(self._open_later(connecting))

    async def _open_later(self, connecting: asyncio.Task[None]) -> None:
        await asyncio.shield(connecting)
        self.set_up()
        _log.info("connection.back", connection=self.name, server=self.server, version=self.server_version)
        self._notify("reconnect")

    def attempt_failed(self, error: Exception) -> None:
        """Note an attempt on a server before the connection was ever up."""
        if _decides(error):
            self._schedule.refused()
        self.failure_is(_failure(self, error))

    def failure_is(self, failure: BridgeError) -> None:
        """Note why it is not up yet."""
        self.failure = failure
        self._remember(str(failure))

    def set_up(self) -> None:
        """Notify the listeners that the connection is usable."""
        self.was_up = True
        self.failure = None
        self._failed.pop(self.server, None)
        self._logged.clear()
        self._ended.established()
        self.untested_server = untested(self.client.reported_version)
        self.api.delivery_limit.established(asyncio.get_running_loop().time())
        self._down.clear()
        self._up.set()

    def is_lost_since(self, losses: int) -> bool:
        """Return whether it was lost after `losses` had this value, or is lost now.

        The server may have lost messages meanwhile.
        """
        return self.losses != losses or not self.client.is_connected

    async def _on_disconnected(self) -> None:
        self.losses += 1
        self._up.clear()
        self._down.set()
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(None)
        self._lost = None
        self._set_refused_inbox(None)
        if self._closing:
            return
        ended_by = self.client.ended_by
        reason = plain_reason(ended_by) if ended_by is not None else "the connection was lost"
        if self.client.is_leaving:
            reason += "; the server is in lame duck mode"
        _log.warning("connection.lost", connection=self.name, server=self.server, reason=reason)
        self._remember(f"the connection was lost: {reason}")
        may_be_slow = self.api.delivery_limit.lost(asyncio.get_running_loop().time())
        self._ended_soon = may_be_slow and not self.client.is_leaving and isinstance(ended_by, _BY_THE_SERVER)
        self.client.fail_requests()
        self._notify("disconnect")

    async def _on_reconnected(self) -> None:
        if self._ended_soon:
            await self._learn_why_it_ended()
        self.set_up()
        self.reconnects += 1
        _log.info("connection.back", connection=self.name, server=self.server, version=self.server_version)
        self._notify("reconnect")

    async def _learn_why_it_ended(self) -> None:
        slow_consumer = await self._ended.was_slow_consumer()
        limit = self.api.delivery_limit
        if limit.explained(slow_consumer=slow_consumer):
            says = (
                "the server ended it as a slow consumer's"
                if slow_consumer
                else "connection lost twice without a reason"
            )
            _log.warning(
                "connection.slow_consumer",
                connection=self.name,
                messages=limit.messages,
                meaning=f"{says}: consumers send no more than these at a time",
            )

    async def _on_closed(self) -> None:
        if self._closing:
            return
        reason = str(self.client.last_error or "no reason given")
        self._remember(f"the server ended the connection ({reason})")
        _log.error("connection.closed", connection=self.name, reason=reason)
        self._notify("end", reason)

    async def _on_error(self, error: Exception) -> None:
        text = str(error)
        if self._ended.refused(refused_publication(text)):
            return
        if "permissions violation" in text.lower():
            if effect := self.effect_of(text):
                _log.info("connection.does_without", connection=self.name, server_says=text, meaning=effect)
            else:
                _log.error("connection.refused", connection=self.name, server_says=text)
                self._remember(text)
            self.api.refused(text)
            if refused_publication(text).startswith(b"$JS.ACK.") and self.api.delivery_limit.messages is not None:
                self.api.delivery_limit.refused()
            self._notify("refusal", text)
            if self.client.is_inbox(inbox := refused_subscription(text).decode()):
                self._set_refused_inbox(inbox)
                if self._renewal is None or self._renewal.done():
                    self._renewal = asyncio.create_task(self._renew())
        elif not self._up.is_set():
            self._attempt_failed(error)
        elif not isinstance(error, nats_py.errors.UnexpectedEOF):  # which connection.lost reports
            _log.warning("connection.error", connection=self.name, error=plain_reason(error))
            self._remember(plain_reason(error))

    def _set_refused_inbox(self, inbox: str | None) -> None:
        self.refused_inbox = inbox
        self.api.inbox_refused(inbox)

    async def _renew(self) -> None:
        # Servers do not announce changed permissions. Each connection checks them, and subscribes again.
        await asyncio.sleep(self._schedule.keep(asyncio.get_running_loop().time()))
        if self.refused_inbox is not None:
            await self.client.reconnect(nats_py.errors.Error(f"the server refuses the inbox {self.refused_inbox}"))

    def _attempt_failed(self, error: Exception) -> None:
        server, reason = self.server, plain_reason(error)
        before = self._failed.get(server)
        count, rejected = before.count + 1 if before else 1, _decides(error)
        was_rejected = rejected or (before is not None and before.rejected)
        self._failed[server] = FailedAttempts(server, reason, datetime.now(UTC), count, was_rejected)
        self._remember(f"{server}: {reason}")
        if rejected:
            self._schedule.refused()
            _log.error("connection.rejected", connection=self.name, server=server, reason=reason, meaning="tried again")
            return
        now = asyncio.get_running_loop().time()
        logged, at = self._logged.get(server, ("", now))
        if reason != logged or now - at >= _REPEAT:
            self._logged[server] = reason, now
            _log.warning("connection.unreachable", connection=self.name, server=server, reason=reason)

    def _remember(self, text: str) -> None:
        self.last_error = (datetime.now(UTC), text)


async def open_connection(
    name: str, options: Mapping[str, Any], *, client_name: str, patiently: bool = False
) -> Connection:
    """Connect.

    Args:
        name: the connection's name, for messages.
        options: the connection's options, from `nats_bridge.settings.connect_options`.
        client_name: the client's name in the server's lists; the name of the pod or machine is appended.
        patiently: return the connection even if no server accepts it. It keeps trying, and `failure` has the reason.

    Raises:
        ServerUnreachableError: none of the servers answers.
        CredentialsError: a server refuses the credentials.
        ConfigError: TLS is required and the server does not offer it.
    """
    options = dict(options)
    longest_wait, api_prefix = options.pop("reconnect_max_wait", LONGEST_WAIT), options.pop("api_prefix", OWN_API)
    connection = Connection(name, float(longest_wait), client_name, api_prefix)
    connection.servers = tuple(_without_credentials(str(server)) for server in options.get("servers", ()))
    failures: list[Exception] = []
    limit = asyncio.timeout(float(options.get("connect_timeout", 5)))

    async def on_error(error: Exception) -> None:
        if connection.was_up:
            await connection._on_error(error)
            return
        if connection.failure is not None:
            connection.attempt_failed(error)
            return
        failures.append(error)
        # Close once only: nats-py also reports errors of its own close, and an error of this callback would end its
        # attempts.
        if _decides(error) and not limit.expired() and sum(map(_decides, failures)) == len(options["servers"]):
            limit.reschedule(0)  # every server has refused: waiting would not help

    # With -1, nats-py tries the servers without end, also at the start. The time limit ends that.
    connecting = asyncio.create_task(
        connection.client.connect(
            **options,
            name=f"{client_name}@{place()}",
            error_cb=on_error,
            disconnected_cb=connection._on_disconnected,
            reconnected_cb=connection._on_reconnected,
            closed_cb=connection._on_closed,
            allow_reconnect=True,
            ping_interval=_PING,
            max_reconnect_attempts=-1,
        )
    )
    try:
        async with limit:
            await asyncio.shield(connecting)
    except asyncio.CancelledError:
        await end_tasks(connecting)
        await connection.close()  # nats-py leaves the socket open if a connect is cancelled
        raise
    except (OSError, nats_py.errors.Error, TimeoutError, ssl.SSLError) as error:
        cause = next((f for f in reversed(failures) if _decides(f)), next(filter(str, reversed(failures)), error))
        failure = _failure(connection, cause)
        if patiently and not connecting.done():
            connection.open_later(connecting, failure)
            return connection
        await end_tasks(connecting)
        await connection.close()
        raise failure from None
    connection.set_up()
    return connection


def _failure(connection: Connection, cause: Exception) -> BridgeError:
    """Return the reason why no server takes a connection, in one or two lines."""
    place, servers = f"connection '{connection.name}'", ", ".join(connection.servers)
    if isinstance(cause, ClearTextError):
        return ConfigError(
            f"{place}: {servers} offers no TLS, which the connection requires, so nothing was sent: enable TLS "
            "there, or use nats:// and remove tls"
        )
    if isinstance(cause, ssl.SSLError):
        return CredentialsError(
            f"{place}: no trusted TLS with {servers} ({plain_reason(cause)}):"
            " check the connection's tls (ca, cert and key, hostname, handshake_first) and the server's certificate"
        )
    if _refuses_credentials(cause):
        return CredentialsError(
            f"{place}: {servers} refuses the credentials ({cause}):"
            " check the connection's creds, nkey_seed_file, token_file or user/password_file"
        )
    return ServerUnreachableError(
        f"{place}: no server answers at {servers} ({plain_reason(cause)}):"
        " check the address, and whether nats-server is running there"
    )


def _decides(error: Exception) -> bool:
    return isinstance(error, (ClearTextError, ssl.SSLError)) or _refuses_credentials(error)


def _refuses_credentials(error: Exception) -> bool:
    text = str(error).lower()
    if "authentication timeout" in text:  # no CONNECT arrived in time: a slow network or machine
        return False
    return isinstance(error, nats_py.errors.AuthorizationError) or "authorization" in text or "authentication" in text


def plain_reason(error: BaseException) -> str:
    """Return the reason why a connection failed, in words."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, socket.gaierror):
        return "the name is not known"
    if isinstance(error, TimeoutError) and not str(error):
        return "no answer in time"
    if isinstance(error, nats_py.errors.UnexpectedEOF):
        return "the server closed the connection"
    if isinstance(error, nats_py.errors.StaleConnectionError):
        return "stale connection: no answer to PING"
    return str(error) or type(error).__name__


def _without_credentials(server: str) -> str:
    scheme, separator, rest = server.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
