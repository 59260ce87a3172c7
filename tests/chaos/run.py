"""One run, from the first server to the judgement."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from nats_bridge.permissions.granting import as_text, grants_of
from nats_bridge.settings import Settings as BridgeSettings
from tests.chaos.checker import judge_history
from tests.chaos.expiring import Expiring
from tests.chaos.faults import faults
from tests.chaos.findings import Judgement
from tests.chaos.history import ADVISORIES, Historian
from tests.chaos.nemesis import Nemesis
from tests.chaos.observing import look, read_streams, watch
from tests.chaos.plan import EXPIRING, LEASED, QUEUES, SCHEDULED, STREAMS, RuleUnderTest, configuration
from tests.chaos.sidecars import Sidecar
from tests.chaos.story import Story
from tests.chaos.surroundings import Surroundings, Topology
from tests.chaos.workload import ADVISORY, Listener, Producer, Worker

_STILL = 120.0
"""Seconds without any progress, after the last fault was healed, that count as stuck.

A rule that has failed six times in a row is started again only after a minute.
"""
_REST = 5.0
"""Seconds in which nothing changes that count as come to rest."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a run.

    Attributes:
        seed: of workload and faults.
        topology: one server or a cluster.
        version: of the servers.
        rules: under test.
        minutes: until the faults end; 0 for no limit in time.
        faults: per lane, after which the run ends; 0 for no limit.
        messages: per producer, after which it publishes no more; 0 for no limit.
        rate: messages a second of each producer, at most.
        replicas: sidecars.
    """

    seed: str
    topology: Topology
    version: str
    rules: tuple[RuleUnderTest, ...]
    minutes: float
    faults: int
    messages: int
    rate: float
    replicas: int


async def run(settings: Settings, directory: Path, report: Callable[[str], None]) -> tuple[Story, list[Judgement]]:
    """Carry out a run and judge it.

    Args:
        settings: what it is.
        directory: for history, logs and configuration; the servers' stores are elsewhere and go away.
        report: gets a line about everything that happens.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.glob("sidecar-*"):
        old.unlink()
    historian = Historian(directory / "history.jsonl")
    described = asdict(settings) | {"rules": [rule.name for rule in settings.rules]}
    historian.record("run", **described, began=time.time() - historian.now)
    with tempfile.TemporaryDirectory(prefix="chaos-") as stores:
        surroundings = Surroundings(settings.topology, settings.version, Path(stores), _permissions(settings))
        try:
            await surroundings.start()
            report(f"{len(surroundings.nodes)} server(s) {settings.version} and a witness are up")
            judgements = await _Run(settings, surroundings, directory, historian, report).carry_out()
        finally:
            await surroundings.close(report)
            historian.close()
    return judgements


def _permissions(settings: Settings) -> str:
    """Return the permissions that `check --permissions` prints for both configurations of a sidecar."""
    everything = configuration(
        settings.rules, ["nats://127.0.0.1"], "nats://127.0.0.1", 0, replicas=settings.replicas, edited=True
    )
    grants = grants_of(BridgeSettings.model_validate(everything))
    return as_text([each for each in grants if each.connection == "default"])


class _Run:
    def __init__(
        self,
        settings: Settings,
        surroundings: Surroundings,
        directory: Path,
        historian: Historian,
        report: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._surroundings = surroundings
        self._historian = historian
        self._report = report
        self._peer = surroundings.peer()
        self._sidecars = [
            Sidecar(number, self._configuration, directory, historian) for number in range(settings.replicas)
        ]
        places = sorted({source for rule in settings.rules for source in rule.sources})
        self._producers = [
            Producer(place, surroundings.peer(), historian, settings.seed, settings.rate) for place in places
        ]
        republish = [rule.name for rule in settings.rules if rule.kind == "republish"]
        self._listeners = {
            name: Listener(surroundings.witness(), f"{name}.>".encode(), name, historian) for name in republish
        }
        self._tasks: list[asyncio.Task[None]] = []

    def _configuration(self, port: int, edited: bool) -> dict[str, object]:
        return configuration(
            self._settings.rules,
            [wire.url for wire in self._surroundings.wires],
            self._surroundings.witness_wire.url,
            port,
            replicas=self._settings.replicas,
            edited=edited,
        )

    async def carry_out(self) -> tuple[Story, list[Judgement]]:
        try:
            return await self._carry_out()
        finally:
            for sidecar in self._sidecars:
                sidecar.kill()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _carry_out(self) -> tuple[Story, list[Judgement]]:
        settings = self._settings
        await self._listen()
        for sidecar in self._sidecars:
            sidecar.start()
        await self._all_ready()
        self._report("the sidecars are ready")
        self._spawn(watch(self._sidecars, self._historian))
        nemesis = Nemesis(self._surroundings, self._sidecars, settings.rules, self._historian, self._reported)
        began = self._historian.now
        is_running = True

        def wanted(done: int = 0) -> bool:
            in_time = not settings.minutes or self._historian.now - began < settings.minutes * 60
            return is_running and in_time and not (settings.messages and done >= settings.messages)

        work = [
            asyncio.create_task(producer.run(lambda each=producer: wanted(each.sent)))  # type: ignore[misc]
            for producer in self._producers
        ]
        if any(rule.kind == "advisories" for rule in settings.rules):
            worker = Worker(self._surroundings.peer())
            work.append(asyncio.create_task(worker.run(lambda: is_running)))
        expiring = self._expiring(nemesis)
        if expiring is not None:
            work.append(asyncio.create_task(expiring.run(lambda: is_running)))
        lanes = [
            nemesis.run(islice(faults(settings.seed, lane, settings.topology), settings.faults or None), wanted)
            for lane in ("sidecar", "servers")
        ]
        await asyncio.gather(*lanes)
        if settings.messages:
            await asyncio.gather(*(task for task, _ in zip(work, self._producers, strict=False)))
        is_running = False
        await asyncio.gather(*work)
        await nemesis.close()
        if expiring is not None:
            await expiring.turn()
            await expiring.close()
        self._report(f"{nemesis.done} faults carried out; waiting until everything has come through")
        waiting = await self._settle()
        self._historian.record("settled", waiting=waiting)
        self._historian.flush()
        return await self._judge()

    def _expiring(self, nemesis: Nemesis) -> Expiring | None:
        """What ends the leases, if a rule copies them."""
        for rule in self._settings.rules:
            for producer in self._producers:
                if producer.place == LEASED and LEASED in rule.sources:
                    are_copied = partial(self._holds, rule, LEASED, 0)
                    return Expiring(producer, self._surroundings, self._historian, are_copied, nemesis.quiet)
        return None

    async def _listen(self) -> None:
        advisories = Listener(self._surroundings.peer(), ADVISORY, ADVISORIES, self._historian, keeps_bodies=True)
        for listener in (*self._listeners.values(), advisories):
            listening = asyncio.Event()
            self._spawn(listener.run(listening))
            await listening.wait()

    def _spawn(self, coroutine: object) -> None:
        self._tasks.append(asyncio.create_task(coroutine))  # type: ignore[arg-type]

    def _reported(self, text: str) -> None:
        stored = sum(producer.stored for producer in self._producers)
        received = sum(listener.received for listener in self._listeners.values())
        self._report(f"{self._historian.now:7.1f} s  {stored:>8} stored {received:>8} received   {text}")

    async def _all_ready(self) -> None:
        for sidecar in self._sidecars:
            while (await sidecar.ask("/readyz"))[0] != 200:
                await asyncio.sleep(0.1)

    async def _settle(self) -> list[str]:
        """Wait until everything has arrived; return what has not, when nothing progresses any more."""
        progress = self._historian.now
        last: object = None
        ends = {producer.place: 0 for producer in self._producers if producer.place not in ("events", "JOBS")}
        waiting = ["the sidecars"]
        while waiting:
            for producer in self._producers:
                if producer.place in ends and not ends[producer.place]:
                    ends[producer.place] = await producer.batch(1)
            waiting, seen = await self._waited_for(ends)
            if seen != last:
                last, progress = seen, self._historian.now
            elif self._historian.now - progress > _STILL:
                return waiting
            if not waiting and self._historian.now - progress < _REST:
                waiting = ["rest"]
            await asyncio.sleep(0.25)
        return []

    async def _waited_for(self, ends: dict[str, int]) -> tuple[list[str], object]:
        """The missing messages, and a value that changes with every progress."""
        waiting, seen = [], []
        for sidecar in self._sidecars:
            status = await look(sidecar, self._historian)
            if status is None or not status["ready"]:
                states = [] if status is None else [f"{rule['name']} {rule['state']}" for rule in status["rules"]]
                waiting.append(f"sidecar {sidecar.number} is not ready: {', '.join(states) or 'no answer'}")
            seen.append([] if status is None else [rule["counters"] for rule in status["rules"]])
        for rule in self._settings.rules:
            for source in rule.sources:
                end = ends.get(source, -1)
                if end < 0:
                    continue
                if end and source in EXPIRING | SCHEDULED:
                    end = int((await self._peer.state(source))["last_seq"])
                if not end:
                    waiting.append(f"{source} takes nothing")
                elif rule.kind == "republish" and self._listeners[rule.name].newest < end:
                    waiting.append(f"{rule.name}: {source} {end} not received, {self._listeners[rule.name].newest} was")
                elif rule.target and not await self._holds(rule, source, end):
                    waiting.append(f"{rule.name}: {source} {end} is not in {rule.target}")
        received = {name: listener.received for name, listener in self._listeners.items()}
        targets = [await self._peer.state(rule.target) for rule in self._settings.rules if rule.target]
        seen.append([received, [state["last_seq"] for state in targets]])
        return waiting, repr(seen)

    async def _holds(self, rule: RuleUnderTest, source: str, sequence: int) -> bool:
        """Whether the copy of a message stands in the target: the newest on its subject, or at its sequence."""
        if rule.document.get("keep_sequence"):
            return int((await self._peer.state(rule.target))["last_seq"]) >= sequence
        if "allow_msg_counter" in STREAMS[rule.target]:
            held = [int((await self._peer.state(stream))["messages"]) for stream in (*rule.sources, rule.target)]
            return held.pop() >= sum(held)
        if source in QUEUES:
            return int((await self._peer.state(source))["messages"]) == 0
        # What expires may be gone: then the newest that is there.
        (subjects,) = STREAMS[source]["subjects"]
        asked = {"last_by_subj": subjects} if source in EXPIRING else {"seq": sequence}
        stored = await self._peer.try_api(f"STREAM.MSG.GET.{source}", asked)
        if stored is None or "message" not in stored:
            return False
        subject = rule.destination(stored["message"]["subject"])
        copy = await self._peer.try_api(f"STREAM.MSG.GET.{rule.target}", {"last_by_subj": subject})
        return copy is not None and copy.get("message", {}).get("data", "") == stored["message"].get("data", "")

    async def _judge(self) -> tuple[Story, list[Judgement]]:
        rules = self._settings.rules
        streams: Sequence[str] = sorted(
            {*(source for rule in rules for source in rule.sources if source != "events"), *(r.target for r in rules)}
            - {""}
        )
        for text in sorted({text for sidecar in self._sidecars for text in sidecar.refusals()}):
            self._historian.record("refused", text=text)
        for second_look in (False, True):
            await read_streams(self._peer, streams, self._historian, self._report)
            story, judgements = judge_history(self._historian.path, rules)
            if second_look or not any(judgement.violations for judgement in judgements):
                break
            # Copies that were left out at first may still be in flight, and an expired message not yet removed.
            self._report("something is wrong: checking again in 20 s")
            await asyncio.sleep(20)
        for sidecar in self._sidecars:
            code = await sidecar.stop()
            self._report(f"sidecar {sidecar.number} stopped with {code}")
        await self._peer.drop()
        self._historian.flush()
        return story, judgements
