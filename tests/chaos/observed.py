"""Promises that the history of a run does not show, but an observer of everything in it, such as a simulation.

The observer notes what processes read, log and count, when it removes messages, and what a server would have written.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from typing import Any

from tests.chaos.checker import judge
from tests.chaos.findings import Finding
from tests.chaos.history import Event
from tests.chaos.plan import RuleUnderTest
from tests.chaos.story import Story

REMOVALS = {"messages deleted", "source purged"}
ELECTION = "power cut of a stream"
"""A fault in which a stream loses its end, while the connections stay."""
_CALM = 1.0  # seconds after a disturbance until the sidecar receives every report of a removal
_REPORTED = 0.6  # seconds after a removal until its report has arrived at the latest
_NOTICED = 20.0  # seconds after which a reader has noticed at the latest that its stream has lost its end
_OVERLAP = 11.0  # seconds in which two processes can run next to each other
_DISTURBED = re.compile(r"(?:connection|leadership|reader|sidecar)\.|rule\.(?:ready|stopped)$")  # what it logs then
_DELIVERED = re.compile(rb" \$JS\.ACK\.\w+\.chaos_(\S+?)\.1\.(\d+)\.")  # by the durable consumer of a rule


class Observed:
    """Notes of an observer of one run, and the promises that they show to be broken.

    Args:
        now: returns the second of the run.

    Attributes:
        violations: broken promises.
        overlaps: when a process began next to the one that it replaces, without leases.
    """

    def __init__(self, rules: Sequence[RuleUnderTest], now: Callable[[], float]) -> None:
        self.violations: list[str] = []
        self.overlaps: list[float] = []
        self._rules, self._now = rules, now
        self._unproven: dict[str, int] = {}  # up to which sequence a rule may skip messages, and has reported it
        self._elections: list[float] = []
        self._arrived: dict[str, set[int]] = {}  # published sequences, by rule
        self._read: dict[tuple[int, str], set[int]] = {}  # sequences that a process has read in a run of a rule
        self._cut: dict[tuple[int, str], set[int]] = {}  # the same, of runs that have lost their lead, and must count
        self._counted: list[tuple[str, set[int], int]] = []  # the same, and the number that the run has counted
        self._removed: dict[str, dict[int, float]] = {}  # when the run removed a sequence, by stream
        self._wrong: dict[str, dict[float, str]] = {}  # a value of Nats-Last-Sequence, by rule and time of the removal
        self._disturbances, self._calm_since = 0, 0.0  # faults that last, and the end of the last one

    def fault(self, kind: str, *, begins: bool) -> None:
        """Note that a fault begins or ends."""
        if begins and kind == ELECTION:
            self._elections.append(self._now())
        if kind not in REMOVALS:
            self._disturbances += 1 if begins else -1
            self._disturbed()

    def _disturbed(self) -> None:
        """Note that reports of removals are lost now, so nobody can count these."""
        now = self._calm_since = self._now()
        for rule, wrong in self._wrong.items():
            self._wrong[rule] = {at: text for at, text in wrong.items() if at < now - _REPORTED}

    def removed(self, stream: str, sequences: Iterable[int], *, is_reported: bool) -> None:
        """Note that the run removes messages, and whether every process can receive the report."""
        at = self._now() if is_reported and not self._disturbances else 0.0
        self._removed.setdefault(stream, {}).update(dict.fromkeys(sequences, at))

    def logged(self, event: MutableMapping[str, Any], pid: int) -> None:
        """Note what a process logs."""
        name, rule = event["event"], event.get("rule", "")
        if name == "rule.failed" and event.get("exc_info") is not None:
            self.violations.append(f"rule {rule}: {event['exc_info']!r}")
        elif name == "connection.lost" and "protocol error" in str(event.get("reason")):
            self.violations.append(f"process {pid}: cannot read an answer at {self._now():.3f} s")
        elif name == "rule.position_unproven":
            self._unproven[rule] = max(event["after"], self._unproven.get(rule, 0))
        elif name in ("rule.lead_lost", "rule.ended_at_once", "rule.stopped"):
            self._run_ends(event, (pid, rule))
        if _DISTURBED.match(name):
            self._disturbed()

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

    def published(self, rule: str, stream: str, sequence: int, stored: float, last: int, native: int) -> None:
        """Compare a published `Nats-Last-Sequence` with a server's, if no fault can have hidden a removal.

        Args:
            stored: when the stream stored the message, in seconds of the run.
            last: the value.
            native: the value that a server would have written.
        """
        self._arrived.setdefault(rule, set()).add(sequence)
        removed, calm_since = self._removed.get(stream, {}), self._calm_since + _CALM
        removed_at = removed.get(last, max(removed.values(), default=0.0))
        if last != native and not self._disturbances and min(stored, removed_at) > calm_since:
            wrong = f"at {self._now():.3f} s: {stream} {sequence}: last sequence {last}, not {native}"
            self._wrong.setdefault(rule, {}).setdefault(removed_at, wrong)

    def wrote(self, process: str, rule: str, lease: bytes) -> None:
        """Note that a process publishes for a rule with this lease, which must be its own."""
        holder = str(json.loads(lease)["holder"]) if lease else process
        if not holder.startswith(process):
            at = f"at {self._now():.3f} s"
            self.violations.append(f"{rule}: two writers {at}: {process}, and {holder} has the lease")

    def judge(self, history: Sequence[Event], kinds: set[str]) -> list[str]:
        """Return all broken promises of a run in which faults of these kinds happened."""
        newest: dict[tuple[int, str], dict[str, int]] = {}  # the newest counters of each process and rule
        for event in history:
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
        story = Story.of(history)
        if not {"power cut", ELECTION} & kinds:
            self._judge_cut_runs(story)
        for judgement in judge(story, self._rules):
            copies_lost = any(each.what == "invented" and "was lost" in each.detail for each in judgement.findings)
            if copies_lost and not totals[judgement.rule]["shorter_streams"]:
                self.violations.append(f"{judgement.rule}: the lost end of a source is not counted")
            for finding in judgement.violations:
                if not self._is_excused(judgement.rule, judgement.promise, finding, kinds):
                    at = "" if finding.at is None else f" at {finding.at:.3f} s"
                    self.violations.append(f"{judgement.rule}: {finding.what}{at}: {finding.detail}")
        return self.violations

    def _is_excused(self, rule: str, promise: str, finding: Finding, kinds: set[str]) -> bool:
        if finding.what == "lost":
            sequence = int(re.findall(r"\d+", finding.detail)[0])
            return sequence <= self._unproven.get(rule, 0)
        is_shared = any(0.0 <= (finding.at or 0.0) - began <= _OVERLAP for began in self.overlaps)
        if is_shared and finding.what == "duplicated" and promise == "at_least_once":
            return True
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
