"""Manages the leadership of replicas: one lease for each rule, all in one bucket, on a separate connection.

Theory of operation. A rule whose supervisor wants to lead it has a holding: a task that asks its `Lease` for the next
step, performs it, and gives the lease the result. While the supervisor has a term, the same task renews the lease.
Holdings of different rules do not wait for each other.

Worked example: a lease of 10 s (see `timing` for its parts), and a holder A whose network ends.

              A, the holder                            B, a standby
     0.0 s    sends a renewal
     0.1 s    it is stored as revision 7:
              A may write until 6.0 s
     0.3 s                                             reads revision 7, and counts from now on
     2.0 s    the next renewal gets no answer
     2.3 s                                             reads revision 7 again, and so on every 2 s
     6.0 s    its fence closes
     9.0 s    the kernel drops what it could not send
    10.3 s                                             revision 7 has not changed for 10 s:
                                                       writes over it, and leads with revision 8
    12.0 s    the network is back: reads revision 8,
              and its term is lost: the run is cut

If the network is back at 8.0 s instead, A reads before it renews, because its time is over. The record is still its
revision 7, so no other replica took over. A renews, and its fence opens again in the same term. B sees a new revision,
and counts from then on.

Invariants:

* A term begins only after a write of this process was stored. Its fence is open only while no other replica can hold
  the lease.
* A lost lease is never released: `end` has no effect then.
* A lease is released only after the run has ended, and not if something may still leave this process: then the other
  replicas wait for as long as for a silent holder.
* A holding has one task at most. A new term waits until the task of the last one has ended.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Awaitable, Callable

import structlog

from nats_bridge.client.connection import Connection, open_connection
from nats_bridge.client.connection_pool import close_connections
from nats_bridge.client.tasks import end_tasks, happens
from nats_bridge.errors import ApiError
from nats_bridge.observability.log_throttle import Pace
from nats_bridge.rule_kinds import kind_of
from nats_bridge.rules.leadership.lease import KeptPosition, Lease, Look, Rest, Write
from nats_bridge.rules.leadership.lease_store import LeaseStore
from nats_bridge.rules.leadership.sharing import Share
from nats_bridge.rules.leadership.silent_server import SilentServer
from nats_bridge.rules.leadership.term import Leadership, Term
from nats_bridge.rules.leadership.timing import Timing, clock
from nats_bridge.settings import LeadershipSettings, Rule, Settings
from nats_bridge.settings.connect_options import connect_options

_log = structlog.get_logger("bridge.leadership")

_STAYS = 20  # multiple of the lease's time for which a rule stays with a replica that handed it over and leads it again


async def open_leases(
    settings: Settings, wanted: LeadershipSettings, effect_of: Callable[[str], str] | None = None
) -> Leases:
    """Connect, and return the leadership of the configuration's rules.

    Args:
        settings: the configuration, which has at least one rule.
        wanted: its section about leadership.
        effect_of: see `Connection`.

    Raises:
        BridgeError: leadership cannot start; nothing is left open.
    """
    options = connect_options(settings.connections[wanted.connection], wanted.connection)
    # A separate connection, because messages of rules must not delay renewals.
    connection = await open_connection(wanted.connection, options, client_name=settings.name)
    if effect_of is not None:
        connection.effect_of = effect_of
    leases = Leases(connection, settings.name, wanted.bucket, wanted.ttl, share=wanted.share)
    try:
        await leases.open(settings.rules[0].name)
    except BaseException:
        await leases.close()
        raise
    return leases


class Leases(Leadership):
    """The leaders of rules, decided by leases.

    Args:
        connection: a connection only for leases; `close` closes it.
        sidecar: the sidecar's name, the same in all replicas.
        ttl: seconds without a renewal after which another replica takes over.
        share: the sharing of rules among replicas; None if a rule stays with its leader.
    """

    shared = True

    def __init__(self, connection: Connection, sidecar: str, bucket: str, ttl: float, *, share: bool = False) -> None:
        self.me = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._connection = connection
        self._timing = Timing(ttl)
        self._share = Share(self.me, self._timing.silent_for) if share else None
        self._store = LeaseStore(connection, sidecar, bucket, self._timing, self._hinted, self._announced)
        self._silent = SilentServer(ttl)
        self._moving: asyncio.Task[None] | None = None
        self._holdings: dict[str, _Holding] = {}
        self._sharing: asyncio.Task[None] | None = None
        self._replicas_changed = asyncio.Event()

    async def open(self, rule: str) -> None:
        """Find or create the bucket. `rule` is any rule that needs a lease.

        Raises:
            ConfigError, NotPermittedError, ApiError: see `LeaseStore.open`; the connection is left open.
        """
        await self._store.open(rule)
        self._connection.on_reconnect(lambda: self._silent.reconnected(clock()))
        if self._share is not None:
            self._sharing = asyncio.create_task(self._share_rules(self._share))
        _log.info("leadership.ready", replica=self.me, ttl=self._timing.ttl)

    async def lead(self, rule: Rule) -> Term:
        """Wait until this replica leads the rule; see `Leadership`."""
        holding = self._holdings.get(rule.name)
        if holding is None:
            holding = _Holding(rule.name, self.me, self._store, self._timing, self._answered)
            self._holdings[rule.name] = holding
        holding.moves = kind_of(rule).keeps_position(rule)
        return await holding.win()

    def on_end(self, listener: Callable[[str], None]) -> None:
        """Call `listener` when the connection is closed permanently, except by `close`."""
        self._connection.on_end(listener)

    def holder(self, rule: str) -> str:
        """Return the replica that leads the rule, if known; otherwise an empty string."""
        holding = self._holdings.get(rule)
        return holding.lease.holder if holding is not None else ""

    def is_led(self, rule: str) -> bool:
        """Return whether a replica leads the rule; see `Leadership`."""
        holding = self._holdings.get(rule)
        return holding is not None and holding.lease.is_led(clock())

    async def has_position(self, rule: str) -> bool:
        """Return whether the rule's lease contains a position; see `Leadership`."""
        sighting = await self._store.read(rule)
        if sighting is None:
            silence = "the lease bucket does not answer"
            raise ApiError(f"rule '{rule}': {silence}", description=silence, retriable=True)
        return sighting.record is not None and sighting.record.position is not None

    async def leave(self) -> None:
        """Announce that this replica stops, so the others take the leases that it releases; see `Leadership`."""
        await end_tasks(self._sharing)
        if self._share is not None:
            self._store.announce(self.me, None)

    async def close(self) -> None:
        """Release all leases, and close the connection; see `Leadership`."""
        await end_tasks(self._sharing, self._moving)
        await asyncio.gather(*(holding.end() for holding in self._holdings.values()))
        await self._store.close()
        await close_connections([self._connection])

    def _answered(self, rule: str, answered: bool) -> None:
        """Note whether a request about a lease was answered. Leave a server that does not answer for a long time."""
        connection = self._connection
        if answered:
            self._silent.answered(rule)
            return
        has_others = connection.client.is_connected and len(connection.client.pool.addresses) > 1
        if has_others and self._silent.unanswered(rule, clock()) and (self._moving is None or self._moving.done()):
            _log.warning("leadership.leaves_server", server=connection.server, meaning="it tries another one")
            self._moving = asyncio.create_task(connection.leave("the lease bucket does not answer"))

    def _hinted(self, rule: str, released: bool) -> None:
        if (holding := self._holdings.get(rule)) is not None:
            holding.hinted(released=released)

    # -- sharing -----------------------------------------------------------------------------------------------------

    def _announced(self, replica: str, leads: int | None) -> None:
        if self._share is not None and self._share.receive(replica, leads, clock()):
            self._replicas_changed.set()

    async def _share_rules(self, share: Share) -> None:
        """Announce the rules led here, hand over surplus ones, and leave free leases to replicas with fewer rules."""
        while True:
            now = clock()
            wanted = [holding for holding in self._holdings.values() if holding.wanted]
            leading = [holding for holding in wanted if holding.leads]
            self._store.announce(self.me, len(leading))
            movable = [holding for holding in leading if holding.may_move(now)]
            for holding in movable[: share.surplus(len(leading), len(wanted), now)]:
                holding.hand_over(now)
            restrained = share.leaves_to_others(len(leading), len(wanted), now)
            for holding in wanted:
                holding.restrain(self._timing.ttl if restrained else 0.0)
            self._replicas_changed.clear()
            await happens(self._replicas_changed, within=self._timing.renew_every)


class _HeldTerm(Term):
    """A term of one rule that ends with its lease. Its fence is open while no other replica can hold the lease."""

    def __init__(self, lease: Lease, unsent_for: float, end: Callable[[], Awaitable[None]]) -> None:
        super().__init__(self)
        self.number = lease.term
        self.unsent_for = unsent_for
        self.over = False
        self.finished = False  # nothing is left that could leave the process
        self._lease = lease
        self._renewed = asyncio.Event()
        self._end = end
        self._position: Callable[[], KeptPosition | None] | None = None

    @property
    def kept(self) -> KeptPosition | None:
        self.observe_position()
        return self._lease.kept

    def keep(self, position: Callable[[], KeptPosition | None]) -> None:
        self._position = position

    def observe_position(self) -> None:
        """Give the lease the rule's present position."""
        if self._position is not None and self._lease.held:
            self._lease.kept = self._position()

    @property
    def is_open(self) -> bool:
        return not self.over and self._lease.is_open(clock())

    @property
    def holds_back(self) -> bool:
        return not self.finished and not self.is_open

    async def opened(self) -> None:
        while not self.is_open:
            self._renewed.clear()
            await self._renewed.wait()

    def renewed(self) -> None:
        """Wake the waiter to check again."""
        self._renewed.set()

    async def end(self, *, finished: bool = True) -> None:
        """Release it; see `Term`."""
        self.over = True
        self.finished = finished
        if not self.lost.is_set():
            await self._end()


class _Holding:
    """One rule's lease: wanted, held, or neither.

    Attributes:
        moves: whether another replica can take over the rule without a loss; see `RuleKind.keeps_position`.
    """

    def __init__(
        self, rule: str, me: str, store: LeaseStore, timing: Timing, answered: Callable[[str, bool], None]
    ) -> None:
        # One object for the life of the process, so that it recognises every write of its own.
        self.lease = Lease(me, timing)
        self.moves = False
        self._rule = rule
        self._store = store
        self._timing = timing
        self._answered = answered
        self._stays_until = clock()
        self._wake = asyncio.Event()
        self._ending = False
        self._task: asyncio.Task[None] | None = None
        self._won: asyncio.Future[_HeldTerm] | None = None
        self._term: _HeldTerm | None = None
        self._pace = Pace()
        self._log = _log.bind(rule=rule)

    async def win(self) -> _HeldTerm:
        """Wait for a term. The caller must be the only waiter, and must not have a term."""
        if self._task is not None:
            await asyncio.shield(self._task)  # which releases an earlier term
        self._ending = False
        self._won = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._campaign())
        try:
            return await self._won
        except asyncio.CancelledError:
            await self.end()
            raise

    async def end(self) -> None:
        """Release the lease, and do not request it again. Cancelling the caller does not cancel this."""
        self._ending = True
        self._wake.set()
        if self._task is not None:
            await asyncio.shield(self._task)

    @property
    def wanted(self) -> bool:
        """Whether this replica leads the rule, or wants to."""
        return self._task is not None and not self._ending

    @property
    def leads(self) -> bool:
        """Whether it leads the rule, and is not handing it over."""
        return self._term is not None and not self._term.surplus.is_set()

    def may_move(self, now: float) -> bool:
        """Return whether to hand the rule over, if there is a surplus."""
        return self.moves and now >= self._stays_until

    def hand_over(self, now: float) -> None:
        """Ask the supervisor to drain the rule, and to end the term."""
        assert self._term is not None
        # If it comes back, no other replica could lead it, so it stays here instead of moving in circles.
        self._stays_until = now + _STAYS * self._timing.ttl
        self._log.info("leadership.hands_over", term=self._term.number)
        self._term.surplus.set()

    def restrain(self, seconds: float) -> None:
        """Leave a free lease to other replicas for that long."""
        if self.lease.restraint != seconds:
            self.lease.restraint = seconds
            self._wake.set()

    def hinted(self, *, released: bool) -> None:
        """Note that a replica writes the lease."""
        self.lease.hinted(clock(), released=released)
        self._wake.set()

    # -- the task ----------------------------------------------------------------------------------------------------

    async def _campaign(self) -> None:
        try:
            while not self._ending:
                if self._term is not None:
                    self._term.observe_position()
                match self.lease.step(clock()):
                    case Rest(until=until):
                        self._wake.clear()
                        await happens(self._wake, within=until - clock())
                    case Look():
                        await self._look()
                    case Write() as write:
                        await self._write(write)
                self._report_leading()
                if self._term is not None and self._term.lost.is_set():
                    return
            await self._give_back()
        except Exception as error:
            self.lease.lose()
            self._report_leading()
            if self._won is None or self._won.done():
                self._log.error("leadership.failed", reason=str(error) or type(error).__name__, exc_info=error)
                return
            self._won.set_exception(error)
        finally:
            self._term = self._task = None

    async def _look(self) -> None:
        try:
            sighting = await self._store.read(self._rule)
        except ApiError as error:
            self._warn("leadership.bucket_missing", str(error))
            sighting = None
        self._answered(self._rule, sighting is not None)
        if sighting is None:
            self.lease.unanswered(clock())
            self._warn("leadership.no_answer", "the lease bucket does not answer")
        else:
            self.lease.looked(sighting, clock())

    async def _write(self, write: Write) -> None:
        self.lease.sent(write, clock())
        pub_ack = await self._store.write(self._rule, write)
        self._answered(self._rule, not (pub_ack.kind == "later" or pub_ack.leaves_open))
        if pub_ack.kind == "stored":
            self.lease.stored(write, pub_ack.sequence)
        elif pub_ack.overtaken:
            self.lease.conflict(write)
        elif pub_ack.kind == "later" or pub_ack.leaves_open:
            self.lease.unanswered(clock())
            self._warn("leadership.no_answer", pub_ack.description)
        else:
            self.lease.refused(write, clock())
            self._warn("leadership.refused", pub_ack.description)

    async def _give_back(self) -> None:
        if self._term is not None:
            self._term.observe_position()
        write = self.lease.give_back()
        unfinished = self._term is not None and self._term.over and not self._term.finished
        if write is None or unfinished:
            return
        pub_ack = await self._store.write(self._rule, write)
        self._log.info("leadership.released", term=write.record.term, stored=pub_ack.kind == "stored")

    def _report_leading(self) -> None:
        """Report the state of the lease to the supervisor."""
        lease, term = self.lease, self._term
        if term is None:
            if lease.is_open(clock()) and self._won is not None and not self._won.done():
                self._term = _HeldTerm(lease, self._timing.unsent_for, self.end)
                self._log.info("leadership.leads", term=lease.term)
                self._won.set_result(self._term)
        elif not lease.held:
            term.over = True
            term.lost.set()
            self._log.warning("leadership.lost", term=term.number, meaning="another replica may lead the rule by now")
        elif term.is_open:
            term.renewed()

    def _warn(self, event: str, reason: str) -> None:
        if self._pace.due():
            self._log.warning(event, reason=reason)
