"""The nemesis carries out faults and records when each began, what it hit, and when it was over."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from nats_conformance.errors import SubjectError
from nats_conformance.native_servers import NativeServer
from nats_conformance.native_servers.errors import ServerStartError
from tests.chaos.faults import KINDS, Fault, drawn
from tests.chaos.history import Historian
from tests.chaos.incidents import Incidents
from tests.chaos.plan import STREAMS, RuleUnderTest
from tests.chaos.sidecars import Sidecar
from tests.chaos.surroundings import PATIENCE, Surroundings

_LONGEST_STEP = 3 * 24 * 3600  # seconds by which a clock is wrong, at most
_DAMAGED = ("ORDERS", "GATHERED", "COPY")
"""Not the source of `twin`: that one ends where its source can be shorter than it is."""
_ROOM = 400  # messages that a stream still takes before it is full
_FILLING = 15.0  # seconds until a stream that is not full counts as left alone
_numbers = itertools.count(1)


class Nemesis:
    """Carries out faults upon surroundings and sidecars."""

    def __init__(
        self,
        surroundings: Surroundings,
        sidecars: Sequence[Sidecar],
        rules: Sequence[RuleUnderTest],
        historian: Historian,
        report: Callable[[str], None],
    ) -> None:
        self.done = 0
        self.quiet = asyncio.Lock()  # held while something happens to servers, or must not
        self._surroundings = surroundings
        self._sidecars = sidecars
        self._rules = rules
        self._historian = historian
        self._report = report
        self._peer = surroundings.peer()
        self._system = surroundings.system()
        self._incidents = Incidents(surroundings, self._peer)

    async def run(self, lane: Iterable[Fault], wanted: Callable[[], bool]) -> None:
        """Carry out one fault after the other while more are wanted."""
        for fault in lane:
            if not wanted():
                return
            await asyncio.sleep(fault.pause)
            if not wanted():
                return
            await self.carry_out(fault)
            self.done += 1

    async def carry_out(self, fault: Fault) -> None:
        """One fault, from its beginning until it is healed."""
        number = next(_numbers)
        self._historian.record("fault", number=number, kind=fault.kind, phase="begin")
        hit = ""
        try:
            async with self.quiet if KINDS[fault.kind].lane == "servers" else contextlib.nullcontext():
                hit = await self._act(fault)
        except (SubjectError, OSError) as error:
            hit = f"not carried out: {error}"
        self._historian.record("fault", number=number, kind=fault.kind, phase="healed", hit=hit)
        self._historian.flush()
        self._report(f"{fault.kind}: {hit}")
        if fault.patient:
            await self._ready()
        self._historian.record("fault", number=number, kind=fault.kind, phase="end")

    async def _ready(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                for sidecar in self._sidecars:
                    while (await sidecar.ask("/readyz"))[0] != 200:
                        await asyncio.sleep(0.1)

    async def _act(self, fault: Fault) -> str:
        kind = fault.kind
        surroundings = self._surroundings
        if kind.startswith("sidecar") or kind == "configuration reloaded":
            return await self._upon_sidecar(fault)
        if kind == "power cut":
            return await self._cut_power(fault)
        if kind == "bits flipped":
            return await self._flip_bits(fault)
        if kind == "peers removed":
            return await self._remove_peers(fault)
        if kind == "creation times changed":
            return await self._incidents.change_creation_times()
        if kind == "stream offline":
            return await self._incidents.take_offline(fault)
        if kind == "disk full":
            return await self._incidents.fill_disk(fault)
        if kind == "inbox refused":
            return await self._incidents.refuse_inbox(fault)
        if kind == "consumer edited":
            await self._ready()
            async with self.quiet:  # a rule that starts again before it has noticed cannot know what was left out
                return await self._incidents.edit_consumer(fault)
        if kind == "consumer deleted":
            return await self._delete_consumer(fault)
        if kind.startswith(("network", "connections")):
            return await self._upon_wires(fault, surroundings.wires)
        if kind.startswith("witness"):
            return await self._upon_wires(fault, [surroundings.witness_wire])
        if kind in ("server killed", "server restarted", "lame duck", "all servers killed"):
            return await self._upon_servers(fault)
        if kind == "stream leader steps down":
            stream = drawn(list(surroundings.streams), fault.draw)
            answer = await self._peer.try_api(f"STREAM.LEADER.STEPDOWN.{stream}")
            return f"{stream} {_said(answer)}"
        if kind == "meta leader steps down":
            return _said(await self._system.try_api("META.LEADER.STEPDOWN"))
        if kind == "target full":
            return await self._fill(fault)
        if kind == "messages deleted":
            return await self._delete_messages(fault)
        return await self._purge(fault)

    async def _upon_sidecar(self, fault: Fault) -> str:
        sidecar = drawn(self._sidecars, fault.draw)
        name = f"sidecar {sidecar.number}"
        if fault.kind == "sidecar killed":
            await sidecar.gone(sidecar.send(signal.SIGKILL, "killed") or -1)
        elif fault.kind == "sidecar restarted":
            await sidecar.gone(sidecar.send(signal.SIGTERM, "asked to stop") or -1)
        elif fault.kind == "sidecar's clock stepped":
            seconds = round((2 * fault.draw - 1) * _LONGEST_STEP)
            sidecar.step_clock(seconds)
            return f"{name} by {seconds} s"
        elif fault.kind == "sidecar paused":
            if sidecar.send(signal.SIGSTOP, "paused"):
                await asyncio.sleep(fault.hold)
                sidecar.send(signal.SIGCONT, "resumed")
                return f"{name} for {fault.hold} s"
        else:
            for each in self._sidecars:
                each.edit()
                each.send(signal.SIGHUP, "reloaded")
        return name

    async def _upon_wires(self, fault: Fault, wires: Sequence[Any]) -> str:
        # Of a cluster's wires one, or all of them.
        chosen = list(wires) if fault.draw < 0.5 else [drawn(wires, (fault.draw - 0.5) * 2)]
        for wire in chosen:
            if fault.kind == "connections reset":
                wire.reset()
            elif fault.kind.endswith("cut"):
                wire.cut()
            elif fault.kind.endswith("held"):
                wire.hold()
            else:
                wire.slow()
        await asyncio.sleep(fault.hold)
        for wire in chosen:
            wire.restore()
        return f"{len(chosen)} of {len(wires)} for {fault.hold} s"

    async def _upon_servers(self, fault: Fault) -> str:
        surroundings = self._surroundings
        nodes: list[NativeServer] = surroundings.nodes
        chosen = nodes if fault.kind == "all servers killed" else [drawn(nodes, fault.draw)]
        if fault.kind == "server restarted":
            await asyncio.to_thread(chosen[0].stop)
        elif fault.kind == "lame duck":
            await surroundings.lame(chosen[0])
        else:
            await asyncio.gather(*(asyncio.to_thread(node.kill) for node in chosen))
        await asyncio.sleep(fault.hold)
        await surroundings.raise_up(*chosen)
        return ", ".join(node.name for node in chosen)

    async def _cut_power(self, fault: Fault) -> str:
        """Lose what was stored in the last seconds, as a machine without power loses what is not on its disk.

        By default servers write to disk every two minutes. What they had by the first moment is complete, so that all
        streams lose the same time.
        """
        (node,) = self._surroundings.nodes
        since = self._historian.now
        kept = await self._surroundings.keep(node)
        await asyncio.sleep(fault.hold)
        await self._surroundings.cut_power(node, kept)
        self._historian.record("forgotten", since=since)
        await self._surroundings.raise_up(node)
        return f"everything since {since:.1f} s is lost"

    async def _flip_bits(self, fault: Fault) -> str:
        """Damage a message of a stream in its file, while the server is stopped.

        The server leaves that one out, or all behind it in the file, when it has to read the file again. Server 2.15.3
        sometimes does not get ready at all. The byte is then put back, so that the run can go on.
        """
        (node,) = self._surroundings.nodes
        stream = drawn(_DAMAGED, fault.draw)
        await asyncio.to_thread(node.stop)
        files = sorted(node.store_dir.rglob(f"{stream}/msgs/*.blk"))
        if not files:
            await self._surroundings.raise_up(node)
            return f"{stream}: it has no file"
        file = files[-1]
        place = int(file.stat().st_size * (0.25 + 0.5 * (fault.draw * len(_DAMAGED) % 1)))
        _flip(file, place)
        self._historian.record("damaged", stream=stream)
        hit = f"{stream}: byte {place} of {file.name}"
        try:
            await self._surroundings.raise_up(node)
        except ServerStartError:
            _flip(file, place)
            await self._surroundings.raise_up(node)
            hit += ", put back because the server did not start"
        return hit

    async def _remove_peers(self, fault: Fault) -> str:
        """Remove all servers but one from a stream's group, and let them join again.

        A server refuses `STREAM.PEER.REMOVE` where there is no other one to take the place (2.12.15).
        """
        stream = drawn(list(self._surroundings.streams), fault.draw)
        config = self._surroundings.stream_config(stream, self._surroundings.streams[stream])
        said = _said(await self._peer.try_api(f"STREAM.UPDATE.{stream}", {**config, "num_replicas": 1}))
        await asyncio.sleep(fault.hold)
        await self._surroundings.make_whole(self._peer, stream)
        return f"{stream} {said} for {fault.hold} s"

    async def _delete_consumer(self, fault: Fault) -> str:
        await self._ready()
        streams = sorted({source for rule in self._rules for source in rule.sources if source in STREAMS})
        stream = drawn(streams, fault.draw)
        answer = await self._peer.try_api(f"CONSUMER.NAMES.{stream}") or {}
        names = sorted(set(answer.get("consumers") or []) - {"workers"})
        if not names:
            return f"{stream}: there is none"
        name = drawn(names, fault.draw * len(streams) % 1)
        deleted = _said(await self._peer.try_api(f"CONSUMER.DELETE.{stream}.{name}"))
        # A durable one is the position: until it is recreated, a killed sidecar has none.
        if name.startswith("chaos_"):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    while "config" not in (await self._peer.try_api(f"CONSUMER.INFO.{stream}.{name}") or {}):
                        await asyncio.sleep(0.05)
        return f"{stream} {name} {deleted}"

    async def _fill(self, fault: Fault) -> str:
        targets = [
            rule.target
            for rule in self._rules
            # Counters and schedules exclude `discard: new` (10052), and other streams make room themselves.
            if rule.promise == "exactly_once" and STREAMS[rule.target].keys() == {"subjects"}
        ]
        if not targets:
            return "there is none"
        stream = drawn(targets, fault.draw)
        config = self._surroundings.stream_config(stream, STREAMS[stream])
        before = await self._peer.state(stream)
        limit = int(before["messages"]) + _ROOM
        full = {**config, "max_msgs": limit, "discard": "new"}
        said = _said(await self._peer.try_api(f"STREAM.UPDATE.{stream}", full))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FILLING):
                while int((await self._peer.state(stream))["messages"]) < limit:
                    await asyncio.sleep(0.05)
        await asyncio.sleep(fault.hold)
        await self._peer.api(f"STREAM.UPDATE.{stream}", config)
        if int((await self._peer.state(stream))["first_seq"]) > max(int(before["first_seq"]), 1):
            # Old servers remove the oldest where more were stored before the update came into force.
            self._historian.record("trimmed", stream=stream)
        return f"{stream} {said} for {fault.hold} s"

    async def _delete_messages(self, fault: Fault) -> str:
        stream = drawn(["ORDERS", "LEGACY"], fault.draw)
        state = await self._peer.state(stream)
        last, first = int(state["last_seq"]), int(state["first_seq"])
        deleted = []
        # Of the newest, which may not have been read yet, and of old ones.
        for sequence in (last, last - 1, last - 7, last - 50, (first + last) // 2):
            if sequence >= max(first, 1):
                self._historian.record("removing", stream=stream, sequences=[sequence])
                await self._peer.try_api(f"STREAM.MSG.DELETE.{stream}", {"seq": sequence})
                deleted.append(sequence)
        return f"{stream} {deleted}"

    async def _purge(self, fault: Fault) -> str:
        stream = drawn(["ORDERS", "LEGACY"], fault.draw)
        state = await self._peer.state(stream)
        # Its older half: a purge of unread messages is a loss that no rule could prevent.
        through = (int(state["first_seq"]) + int(state["last_seq"])) // 2
        self._historian.record("removing", stream=stream, through=through)
        await self._peer.try_api(f"STREAM.PURGE.{stream}", {"seq": through + 1})
        return f"{stream} up to {through}"

    async def close(self) -> None:
        """Leave the servers."""
        await self._peer.drop()
        await self._system.drop()


def _said(answer: dict[str, Any] | None) -> str:
    if answer is None:
        return "(no answer)"
    return f"({answer['error'].get('description')})" if "error" in answer else "(done)"


def _flip(file: Path, place: int) -> None:
    """Flip all bits of a byte; a second time puts it back."""
    with file.open("r+b") as opened:
        opened.seek(place)
        found = opened.read(1)
        opened.seek(place)
        opened.write(bytes(each ^ 0xFF for each in found))
