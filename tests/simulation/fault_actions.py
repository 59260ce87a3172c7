"""Carries out the faults of a seed: each method is named after a kind, begins the fault, and returns its end."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulation.faults import PlannedFault, soon
from tests.simulation.process import SidecarProcess
from tests.simulation.server import SimulatedServer
from tests.simulation.streams import KeptStream
from tests.simulation.world import BEGAN_NS

if TYPE_CHECKING:
    from tests.simulation.scenario import Scenario


class FaultActions:
    """Carries out the faults of a scenario, one method for each kind."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._world, self._network = scenario.world, scenario.network

    def begin(self, fault: PlannedFault) -> Callable[[], object] | None:
        """Begin a fault. Return what ends it; None if it is over."""
        name = "_" + fault.kind.lower().replace(" ", "_").replace("'", "")
        carry_out: Callable[[PlannedFault], Callable[[], object] | None] = getattr(self, name)
        return carry_out(fault)

    def _process(self, fault: PlannedFault) -> SidecarProcess:
        return self._scenario.sidecars[int(fault.draw * 1000) % len(self._scenario.sidecars)]

    def _server(self, fault: PlannedFault) -> SimulatedServer:
        return self._scenario.servers[int(fault.draw * 317) % len(self._scenario.servers)]

    def _any_stream(self, fault: PlannedFault) -> tuple[SimulatedServer, KeptStream]:
        names = sorted(self._scenario.places)
        name = names[int(fault.draw * 997) % len(names)]
        return next(server for server in self._scenario.servers if name in server.streams), self._scenario.stream(name)

    def _sidecar_killed(self, fault: PlannedFault) -> None:
        self._process(fault).kill(int(soon(random.Random(fault.draw), 1.0, 200.0)))

    def _sidecar_restarted(self, fault: PlannedFault) -> None:
        self._process(fault).stop()

    def _sidecar_replaced(self, fault: PlannedFault) -> None:
        """As a rolling update: the next process starts soon after the signal, often before this one has ended."""
        process = self._process(fault)
        process.stop()
        self._world.after(soon(random.Random(fault.draw), longest=3.0), partial(process.replace, process.loop))

    def _sidecars_clock_stepped(self, fault: PlannedFault) -> None:
        self._world.clock_step = 72 * 3600 * (2 * fault.draw - 1)

    def _sidecar_paused(self, fault: PlannedFault) -> Callable[[], object]:
        if (loop := self._process(fault).loop) is not None:
            loop.pause(fault.hold)
        return lambda: None

    def _connections_reset(self, fault: PlannedFault) -> None:
        """All connections are reset, or one of them."""
        wires = self._network.between(place=self._server(fault).place) if fault.draw < 0.3 else self._network.between()
        chosen = int(fault.draw * 997) % len(wires) if wires and int(fault.draw * 10) % 2 else None
        for wire in wires if chosen is None else [wires[chosen]]:
            wire.reset()

    def _slow_consumer(self, fault: PlannedFault) -> None:
        self._server(fault).end_slow_consumer(int(fault.draw * 997))

    def _network_cut(self, fault: PlannedFault) -> Callable[[], object]:
        """Connections are reset, and no new one is answered for a while."""
        for wire in self._network.between(f"sidecar{self._process(fault).number}", self._server(fault).place):
            wire.reset()
        return self._network_held(fault)

    def _network_held(self, fault: PlannedFault) -> Callable[[], object]:
        """Nothing arrives for a while; then everything does, or the connections are reset, and it is lost."""
        name = f"sidecar{self._process(fault).number}"
        place = (self._scenario.witness if "witness" in fault.kind else self._server(fault)).place
        self._network.hold(name, place)

        def heal() -> None:
            for wire in self._network.between(name, place) if fault.is_odd else ():
                wire.reset()
            self._network.release(name, place)

        return heal

    _witness_cut = _network_held

    def _half_open(self, fault: PlannedFault) -> Callable[[], object]:
        """One direction holds what it carries: of one connection, or of all between a process and a server."""
        place = (self._scenario.witness if "witness" in fault.kind else self._server(fault)).place
        wires = self._network.between(f"sidecar{self._process(fault).number}", place)
        chosen = wires if int(fault.draw * 100) % 2 else wires[int(fault.draw * 997) % max(len(wires), 1) :][:1]
        for wire in chosen:
            wire.hold(to_server=fault.draw < 0.5, to_client=fault.draw >= 0.5)
        ends: list[Callable[[], object]] = [wire.reset if fault.is_odd else wire.release for wire in chosen]
        return lambda: [end() for end in ends]

    _half_open_of_the_witness = _half_open

    def _server_killed(self, fault: PlannedFault) -> Callable[[], object]:
        return self._end_server(self._server(fault), None)

    _server_restarted = _server_killed

    def _end_server(self, server: SimulatedServer, lost_since: float | None) -> Callable[[], object]:
        if not server.is_up:
            return lambda: None
        server.end(lost_since=lost_since)
        return partial(self.start_server, server)

    def start_server(self, server: SimulatedServer) -> None:
        if not server.is_up:
            server.start()
            for wire in self._network.between(place=server.place):
                if wire.to_server.is_broken:  # of the server before: the first packet resets it
                    self._world.after(soon(self._world.chance, 0.001, 8.0), wire.reset)

    def _power_cut(self, fault: PlannedFault) -> Callable[[], object]:
        """A server loses everything that it stored since a moment."""
        server = self._server(fault)
        lost_since, heal = self._lost_since(fault, server)
        start = self._end_server(server, lost_since)
        return lambda: (start(), heal())

    def _power_cut_of_a_stream(self, fault: PlannedFault) -> Callable[[], object]:
        """The leaders of a stream lose its end, so it has none until another one is elected."""
        server, stream = self._any_stream(fault)
        lost_since, heal = self._lost_since(fault, server)
        server.lose_tail(stream, lost_since)
        elect = self._stream_leader_steps_down(fault)
        return lambda: (elect(), heal())

    def _lost_since(self, fault: PlannedFault, server: SimulatedServer) -> tuple[float, Callable[[], object]]:
        """Return the second since which everything is lost, and what happens when the server is back.

        Publishers then often store as many messages as a source has lost, so that these get the lost sequences.
        """
        chance, world, scenario = random.Random(fault.draw), self._world, self._scenario
        since = world.now - soon(chance, longest=3.0)
        sources = [(name, server.streams[name]) for name in sorted(scenario.produced) if name in server.streams]
        if sources and fault.is_odd:
            times = chance.choice(sources)[1].times
            times = times[-8:] if fault.draw < 0.8 else times[8:][-64:]
            since = (chance.choice(times) - BEGAN_NS) / 1e9 - 1e-6 if times else since
        if server.is_up:
            scenario.judging.record("forgotten", since=since)
        ends = [(name, sum((at - BEGAN_NS) / 1e9 > since for at in stream.times)) for name, stream in sources]

        def publish_again() -> None:
            for name, lost in ends:
                if lost and chance.random() < 0.7:
                    world.after(soon(chance, longest=1.0), partial(scenario.publish, name, lost + chance.randrange(3)))

        return since, publish_again

    def _stream_leader_steps_down(self, fault: PlannedFault) -> Callable[[], object]:
        """Nothing is stored in a stream or read from it for a while, and publications to it can be lost."""
        server, stream = self._any_stream(fault)
        stream.has_leader = False
        return partial(server.lead, stream)

    def _disk_full(self, fault: PlannedFault) -> Callable[[], object]:
        server = self._server(fault)
        server.is_full = True
        return partial(setattr, server, "is_full", False)

    def _creation_times_changed(self, fault: PlannedFault) -> Callable[[], object]:
        """As servers before 2.14 do after an update and two restarts."""
        server = self._server(fault)
        heal = self._end_server(server, None)
        if server.dialect.version < (2, 14):
            for stream in server.streams.values():
                stream.shown_created_ns = self._world.stamp()
        return heal

    def _pubacks_lost(self, fault: PlannedFault) -> Callable[[], object]:
        server = self._server(fault)
        server.loses_acks = fault.draw
        return partial(setattr, server, "loses_acks", 0.0)

    def _server_slow(self, fault: PlannedFault) -> Callable[[], object]:
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

    def _target_full(self, fault: PlannedFault) -> Callable[[], object]:
        """Soon a target takes nothing: it has a limit, and refuses new messages."""
        models = [self._scenario.stream(rule.target).model for rule in self._scenario.rules if rule.target]
        models = [model for model in models if model.config.get("discard") != "new"]  # else it is full already
        if not models:
            return lambda: None
        model = models[int(fault.draw * 997) % len(models)]
        before, most = model.config, len(model.messages) + 1 + int(fault.draw * 8)
        model.config = {**before, "max_msgs": most, "discard": "new"}
        return partial(setattr, model, "config", before)

    def _source(self, fault: PlannedFault) -> str:
        places = sorted(self._scenario.produced)
        return places[int(fault.draw * 997) % len(places)]

    def _removes(self, place: str, removed: Sequence[int], **recorded: Any) -> bool:
        """Note that messages are about to be removed. Return whether that is possible."""
        if self._scenario.server.is_up and removed:
            self._scenario.judging.removes(place, removed, **recorded)
        return self._scenario.server.is_up

    def _messages_deleted(self, fault: PlannedFault) -> None:
        messages = self._scenario.server.streams[place := self._source(fault)].model.messages
        there = list(messages)[-20 if fault.is_odd else -4 :]
        chosen_ones = self._scenario.chance.sample(there, min(3, len(there)))
        subject = messages[chosen_ones[0]].message.subject if chosen_ones else b""
        if self._removes(place, chosen_ones, sequences=chosen_ones):
            for sequence in chosen_ones:
                self._scenario.server.request(f"STREAM.MSG.DELETE.{place}", {"seq": sequence})
            self._publish_soon(fault, place, subject)

    def _publish_soon(self, fault: PlannedFault, place: str, subject: bytes = b"") -> None:
        """Often store messages before the sidecar receives the report of a removal, or the answer about it."""
        if fault.draw < 0.5:
            self._world.after(soon(self._world.chance, longest=0.3), partial(self._scenario.publish, place, 2, subject))

    def _source_purged(self, fault: PlannedFault) -> None:
        place = self._source(fault)
        through = self._scenario.server.streams[place].model.last_sequence // (1 if fault.is_odd else 2)
        if self._removes(place, range(1, through + 1), through=through) and through:
            self._scenario.server.request(f"STREAM.PURGE.{place}", {"seq": through + 1})
            self._publish_soon(fault, place)
