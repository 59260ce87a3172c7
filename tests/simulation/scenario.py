"""Runs one seed, and lets the chaos judge read its history.

The rules, their streams, the messages and the judge are from `tests.chaos`, so a promise is checked as with real
servers.
"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import random
import re
import traceback
from collections import Counter
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from nats_bridge.settings import Settings
from nats_conformance.catalogue.case import Message
from nats_transforms.timestamp import nanoseconds_of
from tests.chaos.checker import judge
from tests.chaos.history import Event
from tests.chaos.messages import numbered
from tests.chaos.plan import RuleUnderTest, chosen, configuration, streams_of
from tests.chaos.story import Story
from tests.chaos.workload import row_of
from tests.simulation.determinism import determined, running
from tests.simulation.faults import PlannedFault, Replay, schedule, soon
from tests.simulation.network import Network, Reachable
from tests.simulation.process import SidecarProcess, counters_of
from tests.simulation.server import SimulatedServer
from tests.simulation.streams import KeptStream
from tests.simulation.world import BEGAN_NS, World

for _name in (
    *(f"nats.js.{name}" for name in ("api", "client", "errors", "kv", "manager", "object_store")),
    *(f"nats_bridge.kinds.{name}" for name in ("advisories.model", "ingress.model", "watching.model")),
    *(f"nats_bridge.kinds.{kind}.{name}" for kind in ("copying", "republish") for name in ("kind", "run")),
    "nats_bridge.rules.leadership.leases",
    "_strptime",
):
    importlib.import_module(_name)  # what each seed's process would load otherwise

_STILL = 120.0  # seconds without progress, after the last fault, that count as stuck
_REST = 11.0  # seconds without a change that count as come to rest; overdue answers are noticed until then
_PATIENCE = 10.0  # seconds that a fault waits for its event
_DELAYS = {"network cut", "network held", "network slow", "half open", "sidecar paused"}
_REMOVALS = {"messages deleted", "source purged"}
_CALM = 5.0  # seconds after a fault until the sidecar receives every report of a removal
_ADDED = re.compile(rb"\r\nNats-Sequence: (\d+)\r\nNats-Time-Stamp: (\S+)\r\nNats-Last-Sequence: (\d+)\r\n")
_DELIVERED = re.compile(rb" \$JS\.ACK\.\w+\.chaos_(\S+?)\.1\.(\d+)\.")  # by the durable consumer of a rule
_SHORT_WINDOW = 100_000_000  # nanoseconds; the shortest that servers take
_VERSIONS = ("2.9.10", "2.10.27", "2.12.15", "2.15.3")
_RULES = ("once,never-lost,gathered", "copy,never-lost", "gathered,once", "copy,gathered,once,never-lost")
_PROBE = b"Nats-Expected-Last-Sequence: %d\r\n" % (2**63 - 1)  # what a stream must refuse, and stores nothing of
_PLACE, _OTHER, _WITNESS = Reachable("nats", 4222), Reachable("other", 4222), Reachable("witness", 4222)


@dataclass(frozen=True, slots=True)
class Found:
    """The result of one run."""

    replay: Replay
    violations: tuple[str, ...]  # broken promises
    faults: tuple[PlannedFault, ...]
    seconds: float  # of virtual time
    messages: int  # stored in sources
    digest: str  # the hash of its event log
    lines: tuple[str, ...] = field(repr=False, default=())  # the end of its event log

    @property
    def promises(self) -> tuple[str, ...]:
        """The broken promises, without times and numbers, which differ from run to run."""
        heads = (re.sub(r" at \S+.*|\d", "", ":".join(each.split(":", 2)[:2])) for each in self.violations)
        return tuple(dict.fromkeys(heads))


class Scenario:
    """The world of one seed: servers, sidecars, producers and faults."""

    def __init__(self, replay: Replay) -> None:
        seed = replay.seed
        self.replay = replay
        self.world = World(seed if not replay.turn else f"{seed}/{replay.turn}")
        # Faults and circumstances have chances of their own: with fewer faults, the rest of a seed stays similar.
        chance = random.Random(f"{seed}/circumstances")
        self.version = chance.choice(_VERSIONS)
        self.rules = chosen(chance.choice(_RULES), self.version)
        self.until = 60.0 * replay.minutes
        faults = schedule(random.Random(f"{seed}/faults"), self.until)
        self.faults = [each for each in faults if replay.kept is None or each.number in replay.kept]
        self.largest_batch = chance.choice([1, 3, 3, 12, 12, 40])
        self.rate = min(chance.choice([0.1, 0.3, 1.0]), 6.0 / self.largest_batch)  # batches per second
        self.subjects = chance.choice([0, 0, 2, 6])  # for each source; 0 for many
        # Whether limits of the sidecar are so low that few messages reach them. Not with batches larger than a window.
        self.is_small = chance.random() < 0.7 and self.largest_batch < 40
        # Whether targets remember message ids for a moment only. Nothing may arrive late then.
        is_prompt = not any(fault.kind in _DELAYS for fault in faults)
        self.forgets_ids = is_prompt and chance.random() < 0.5
        is_split = chance.random() < 0.4  # whether targets are on another server than sources
        self.network = Network(self.world)
        self.server = SimulatedServer(self.world, self.network, _PLACE, self.version, "nats")
        self.witness = SimulatedServer(self.world, self.network, _WITNESS, self.version, "witness")
        self.servers = [self.server]  # under test
        if is_split:
            self.servers.append(SimulatedServer(self.world, self.network, _OTHER, self.version, "other"))
        self.history: list[Event] = []
        self._unproven: set[str] = set()  # rules that may skip messages, and have reported it
        self.violations: list[str] = []
        replicas = chance.choice([1, 1, 2])
        self.sidecars = [SidecarProcess(self, number) for number in range(replicas)]
        self.settings = _settings(self.rules, replicas, is_split)
        for server in (*self.servers, self.witness):
            server.observe = self._published
        for server in self.servers:
            server.happened = self._happened
        self._waiting_faults: list[PlannedFault] = []  # for an event
        self._healed = 0.0  # when the last fault so far is over
        self.dead: list[object] = []  # what killed processes leave: nothing of it may run, not even its end
        self._places = {name for rule in self.rules for name in (*rule.sources, rule.target)}
        self._produced: dict[str, int] = {}
        self._stored = 0
        self._newest: dict[str, bytes] = {}
        self._arrived: dict[str, set[int]] = {}  # sequences that the witness has received, by rule
        self._read: dict[tuple[int, str], set[int]] = {}  # sequences that a process has read in a run of a rule
        self._cut: dict[tuple[int, str], set[int]] = {}  # the same, of runs that have lost their lead, and must count
        self._counted: list[tuple[str, set[int], int]] = []  # the same, and the number that the run has counted
        self._removed: dict[str, dict[int, float]] = {}  # when the run removed a sequence, by stream
        self._wrong: dict[str, dict[float, str]] = {}  # a value of Nats-Last-Sequence, by rule and time of the removal
        self._disturbances, self._calm_since = 0, 0.0  # faults that last, and the end of the last one
        self._chance = random.Random(f"{seed}/messages")
        self._is_open = True
        # Which rule publishes what begins like this.
        self._writers = {(rule.target.lower() or rule.name).encode(): rule.name for rule in self.rules}

    def record(self, event: str, **members: Any) -> None:
        self.history.append({"t": round(self.world.now, 6), "event": event, **members})
        if event in ("fault", "sidecar"):
            self.world.record(f"{event} {members.get('kind') or members.get('what')} {members.get('phase', '')}")

    def look(self, process: SidecarProcess) -> None:
        """Note what the sidecar counts."""
        if process.sidecar is None:
            return
        failed = [each for each in process.sidecar.supervisors if each.state == "failed"]
        errors = {each.rule.name: str(each.error or each.failure) for each in failed}
        state = {"ready": process.is_ready, "errors": errors, "rules": counters_of(process.sidecar)}
        self.record("status", replica=process.number, pid=process.id, **state)

    def _logged(self, event: MutableMapping[str, Any]) -> None:
        if event["event"] == "rule.failed" and event.get("exc_info") is not None:
            self.violations.append(f"rule {event.get('rule')}: {event['exc_info']!r}")
        elif event["event"] == "connection.lost" and "protocol error" in str(event.get("reason")):
            self.violations.append(f"{running()}: cannot read an answer at {self.world.now:.3f} s")
        elif event["event"] == "rule.position_unproven":
            self._unproven.add(event["rule"])
        elif event["event"] in ("rule.lead_lost", "rule.ended_at_once", "rule.stopped"):
            self._run_ends(event, (self.sidecars[int(running()[-1])].id, event["rule"]))
        elif event["event"] == "sidecar.ready":
            process = self.sidecars[int(running()[-1])]
            self.record("sidecar", replica=process.number, pid=process.id, what="ready")
            self._calm_since = self.world.now

    def has_read(self, pid: int, data: bytes) -> None:
        """Note deliveries that a process reads from a connection."""
        for rule, sequence in _DELIVERED.findall(data):
            self._read.setdefault((pid, rule.decode()), set()).add(int(sequence))

    def _run_ends(self, event: MutableMapping[str, Any], run: tuple[int, str]) -> None:
        """Note what a run has read when it loses its lead, and what it has counted when it ends then."""
        read = self._read.pop(run, set())
        if event["event"] == "rule.lead_lost":
            self._cut[run] = read
        elif event["event"] == "rule.ended_at_once" and run in self._cut:
            counted = event.get("in_doubt", 0) + event.get("lost", 0)
            self._counted.append((run[1], self._cut.pop(run), counted))

    def run(self) -> Found:
        with determined(self.world, self._logged, is_small=self.is_small):
            self._carry_out()
        world = self.world
        seen = tuple(self.violations), tuple(self.faults), world.now, self._stored, world.digest, tuple(world.lines)
        return Found(self.replay, *seen)

    def _carry_out(self) -> None:
        world, run = self.world, {"replicas": len(self.sidecars), "began": BEGAN_NS / 1e9, "version": self.version}
        self.record("run", seed=self.replay.seed, **run)
        for server in (*self.servers, self.witness):
            server.start()
        targets = {rule.target for rule in self.rules}
        for name, config in streams_of(self.version).items():
            if name in self._places:
                server = self.servers[-1 if name in targets else 0]
                window = {"duplicate_window": _SHORT_WINDOW} if name in targets and self.forgets_ids else {}
                answer = server.request(f"STREAM.CREATE.{name}", {"name": name, **config, **window})
                assert "error" not in answer, answer
        for rule in self.rules:
            if rule.kind == "republish":
                self._stream(rule.sources[0]).predecessors = {}
                self.witness.listeners.append((f"{rule.name}.>".encode(), partial(self._received, rule.name)))
        for process in self.sidecars:
            process.start()
        for place in sorted({source for rule in self.rules for source in rule.sources}):
            self._produced[place] = 0
            world.after(world.draw(0, 1), partial(self._produce, place))
        for fault in self.faults:
            if fault.event:
                world.at(fault.at, partial(self._waiting_faults.append, fault))
                world.at(fault.at + _PATIENCE, partial(self._let_begin, fault))
            else:
                world.at(fault.at, partial(self._begin, fault))
                self._plan_bursts(fault, fault.at)
        world.run(self.until)
        self._is_open = False
        world.run(max(self.until, self._healed) + 0.01)
        self._settle()
        for process in self.sidecars:
            self.look(process)
        self._judge()
        for process in self.sidecars:
            process.stays_away = True
            process.stop()
        deadline = world.now + 60
        while world.now < deadline and any(each.sidecar is not None for each in self.sidecars):
            world.run(world.now + 0.1)
        if any(process.sidecar is not None for process in self.sidecars):
            self.violations.append("stuck: the sidecar does not stop")

    def _published(self, process: str, message: Message) -> None:
        """Check that only the holder of a rule's lease publishes for it."""
        bucket = self.server.streams.get("KV_" + self.settings.leadership.bucket) if self.settings.leadership else None
        name = self._writers.get(message.subject.split(b".", 1)[0])
        if bucket is None or name is None or _PROBE in message.header_block:
            return
        newest = bucket.model.newest(f"$KV.{bucket.name[3:]}.lease.{self.settings.name}.{name}".encode())
        lease = bucket.model.messages[newest].message.payload if newest else b""
        holder = str(json.loads(lease)["holder"]) if lease else process
        if not holder.startswith(process):
            at = f"at {self.world.now:.3f} s"
            self.violations.append(f"{name}: two writers {at}: {process}, and {holder} has the lease")

    def _received(self, name: str, message: Message) -> None:
        self.record("received", name=name, rows=[row_of(message)])
        if found := _ADDED.search(message.header_block):
            self._newest[name] = found[1]
            self._arrived.setdefault(name, set()).add(int(found[1]))
            self._compare_last(name, int(found[1]), nanoseconds_of(found[2].decode()), int(found[3]))

    def _compare_last(self, name: str, sequence: int, time_ns: int, last: int) -> None:
        """Compare `Nats-Last-Sequence` with a server's, if no fault can have hidden a removal from the sidecar."""
        stream = self._stream(next(rule.sources[0] for rule in self.rules if rule.name == name))
        assert stream.predecessors is not None
        native, removed = stream.predecessors.get(time_ns, last), self._removed.get(stream.name, {})
        stored, calm_since = (time_ns - BEGAN_NS) / 1e9, self._calm_since + _CALM
        removed_at = removed.get(last, max(removed.values(), default=0.0))
        if last != native and not self._disturbances and min(stored, removed_at) > calm_since:
            wrong = f"{stream.name} {sequence}: last sequence {last}, not {native}"
            self._wrong.setdefault(name, {}).setdefault(removed_at, f"at {self.world.now:.3f} s: {wrong}")

    def _produce(self, place: str) -> None:
        if self._is_open:
            self._publish(place, self._chance.randrange(1, self.largest_batch + 1))
            self.world.after(self._chance.expovariate(self.rate), partial(self._produce, place))

    def _happened(self, event: str) -> None:
        """Let the faults that wait for an event begin."""
        for fault in [each for each in self._waiting_faults if each.event == event]:
            self._let_begin(fault)

    def _let_begin(self, fault: PlannedFault) -> None:
        """Let a fault that still waits begin in a moment."""
        if fault in self._waiting_faults:
            self._waiting_faults.remove(fault)
            begin = self.world.now + soon(random.Random(fault.draw), longest=0.1)
            self.world.at(begin, partial(self._begin, fault))
            self._plan_bursts(fault, begin)

    def _plan_bursts(self, fault: PlannedFault, begin: float) -> None:
        """Publish soon before or after the begin and the end of a fault, so that messages are in flight then."""
        chance = random.Random(f"{self.replay.seed}/bursts/{fault.number}")
        for moment in (begin, begin + fault.hold):
            for _ in range(chance.choice([0, 0, 1, 1, 3])):
                at = moment + chance.choice([-1, 1]) * soon(chance, longest=1.0)
                size = chance.randrange(1, self.largest_batch + 1)
                self.world.at(at, partial(self._publish, chance.choice(sorted(self._produced)), size))

    def _publish(self, place: str, size: int) -> None:
        if not self.server.is_up:
            return
        rows = []
        for _ in range(size):
            self._produced[place] += 1
            number = self._produced[place]
            message = numbered(place.lower().encode(), number, self._chance)
            if self.subjects:
                prefix, _, token = message.subject.split(b".")
                message = replace(message, subject=b"%b.eu.%d" % (prefix, int(token) % self.subjects))
            rows.append([number, *row_of(message)])
            self.server.publish(message, answered=partial(self._was_stored, place, number))
        self.record("sent", to=place, rows=rows)

    def _was_stored(self, place: str, number: int, answer: dict[str, Any]) -> None:
        if answer.get("seq") and "error" not in answer:
            self._stored += 1
            self.record("stored", to=place, rows=[[number, answer["seq"]]])

    def _begin(self, fault: PlannedFault) -> None:
        if not self._is_open:
            return
        self._healed = max(self._healed, self.world.now + fault.hold)
        carry_out: Callable[[PlannedFault], Callable[[], None] | None] | None = getattr(
            self, "_" + fault.kind.lower().replace(" ", "_").replace("'", ""), None
        )
        assert carry_out is not None, fault.kind
        for process in self.sidecars:
            self.look(process)
        self.record("fault", number=fault.number, kind=fault.kind, phase="begin")
        self._disturbances += fault.kind not in _REMOVALS
        if (heal := carry_out(fault)) is None:
            self._end(fault)
        else:
            self.world.after(fault.hold, partial(self._heal, fault, heal))

    def _end(self, fault: PlannedFault) -> None:
        self.record("fault", number=fault.number, kind=fault.kind, phase="end")
        if fault.kind not in _REMOVALS:
            self._disturbances, self._calm_since = self._disturbances - 1, self.world.now

    def _heal(self, fault: PlannedFault, heal: Callable[[], None]) -> None:
        heal()
        for process in self.sidecars:
            self.look(process)
        self._end(fault)

    def _process(self, fault: PlannedFault) -> SidecarProcess:
        return self.sidecars[int(fault.draw * 1000) % len(self.sidecars)]

    def _server(self, fault: PlannedFault) -> SimulatedServer:
        return self.servers[int(fault.draw * 317) % len(self.servers)]

    def _stream(self, name: str) -> KeptStream:
        return next(server.streams[name] for server in self.servers if name in server.streams)

    def _any_stream(self, fault: PlannedFault) -> tuple[SimulatedServer, KeptStream]:
        names = sorted(self._places - {""})
        name = names[int(fault.draw * 997) % len(names)]
        return next(server for server in self.servers if name in server.streams), self._stream(name)

    def _sidecar_killed(self, fault: PlannedFault) -> None:
        self._process(fault).kill(int(fault.draw * 2000) % 200 + 1)

    def _sidecar_restarted(self, fault: PlannedFault) -> None:
        self._process(fault).stop()

    def _sidecar_replaced(self, fault: PlannedFault) -> None:
        """As a rolling update: the next process starts soon after the signal, often before this one has ended."""
        process = self._process(fault)
        process.stop()
        self.world.after(soon(random.Random(fault.draw), longest=3.0), partial(process.replace, process.loop))

    def _sidecars_clock_stepped(self, fault: PlannedFault) -> None:
        self.world.clock_step = 72 * 3600 * (2 * fault.draw - 1)

    def _sidecar_paused(self, fault: PlannedFault) -> Callable[[], None]:
        if (loop := self._process(fault).loop) is not None:
            loop.pause(fault.hold)
        return lambda: None

    def _connections_reset(self, _: PlannedFault) -> None:
        for wire in self.network.between():
            wire.reset()

    def _network_cut(self, fault: PlannedFault) -> Callable[[], None]:
        """Connections are reset, and no new one is answered for a while."""
        for wire in self.network.between(f"sidecar{self._process(fault).number}", self._server(fault).place):
            wire.reset()
        return self._network_held(fault)

    def _network_held(self, fault: PlannedFault, place: Reachable | None = None) -> Callable[[], None]:
        """Nothing arrives for a while; then everything does, or the connections are reset, and it is lost."""
        name, place = f"sidecar{self._process(fault).number}", place or self._server(fault).place
        self.network.hold(name, place)

        def heal() -> None:
            for wire in self.network.between(name, place) if fault.is_odd else ():
                wire.reset()
            self.network.release(name, place)

        return heal

    def _witness_cut(self, fault: PlannedFault) -> Callable[[], None]:
        return self._network_held(fault, _WITNESS)

    def _half_open(self, fault: PlannedFault) -> Callable[[], None]:
        """One direction of a connection holds what it carries."""
        wires = self.network.between()
        if not wires:
            return lambda: None
        wire = wires[int(fault.draw * 997) % len(wires)]
        to_server = fault.draw < 0.5
        wire.hold(to_server=to_server, to_client=not to_server)
        return wire.reset if fault.is_odd else wire.release

    def _network_slow(self, fault: PlannedFault) -> Callable[[], None]:
        """Everything in flight stops for moments."""
        end = self.world.now + fault.hold

        def stop() -> None:
            for wire in self.network.between():
                wire.hold()
            self.world.after(self.world.draw(0.01, 0.4), go)

        def go() -> None:
            for wire in self.network.between():
                wire.release()
            if self.world.now < end:
                self.world.after(self.world.draw(0.01, 0.2), stop)

        stop()
        return lambda: None

    def _server_killed(self, fault: PlannedFault) -> Callable[[], None]:
        return self._end_server(self._server(fault), None)

    _server_restarted = _server_killed

    def _end_server(self, server: SimulatedServer, lost_since: float | None) -> Callable[[], None]:
        if not server.is_up:
            return lambda: None
        server.end(lost_since=lost_since)
        return partial(self._start_server, server)

    def _start_server(self, server: SimulatedServer) -> None:
        if not server.is_up:
            server.start()
            for wire in self.network.between(place=server.place):
                if wire.to_server.is_broken:  # of the server before: the first packet resets it
                    self.world.after(self.world.draw(0, 8), wire.reset)

    def _power_cut(self, fault: PlannedFault) -> Callable[[], None]:
        """A server, or a stream alone (its leaders), loses everything that it stored since a moment."""
        server, since = self._server(fault), self.world.now - soon(random.Random(fault.draw), longest=3.0)
        if server.is_up:
            self.record("forgotten", since=since)
        if int(fault.draw * 100) % 3:
            return self._end_server(server, since)
        server, stream = self._any_stream(fault)
        server.lose_tail(stream, since)
        heal = self._stream_leader_steps_down(fault)
        if fault.is_odd:
            heal()  # the next leader is there at once
        return heal

    def _stream_leader_steps_down(self, fault: PlannedFault) -> Callable[[], None]:
        """Nothing is stored in a stream or read from it for a while, and publications to it can be lost."""
        server, stream = self._any_stream(fault)
        stream.has_leader = False

        def heal() -> None:
            stream.has_leader = True
            for consumer in stream.consumers.values():
                consumer.begin()
            if server.is_up:
                server.flush()

        return heal

    def _disk_full(self, fault: PlannedFault) -> Callable[[], None]:
        server = self._server(fault)
        server.is_full = True
        return partial(setattr, server, "is_full", False)

    def _creation_times_changed(self, fault: PlannedFault) -> Callable[[], None]:
        """As servers before 2.14 do after an update and two restarts."""
        server = self._server(fault)
        heal = self._end_server(server, None)
        if server.dialect.version < (2, 14):
            for stream in server.streams.values():
                stream.shown_created_ns = self.world.stamp()
        return heal

    def _pubacks_lost(self, fault: PlannedFault) -> Callable[[], None]:
        server = self._server(fault)
        server.loses_acks = fault.draw
        return partial(setattr, server, "loses_acks", 0.0)

    def _server_slow(self, fault: PlannedFault) -> Callable[[], None]:
        """Some messages are stored late, and some answers come late."""
        server = self._server(fault)
        server.slow = 8.0 * fault.draw
        return partial(setattr, server, "slow", 0.0)

    def _consumer_deleted(self, fault: PlannedFault) -> None:
        server = self._server(fault)
        found = (consumer for stream in server.streams.values() for consumer in stream.consumers.values())
        consumers = [consumer for consumer in found if not consumer.is_durable]
        if consumers and server.is_up:
            consumer = consumers[int(fault.draw * 997) % len(consumers)]
            server.request(f"CONSUMER.DELETE.{consumer.stream.name}.{consumer.name}")

    def _target_full(self, fault: PlannedFault) -> Callable[[], None]:
        """Soon a target takes nothing: it has a limit, and refuses new messages."""
        models = [self._stream(rule.target).model for rule in self.rules if rule.target]
        models = [model for model in models if model.config.get("discard") != "new"]  # else it is full already
        if not models:
            return lambda: None
        model = models[int(fault.draw * 997) % len(models)]
        before, most = model.config, len(model.messages) + 1 + int(fault.draw * 8)
        model.config = {**before, "max_msgs": most, "discard": "new"}
        return partial(setattr, model, "config", before)

    def _source(self, fault: PlannedFault) -> str:
        places = sorted(self._produced)
        return places[int(fault.draw * 997) % len(places)]

    def _removes(self, place: str, removed: Sequence[int], **recorded: Any) -> bool:
        """Note that messages are about to be removed. Return whether that is possible."""
        if self.server.is_up and removed:
            self.record("removing", stream=place, **recorded)
            self._removed.setdefault(place, {}).update(dict.fromkeys(removed, self.world.now))
        return self.server.is_up

    def _messages_deleted(self, fault: PlannedFault) -> None:
        place = self._source(fault)
        there = list(self.server.streams[place].model.messages)[-20:]
        chosen_ones = self._chance.sample(there, min(3, len(there)))
        if self._removes(place, chosen_ones, sequences=chosen_ones):
            for sequence in chosen_ones:
                self.server.request(f"STREAM.MSG.DELETE.{place}", {"seq": sequence})

    def _source_purged(self, fault: PlannedFault) -> None:
        place = self._source(fault)
        through = self.server.streams[place].model.last_sequence // (1 if fault.is_odd else 2)
        if self._removes(place, range(1, through + 1), through=through) and through:
            self.server.request(f"STREAM.PURGE.{place}", {"seq": through + 1})

    def _settle(self) -> None:
        world = self.world
        for server in self.servers:
            self._start_server(server)
        for place in self._produced:
            self._publish(place, 1)
        progress, last = world.now, None
        waiting: list[str] = ["all"]
        while waiting:
            world.run(world.now + 0.5)
            waiting = self._waited_for()
            seen = (len(self.history), [self._stream(name).changes for name in sorted(self._places - {""})])
            if seen != last:
                last, progress = seen, world.now
            elif world.now - progress > _STILL:
                break
            elif world.now - progress > _STILL / 4 and all("at_most_once" in each for each in waiting):
                # The last message was in flight when something broke: the judge says whether it may be lost.
                for place in self._produced:
                    self._publish(place, 1)
            if not waiting and world.now - progress < _REST:
                waiting = ["rest"]
        self.record("settled", waiting=waiting)

    def _waited_for(self) -> list[str]:
        waiting = [f"sidecar {each.number} is not ready" for each in self.sidecars if not each.is_ready]
        led = {
            rule.rule.name for each in self.sidecars if each.sidecar for rule in each.sidecar.supervisors if rule.ready
        }
        waiting += [f"{rule.name} has no leader" for rule in self.rules if rule.name not in led]
        for rule in self.rules:
            for source in rule.sources:
                newest = next(reversed(self._stream(source).model.messages.values()), None)
                if newest is None:
                    continue
                if rule.kind == "republish":
                    if int(self._newest.get(rule.name, b"0")) < newest.sequence:
                        waiting.append(f"{rule.name}, {rule.promise}: {source} {newest.sequence} not received")
                    continue
                record = re.compile(rf"-Source: {source}\S* {newest.sequence}[ \r]".encode())
                copies = reversed(self._stream(rule.target).model.messages.values())
                if not any(record.search(each.message.header_block) for each in copies):
                    waiting.append(f"{rule.name}: {source} {newest.sequence} is not in {rule.target}")
        return waiting

    def _judge(self) -> None:
        for name in sorted(self._places - {""}):
            stream = self._stream(name)
            rows = [[each.sequence, each.time_ns, *row_of(each.message)] for each in stream.model.messages.values()]
            self.record("final", stream=name, rows=rows)
        newest: dict[tuple[int, str], dict[str, int]] = {}  # the newest counters of each process and rule
        for event in self.history:
            for name, counters in (event.get("rules") or event.get("last", {}).get("counters") or {}).items():
                newest[event["pid"], name] = counters
        totals: dict[str, Counter[str]] = {}
        for (_, name), counters in newest.items():
            totals.setdefault(name, Counter()).update(counters)
        for name, wrong in self._wrong.items():
            counted = totals[name]["last_sequence_uncertain"]
            if len(wrong) > counted:
                some = f"{next(iter(wrong.values()))}, {len(wrong)} removals and {counted} counted"
                self.violations.append(f"{name}: wrong last sequence {some}")
        kinds = {fault.kind for fault in self.faults}
        story = Story.of(self.history)
        if "power cut" not in kinds:
            self._judge_cut_runs(story)
        for judgement in judge(story, self.rules):
            copies_lost = any(each.what == "invented" and "was lost" in each.detail for each in judgement.findings)
            if copies_lost and not totals[judgement.rule]["shorter_streams"]:
                self.violations.append(f"{judgement.rule}: the lost end of a source is not counted")
            for finding in judgement.violations:
                if finding.what == "lost" and judgement.rule in self._unproven:
                    continue
                if finding.what == "reordered" and judgement.promise == "at_most_once" and "sidecar replaced" in kinds:
                    continue  # the process that ends reads again what its successor has passed
                at = "" if finding.at is None else f" at {finding.at:.3f} s"
                self.violations.append(f"{judgement.rule}: {finding.what}{at}: {finding.detail}")

    def _judge_cut_runs(self, story: Story) -> None:
        """A run of at_most_once that loses its lead counts everything that it has read, and that nobody publishes."""
        for rule in (each for each in self.rules if each.promise == "at_most_once"):
            source, arrived = rule.sources[0], self._arrived.get(rule.name, set())
            for read, counted in (each[1:] for each in self._counted if each[0] == rule.name):
                left = [at for at in read - arrived if at in story.final[source] and not story.was_removed(source, at)]
                if len(left) > counted:
                    lost = f"{source} {sorted(left)[:9]}, {counted} counted"
                    self.violations.append(f"{rule.name}: lost with the lead, and not counted: {lost}")


def run_seed(replay: Replay) -> Found:
    """Carry out one run in a separate process, so that it cannot affect the next one."""
    scenario = Scenario(replay)  # here, for its settings are kept
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            found: object = scenario.run()
        except BaseException as error:
            found = Found(replay, (f"the simulation ended by {error!r}: {traceback.format_exc()}",), (), 0.0, 0, "")
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(found, pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    result: Found = pickle.loads(answer)
    return result


_SETTINGS: dict[tuple[tuple[str, ...], int, bool], Settings] = {}


def _settings(rules: Sequence[RuleUnderTest], replicas: int, is_split: bool) -> Settings:
    key = tuple(rule.name for rule in rules), replicas, is_split
    if key not in _SETTINGS:
        document = configuration(
            tuple(rules), ["nats://nats:4222"], "nats://witness:4222", 0, replicas=replicas, edited=False
        )
        document["http"] = {"listen": ""}
        del document["log"]
        if is_split and any(rule.target for rule in rules):
            document["connections"]["other"] = {"servers": ["nats://other:4222"]}
            document["rules"] = [rule | ({} if "to" in rule else {"to": "other"}) for rule in document["rules"]]
        if all(rule.kind != "republish" for rule in rules):
            del document["connections"]["witness"]
        _SETTINGS[key] = Settings(**document)
    return _SETTINGS[key]
