"""Notes what happens in a run: the history that the judge of `tests.chaos` reads, and what only a simulation sees."""

from __future__ import annotations

import re
from collections.abc import MutableMapping, Sequence
from typing import Any

from nats_bridge.settings import Settings
from nats_conformance.catalogue.case import Message
from nats_transforms.timestamp import nanoseconds_of
from tests.chaos.history import Event
from tests.chaos.observed import Observed
from tests.chaos.plan import RuleUnderTest
from tests.chaos.workload import row_of
from tests.simulation.network import Network
from tests.simulation.process import SidecarProcess, counters_of
from tests.simulation.streams import KeptStream
from tests.simulation.world import BEGAN_NS, World

_ADDED = re.compile(rb"\r\nNats-Sequence: (\d+)\r\nNats-Time-Stamp: (\S+)\r\nNats-Last-Sequence: (\d+)\r\n")
_PROBE = b"Nats-Expected-Last-Sequence: %d\r\n" % (2**63 - 1)  # what a stream must refuse, and stores nothing of
_LEASE = 6.0  # seconds after which a lost lease has expired


class Judging(Observed):
    """Collects what a run shows.

    Attributes:
        history: for the judge of `tests.chaos`.
        newest: the newest sequence that the witness has received, by rule.
    """

    def __init__(self, world: World, network: Network, rules: Sequence[RuleUnderTest], settings: Settings) -> None:
        super().__init__(rules, lambda: world.now)
        self.history: list[Event] = []
        self.newest: dict[str, int] = {}
        self._world, self._network, self._settings = world, network, settings
        self._forgotten_at = -_LEASE
        # Which rule publishes what begins like this.
        self._writers = {(rule.target.lower() or rule.name).encode(): rule.name for rule in rules}

    def record(self, event: str, **members: Any) -> None:
        self.history.append({"t": round(self._world.now, 6), "event": event, **members})
        if event in ("fault", "sidecar"):
            self._world.record(f"{event} {members.get('kind') or members.get('what')} {members.get('phase', '')}")
        if event == "forgotten":  # perhaps a lease, which another replica can get then
            self._forgotten_at = self._world.now

    def look(self, process: SidecarProcess) -> None:
        """Note what the sidecar counts."""
        if process.sidecar is None:
            return
        failed = [each for each in process.sidecar.supervisors if each.state == "failed"]
        errors = {each.rule.name: str(each.error or each.failure) for each in failed}
        state = {"ready": process.is_ready, "errors": errors, "rules": counters_of(process.sidecar)}
        self.record("status", replica=process.number, pid=process.id, **state)

    def fault_phase(self, number: int, kind: str, phase: str) -> None:
        self.record("fault", number=number, kind=kind.partition(" of ")[0], phase=phase)
        self.fault(kind, begins=phase == "begin")

    def removes(self, place: str, removed: Sequence[int], **recorded: Any) -> None:
        """Note that messages are about to be removed."""
        self.record("removing", stream=place, **recorded)
        self.removed(place, removed, is_reported=self._network.is_whole())

    def process_logged(self, event: MutableMapping[str, Any], process: SidecarProcess) -> None:
        """Note what a sidecar logs."""
        self.logged(event, process.id)
        if event["event"] == "sidecar.ready":
            self.record("sidecar", replica=process.number, pid=process.id, what="ready")

    def check_writer(self, leases: KeptStream | None, process: str, message: Message) -> None:
        """Check that only the holder of a rule's lease publishes for it."""
        name = self._writers.get(message.subject.split(b".", 1)[0])
        is_known = self._world.now > self._forgotten_at + _LEASE
        if leases is None or name is None or _PROBE in message.header_block or not is_known:
            return
        newest = leases.model.newest(f"$KV.{leases.name[3:]}.lease.{self._settings.name}.{name}".encode())
        self.wrote(process, name, leases.model.messages[newest].message.payload if newest else b"")

    def received(self, name: str, stream: KeptStream, message: Message) -> None:
        """Note a message of a stream that the witness receives."""
        self.record("received", name=name, rows=[row_of(message)])
        if (found := _ADDED.search(message.header_block)) and stream.predecessors is not None:
            sequence = self.newest[name] = int(found[1])
            time_ns, last = nanoseconds_of(found[2].decode()), int(found[3])
            native = stream.predecessors.get(time_ns, last)
            self.published(name, stream.name, sequence, (time_ns - BEGAN_NS) / 1e9, last, native)
