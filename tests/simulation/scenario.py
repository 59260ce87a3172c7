"""Runs one seed, and lets the chaos judge read its history.

The rules, their streams, the messages and the judge are from `tests.chaos`, so a promise is checked as with real
servers.
"""

from __future__ import annotations

import importlib
import os
import pickle
import random
import re
import traceback
from collections.abc import MutableMapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

from nats_bridge.settings import Settings
from nats_conformance.catalogue.case import Message
from tests.chaos.messages import identified, numbered, one_of_subjects
from tests.chaos.plan import chosen, simulated, streams_of
from tests.chaos.workload import row_of
from tests.simulation.determinism import determined, running
from tests.simulation.fault_actions import FaultActions
from tests.simulation.fault_timing import FaultTiming
from tests.simulation.faults import PlannedFault, Replay, chained, profile_of, schedule
from tests.simulation.judging import Judging
from tests.simulation.network import Network, Reachable
from tests.simulation.process import SidecarProcess
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
_DELAYS = {"network cut", "network held", "half open", "sidecar paused"}
_LENGTHS = (0.2, 0.3, 0.5)  # how long faults begin, as parts of the longest time
_SHORT_WINDOW = 100_000_000  # nanoseconds; the shortest that servers take
_VERSIONS = ("2.9.10", "2.10.27", "2.12.15", "2.15.3")
_RULES = ("once,never-lost,gathered", "copy,never-lost", "gathered,once", "copy,gathered,once,never-lost")
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
        profile, given = profile_of(seed)
        self.version, names = chance.choice(_VERSIONS), chance.choice(_RULES)
        names = given.get("rules", names)
        self.rules = chosen(names, self.version)
        faults_chance = random.Random(f"{seed}/faults")
        self.until = 60.0 * replay.minutes * faults_chance.choice(_LENGTHS)
        faults = chained(faults_chance, self.until, profile) if profile else schedule(faults_chance, self.until)
        self.faults = [each for each in faults if replay.kept is None or each.number in replay.kept]
        self.largest_batch = given.get("largest_batch", chance.choice([1, 3, 3, 6, 6, 12, 12, 40]))
        self.rate = min(given.get("rate", chance.choice([0.1, 0.3, 1.0])), 6.0 / self.largest_batch)  # batches a second
        self.subjects = given.get("subjects", chance.choice([0, 2, 6]))  # for each source; 0 for many
        self._ids = given.get("ids", chance.choice([0.0, 0.0, 0.9]))  # the part of messages that get an id in addition
        self.is_quiet = given.get("is_quiet", False)  # whether nothing more is published because of faults
        self._latest = chance.choice([1.0, self.until])  # when sources begin; late ones often at a fault
        # Whether limits of the sidecar are so low that few messages reach them. Not with batches larger than a window.
        self.is_small = given.get("is_small", chance.random() < 0.7) and self.largest_batch < 40
        # Whether targets remember message ids for a moment only. Nothing may arrive late then.
        is_prompt = not any(fault.kind in _DELAYS for fault in faults)
        self.forgets_ids = is_prompt and given.get("forgets_ids", chance.random() < 0.5)
        is_split = given.get("is_split", chance.random() < 0.4)  # whether targets are on another server than sources
        self.network = Network(self.world)
        self.server = SimulatedServer(self.world, self.network, _PLACE, self.version, "nats")
        self.witness = SimulatedServer(self.world, self.network, _WITNESS, self.version, "witness")
        self.servers = [self.server]  # under test
        if is_split:
            self.servers.append(SimulatedServer(self.world, self.network, _OTHER, self.version, "other"))
        replicas = given.get("replicas", chance.choice([1, 2]))
        self.settings = _settings(self.version, names, replicas, is_split)
        self.judging = Judging(self.world, self.network, self.rules, self.settings)
        self.sidecars = [SidecarProcess(self, number) for number in range(replicas)]
        self.dead: list[object] = []  # what killed processes leave: nothing of it may run, not even its end
        self.places = {name for rule in self.rules for name in (*rule.sources, rule.target)} - {""}
        self.produced: dict[str, int] = {}
        self.is_open, self._stored = True, 0  # for messages and faults; and the messages stored
        self.chance = random.Random(f"{seed}/messages")
        self._timing = FaultTiming(self, FaultActions(self))
        self.witness.observe = self._published
        for server in self.servers:
            server.observe, server.happened = self._published, self._timing.happened
            server.late_reports = given.get("late_reports", 0.1)

    def _logged(self, event: MutableMapping[str, Any]) -> None:
        self.judging.process_logged(event, self.sidecars[int(running()[-1])])
        self._timing.happened(event["event"])

    def _published(self, process: str, message: Message) -> None:
        leadership = self.settings.leadership
        leases = self.server.streams.get(f"KV_{leadership.bucket}") if leadership is not None else None
        self.judging.check_writer(leases, process, message)

    def run(self) -> Found:
        with determined(self.world, self._logged, is_small=self.is_small):
            self._carry_out()
        world, broken = self.world, tuple(self.judging.violations)
        return Found(self.replay, broken, tuple(self.faults), world.now, self._stored, world.digest, tuple(world.lines))

    def _carry_out(self) -> None:
        world, run = self.world, {"replicas": len(self.sidecars), "began": BEGAN_NS / 1e9, "version": self.version}
        self.judging.record("run", seed=self.replay.seed, **run)
        for server in (*self.servers, self.witness):
            server.start()
        targets = {rule.target for rule in self.rules}
        for name, config in streams_of(self.version).items():
            if name in self.places:
                server = self.servers[-1 if name in targets else 0]
                window = {"duplicate_window": _SHORT_WINDOW} if name in targets and self.forgets_ids else {}
                answer = server.request(f"STREAM.CREATE.{name}", {"name": name, **config, **window})
                assert "error" not in answer, answer
        for rule in self.rules:
            if rule.kind == "republish":
                stream = self.stream(rule.sources[0])
                stream.predecessors = {}
                received = partial(self.judging.received, rule.name, stream)
                self.witness.listeners.append((f"{rule.name}.>".encode(), received))
        for process in self.sidecars:
            process.start()
        for place in sorted({source for rule in self.rules for source in rule.sources}):
            self.produced[place] = 0
            world.after(world.draw(0, self._latest), partial(self._produce, place))
        self._timing.plan(self.faults)
        world.run(self.until)
        self.is_open = False
        world.run(max(self.until, self._timing.healed) + 0.01)
        self._settle()
        self.look()
        for name in sorted(self.places):
            stored = self.stream(name).model.messages.values()
            rows = [[each.sequence, each.time_ns, *row_of(each.message)] for each in stored]
            self.judging.record("final", stream=name, rows=rows)
        self.judging.judge(self.judging.history, {fault.kind for fault in self.faults})
        for process in self.sidecars:
            process.stays_away = True
            process.stop()
        deadline = world.now + 60
        while world.now < deadline and any(each.sidecar is not None for each in self.sidecars):
            world.run(world.now + 0.1)
        if any(process.sidecar is not None for process in self.sidecars):
            self.judging.violations.append("stuck: the sidecar does not stop")

    def look(self) -> None:
        """Note what the sidecars count."""
        for process in self.sidecars:
            self.judging.look(process)

    def _produce(self, place: str) -> None:
        if self.is_open:
            self.publish(place, self.chance.randrange(1, self.largest_batch + 1))
            self.world.after(self.chance.expovariate(self.rate), partial(self._produce, place))

    def publish(self, place: str, size: int, subject: bytes = b"") -> None:
        """Let a producer publish some messages, on one subject or on any."""
        if not self.server.is_up:
            return
        rows = []
        for _ in range(size):
            self.produced[place] += 1
            number = self.produced[place]
            message = numbered(place.lower().encode(), number, self.chance)
            if self.subjects or subject:
                message = one_of_subjects(message, self.subjects, subject)
            if self.subjects and not (message.header_block or message.payload):  # else the judge confuses these
                message = replace(message, payload=b"%b %d" % (place.lower().encode(), number))
            if self.chance.random() < self._ids:
                message = identified(message, place.lower().encode(), number)
            rows.append([number, *row_of(message)])
            self.server.publish(message, answered=partial(self._was_stored, place, number))
        self.judging.record("sent", to=place, rows=rows)

    def _was_stored(self, place: str, number: int, answer: dict[str, Any]) -> None:
        if answer.get("seq") and "error" not in answer:
            self._stored += 1
            self.judging.record("stored", to=place, rows=[[number, answer["seq"]]])

    def stream(self, name: str) -> KeptStream:
        return next(server.streams[name] for server in self.servers if name in server.streams)

    def _settle(self) -> None:
        world = self.world
        for server in self.servers:
            self._timing.actions.start_server(server)
        for place in self.produced:
            self.publish(place, 1)
        progress, last = world.now, None
        waiting: list[str] = ["all"]
        while waiting:
            world.run(world.now + 0.5)
            waiting = self._waited_for()
            seen = (len(self.judging.history), [self.stream(name).changes for name in sorted(self.places)])
            if seen != last:
                last, progress = seen, world.now
            elif world.now - progress > _STILL:
                break
            elif world.now - progress > _STILL / 4 and all("at_most_once" in each for each in waiting):
                # The last message was in flight when something broke: the judge says whether it may be lost.
                for place in self.produced:
                    self.publish(place, 1)
            if not waiting and world.now - progress < _REST:
                waiting = ["rest"]
        self.judging.record("settled", waiting=waiting)

    def _waited_for(self) -> list[str]:
        waiting = [f"sidecar {each.number} is not ready" for each in self.sidecars if not each.is_ready]
        supervisors = [rule for each in self.sidecars if each.sidecar for rule in each.sidecar.supervisors]
        led = {rule.rule.name for rule in supervisors if rule.ready}
        waiting += [f"{rule.name} has no leader" for rule in self.rules if rule.name not in led]
        for rule in self.rules:
            for source in rule.sources:
                newest = next(reversed(self.stream(source).model.messages.values()), None)
                if newest is None:
                    continue
                if rule.kind == "republish":
                    if self.judging.newest.get(rule.name, 0) < newest.sequence:
                        waiting.append(f"{rule.name}, {rule.promise}: {source} {newest.sequence} not received")
                    continue
                record = re.compile(rf"-Source: {source}\S* {newest.sequence}[ \r]".encode())
                copies = reversed(self.stream(rule.target).model.messages.values())
                if not any(record.search(each.message.header_block) for each in copies):
                    waiting.append(f"{rule.name}: {source} {newest.sequence} is not in {rule.target}")
        return waiting


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
        result: Found = pickle.loads(pipe.read())
    os.waitpid(child, 0)
    return result


@cache
def _settings(version: str, names: str, replicas: int, is_split: bool) -> Settings:
    return Settings(**simulated(chosen(names, version), replicas=replicas, is_split=is_split))
