"""What a run shows of the rules' promises, collected while it happens, and the judgement at its end.

The judge of `tests.chaos` reads the history. Promises that only a simulation can observe are checked here.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

from nats_bridge.settings import Settings
from nats_conformance.catalogue.case import Message
from nats_transforms.timestamp import nanoseconds_of
from tests.chaos.checker import judge
from tests.chaos.findings import Finding
from tests.chaos.history import Event
from tests.chaos.plan import RuleUnderTest
from tests.chaos.story import Story
from tests.chaos.workload import row_of
from tests.simulation.process import SidecarProcess, counters_of
from tests.simulation.streams import KeptStream
from tests.simulation.world import BEGAN_NS, World

REMOVALS = {"messages deleted", "source purged"}
_CALM = 1.0  # seconds after a disturbance until the sidecar receives every report of a removal
_NOTICED = 20.0  # seconds after which a reader has noticed at the latest that its stream has lost its end
_DISTURBED = re.compile(r"(?:connection|leadership|reader|sidecar)\.|rule\.(?:ready|stopped)$")  # what it logs then
_ADDED = re.compile(rb"\r\nNats-Sequence: (\d+)\r\nNats-Time-Stamp: (\S+)\r\nNats-Last-Sequence: (\d+)\r\n")
_DELIVERED = re.compile(rb" \$JS\.ACK\.\w+\.chaos_(\S+?)\.1\.(\d+)\.")  # by the durable consumer of a rule
_PROBE = b"Nats-Expected-Last-Sequence: %d\r\n" % (2**63 - 1)  # what a stream must refuse, and stores nothing of


class Judging:
    """Collects what a run shows.

    Args:
        stream: returns a stream by its name.
        is_whole: returns whether every connection works at both ends.

    Attributes:
        history: for the judge of `tests.chaos`.
        violations: broken promises.
        newest: the newest sequence that the witness has received, by rule.
    """

    def __init__(
        self,
        world: World,
        rules: Sequence[RuleUnderTest],
        settings: Settings,
        stream: Callable[[str], KeptStream],
        is_whole: Callable[[], bool],
    ) -> None:
        self.history: list[Event] = []
        self.violations: list[str] = []
        self.newest: dict[str, int] = {}
        self._world, self._rules, self._settings, self._stream = world, rules, settings, stream
        self._is_whole = is_whole
        self._unproven: dict[str, int] = {}  # up to which sequence a rule may skip messages, and has reported it
        self._elections: list[float] = []  # when a stream lost its end, while the connections stay
        self._arrived: dict[str, set[int]] = {}  # sequences that the witness has received, by rule
        self._read: dict[tuple[int, str], set[int]] = {}  # sequences that a process has read in a run of a rule
        self._cut: dict[tuple[int, str], set[int]] = {}  # the same, of runs that have lost their lead, and must count
        self._counted: list[tuple[str, set[int], int]] = []  # the same, and the number that the run has counted
        self._removed: dict[str, dict[int, float]] = {}  # when the run removed a sequence, by stream
        self._wrong: dict[str, dict[float, str]] = {}  # a value of Nats-Last-Sequence, by rule and time of the removal
        self._disturbances, self._calm_since = 0, 0.0  # faults that last, and the end of the last one
        # Which rule publishes what begins like this.
        self._writers = {(rule.target.lower() or rule.name).encode(): rule.name for rule in rules}

    def record(self, event: str, **members: Any) -> None:
        self.history.append({"t": round(self._world.now, 6), "event": event, **members})
        if event in ("fault", "sidecar"):
            self._world.record(f"{event} {members.get('kind') or members.get('what')} {members.get('phase', '')}")

    def look(self, process: SidecarProcess) -> None:
        """Note what the sidecar counts."""
        if process.sidecar is None:
            return
        failed = [each for each in process.sidecar.supervisors if each.state == "failed"]
        errors = {each.rule.name: str(each.error or each.failure) for each in failed}
        state = {"ready": process.is_ready, "errors": errors, "rules": counters_of(process.sidecar)}
        self.record("status", replica=process.number, pid=process.id, **state)

    def fault_begins(self, number: int, kind: str) -> None:
        self.record("fault", number=number, kind=kind.partition(" of ")[0], phase="begin")
        self._disturbances += kind not in REMOVALS
        if kind == "power cut of a stream":
            self._elections.append(self._world.now)

    def fault_ends(self, number: int, kind: str) -> None:
        self.record("fault", number=number, kind=kind.partition(" of ")[0], phase="end")
        if kind not in REMOVALS:
            self._disturbances, self._calm_since = self._disturbances - 1, self._world.now

    def removes(self, place: str, removed: Sequence[int], **recorded: Any) -> None:
        """Note that messages are about to be removed."""
        self.record("removing", stream=place, **recorded)
        is_reported = not self._disturbances and self._is_whole()
        self._removed.setdefault(place, {}).update(dict.fromkeys(removed, self._world.now if is_reported else 0.0))

    def logged(self, event: MutableMapping[str, Any], process: SidecarProcess) -> None:
        """Note what a sidecar logs."""
        name, rule = event["event"], event.get("rule")
        if name == "rule.failed" and event.get("exc_info") is not None:
            self.violations.append(f"rule {rule}: {event['exc_info']!r}")
        elif name == "connection.lost" and "protocol error" in str(event.get("reason")):
            self.violations.append(f"sidecar{process.number}: cannot read an answer at {self._world.now:.3f} s")
        elif name == "rule.position_unproven":
            self._unproven[event["rule"]] = max(event["after"], self._unproven.get(event["rule"], 0))
        elif name in ("rule.lead_lost", "rule.ended_at_once", "rule.stopped"):
            self._run_ends(event, (process.id, event["rule"]))
        elif name == "sidecar.ready":
            self.record("sidecar", replica=process.number, pid=process.id, what="ready")
        if _DISTURBED.match(name):
            self._calm_since = self._world.now

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

    def published(self, leases: KeptStream | None, process: str, message: Message) -> None:
        """Check that only the holder of a rule's lease publishes for it."""
        name = self._writers.get(message.subject.split(b".", 1)[0])
        if leases is None or name is None or _PROBE in message.header_block:
            return
        newest = leases.model.newest(f"$KV.{leases.name[3:]}.lease.{self._settings.name}.{name}".encode())
        lease = leases.model.messages[newest].message.payload if newest else b""
        holder = str(json.loads(lease)["holder"]) if lease else process
        if not holder.startswith(process):
            at = f"at {self._world.now:.3f} s"
            self.violations.append(f"{name}: two writers {at}: {process}, and {holder} has the lease")

    def received(self, name: str, message: Message) -> None:
        """Note a message that the witness receives."""
        self.record("received", name=name, rows=[row_of(message)])
        if found := _ADDED.search(message.header_block):
            sequence = self.newest[name] = int(found[1])
            self._arrived.setdefault(name, set()).add(sequence)
            self._compare_last(name, sequence, nanoseconds_of(found[2].decode()), int(found[3]))

    def _compare_last(self, name: str, sequence: int, time_ns: int, last: int) -> None:
        """Compare `Nats-Last-Sequence` with a server's, if no fault can have hidden a removal from the sidecar."""
        stream = self._stream(next(rule.sources[0] for rule in self._rules if rule.name == name))
        assert stream.predecessors is not None
        native, removed = stream.predecessors.get(time_ns, last), self._removed.get(stream.name, {})
        stored, calm_since = (time_ns - BEGAN_NS) / 1e9, self._calm_since + _CALM
        removed_at = removed.get(last, max(removed.values(), default=0.0))
        if last != native and not self._disturbances and min(stored, removed_at) > calm_since:
            wrong = f"{stream.name} {sequence}: last sequence {last}, not {native}"
            self._wrong.setdefault(name, {}).setdefault(removed_at, f"at {self._world.now:.3f} s: {wrong}")

    def judge(self, kinds: set[str]) -> None:
        """Judge the run, in which faults of these kinds happened."""
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
        story = Story.of(self.history)
        if not {"power cut", "power cut of a stream"} & kinds:
            self._judge_cut_runs(story)
        for judgement in judge(story, self._rules):
            copies_lost = any(each.what == "invented" and "was lost" in each.detail for each in judgement.findings)
            if copies_lost and not totals[judgement.rule]["shorter_streams"]:
                self.violations.append(f"{judgement.rule}: the lost end of a source is not counted")
            for finding in judgement.violations:
                if not self._is_excused(judgement.rule, judgement.promise, finding, kinds):
                    at = "" if finding.at is None else f" at {finding.at:.3f} s"
                    self.violations.append(f"{judgement.rule}: {finding.what}{at}: {finding.detail}")

    def _is_excused(self, rule: str, promise: str, finding: Finding, kinds: set[str]) -> bool:
        if finding.what == "lost":
            sequence = int(re.findall(r"\d+", finding.detail)[0])
            return sequence <= self._unproven.get(rule, 0)
        # Until the reader compares, deliveries go on behind messages that a new leader has stored under read sequences.
        is_late = any(0.0 <= (finding.at or 0.0) - began <= _NOTICED for began in self._elections)
        if is_late and (promise == "at_least_once" or finding.what == "wrong headers"):
            return True
        # The process that ends reads again what its successor has passed.
        return finding.what == "reordered" and promise == "at_most_once" and "sidecar replaced" in kinds

    def _judge_cut_runs(self, story: Story) -> None:
        """A run of at_most_once that loses its lead counts everything that it has read, and that nobody publishes."""
        for rule in (each for each in self._rules if each.promise == "at_most_once"):
            source, arrived = rule.sources[0], self._arrived.get(rule.name, set())
            for read, counted in (each[1:] for each in self._counted if each[0] == rule.name):
                left = [at for at in read - arrived if at in story.final[source] and not story.was_removed(source, at)]
                if len(left) > counted:
                    lost = f"{source} {sorted(left)[:9]}, {counted} counted"
                    self.violations.append(f"{rule.name}: lost with the lead, and not counted: {lost}")
