"""The events of a run, from its history: what was sent, stored, received, removed, and the disturbances."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import accumulate
from typing import Any

from tests.chaos.findings import Verdict
from tests.chaos.history import ADVISORIES, Event
from tests.chaos.plan import EXPIRING, LEASED, SCHEDULED


@dataclass(frozen=True, slots=True)
class Original:
    """A message as it was sent, or stands in a stream; texts are latin-1, the payload is its size and digest."""

    subject: str
    block: str
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class Stored:
    """A message in a stream at the end."""

    sequence: int
    time_ns: int
    message: Original


@dataclass(frozen=True, slots=True)
class Received:
    """A message that a subscriber received, and when (seconds)."""

    at: float
    message: Original


@dataclass(frozen=True, slots=True)
class Advised:
    """An advisory that the run itself received."""

    at: float
    id: str
    stream: str
    sequence: int


@dataclass(frozen=True, slots=True)
class Disturbance:
    """Something that can excuse what a promise allows, from when until when (seconds).

    Attributes:
        kind: the fault's, or `sidecar ended`.
        crash: a sidecar ended with messages in flight.
    """

    kind: str
    begin: float
    end: float
    crash: bool = False

    def meets(self, begin: float, end: float) -> bool:
        """Whether it overlaps this interval."""
        return self.begin <= end and self.end >= begin


@dataclass(slots=True)
class Story:
    """The whole story.

    Attributes:
        run: seed, version, topology and the rest of the first line.
        sent: per place, messages by number.
        sent_at: per place, when each number was sent and answered; no second time without an answer.
        acknowledged: per place, the stream's sequence by number.
        removed: per stream, sequences that the run removed, or tried to.
        purged: per stream, through which sequence.
        trimmed: targets whose server removed copies when it got a limit.
        marked: per stream, the newest delete marker of each subject, and when it was seen.
        damaged: streams in whose files the run has flipped bits.
        power_cuts: from when on the servers forgot everything, and when they did (seconds).
        final: per stream, what it held at the end, by sequence.
        received: per listener, in order of arrival.
        advised: advisories received by the run.
        disturbances: faults, and every end of a sidecar.
        in_doubt: per rule, the sum of the counters of messages that it may have lost.
        out_of_order: per rule, the sum of the counter of that name.
        ended_badly: unrequested ends of a sidecar, and failures of a rule, with the reason.
        refused: requests of sidecars that the servers refused, as these say it.
        unsettled: what was still waited for at the end; empty if the run came to rest.
    """

    run: dict[str, Any] = field(default_factory=dict)
    sent: dict[str, dict[int, Original]] = field(default_factory=lambda: defaultdict(dict))
    sent_at: dict[str, dict[int, tuple[float, float | None]]] = field(default_factory=lambda: defaultdict(dict))
    acknowledged: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    removed: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    purged: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    trimmed: set[str] = field(default_factory=set)
    marked: dict[str, dict[str, tuple[int, float]]] = field(default_factory=lambda: defaultdict(dict))
    damaged: set[str] = field(default_factory=set)
    power_cuts: list[tuple[float, float]] = field(default_factory=list)
    final: dict[str, dict[int, Stored]] = field(default_factory=lambda: defaultdict(dict))
    received: dict[str, list[Received]] = field(default_factory=lambda: defaultdict(list))
    advised: list[Advised] = field(default_factory=list)
    disturbances: list[Disturbance] = field(default_factory=list)
    in_doubt: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    out_of_order: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    ended_badly: list[tuple[float, str]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    unsettled: list[str] = field(default_factory=list)
    end: float = 0.0
    _versions: dict[tuple[str, int], list[Original]] = field(default_factory=dict)
    _lowest: dict[str, tuple[list[float], list[int], list[int]]] = field(default_factory=dict)

    @classmethod
    def of(cls, events: Iterable[Event]) -> Story:
        """Read a history."""
        reader = _Reader(cls())
        for event in events:
            reader.read(event)
        return reader.finished()

    def was_removed(self, stream: str, sequence: int) -> bool:
        """Whether the run removed this message of a stream, or tried to."""
        return 0 < sequence <= self.purged[stream] or sequence in self.removed[stream]

    def removed_behind(self, stream: str, sequence: int, begin: float, end: float) -> bool:
        """Whether the run removed a later message of a stream in a stretch of time, or tried to."""
        later = any(removed > sequence for removed in self.removed[stream]) or self.purged[stream] > sequence
        return later and any(each.kind in _REMOVALS and each.meets(begin, end) for each in self.disturbances)

    def originals(self, stream: str) -> dict[int, Original]:
        """Every message that a stream is known to have held, by sequence; also removed ones."""
        sent = self.sent[stream]
        known = {sequence: sent[number] for number, sequence in self.acknowledged[stream].items()}
        return known | {sequence: stored.message for sequence, stored in self.final[stream].items()}

    def versions(self, stream: str, sequence: int) -> list[Original]:
        """The messages that had a sequence of a stream; the last one has it now, those before were lost with power."""
        if not self._versions:
            for name, numbers in self.acknowledged.items():
                for number, at in sorted(numbers.items()):
                    self._versions.setdefault((name, at), []).append(self.sent[name][number])
        there = list(self._versions.get((stream, sequence), ()))
        stored = self.final[stream].get(sequence)
        if stored is not None:
            there = [each for each in there if each != stored.message] + [stored.message]
        return there

    def remembered(self, place: str) -> dict[int, int]:
        """The sequences of acknowledged messages, by number, without those that a server lost."""
        return {number: at for number, at in self.acknowledged[place].items() if not self._forgotten(place, number)}

    def _forgotten(self, place: str, number: int) -> bool:
        """Whether a server lost a message that it had acknowledged: a later one has its sequence, or one before."""
        sent, answered = self.sent_at[place][number]
        if answered is None:
            return False
        if any(sent <= at and answered >= since for since, at in self.power_cuts):
            return True
        begins, sequences, lowest = self._followers(place)
        sequence = self.acknowledged[place][number]
        for later in range(bisect_left(begins, answered), len(begins)):
            if lowest[later] > sequence:
                break
            if sequences[later] <= sequence:
                return any(each.kind in FORGETFUL and each.meets(answered, begins[later]) for each in self.disturbances)
        return False

    def lost_tail(self, stream: str, place: str = "") -> bool:
        """Whether the servers, killed, lost messages of a stream that they had acknowledged: not a sidecar's doing."""
        passing = stream in EXPIRING | SCHEDULED
        return any(each.kind in FORGETFUL for each in self.disturbances) and any(
            sequence not in self.final[stream]
            and not self.was_removed(stream, sequence)
            and not (stream == LEASED or (passing and _EXPIRING.search(self.sent[stream][number].block)))
            for number, sequence in self.acknowledged[place or stream].items()
        )

    def unless_taken_back(self, stream: str, sequence: int) -> Verdict:
        """Of a message that only the stream can have known, as an answer was lost: it may be removed or lost since."""
        return "unknown" if self.was_removed(stream, sequence) or self.lost_tail(stream) else "violation"

    def when(self, stored: Stored) -> float:
        """When a message was stored, as seconds of the run."""
        return round(stored.time_ns / 1e9 - float(self.run.get("began", 0)), 3)

    def set_backs(self, place: str) -> list[float]:
        """When the first message was sent after each time that a stream had lost its end."""
        times, highest = [], 0
        answers: list[tuple[float, int]] = []  # of the messages sent so far, by time
        for number, sequence in sorted(self.acknowledged[place].items()):
            sent, answered = self.sent_at[place][number]
            while answers and answers[0][0] <= sent:
                highest = max(highest, heappop(answers)[1])
            if sequence <= highest:
                times.append(sent)
                highest = sequence
            if answered is not None:
                heappush(answers, (answered, sequence))
        return times

    def _followers(self, place: str) -> tuple[list[float], list[int], list[int]]:
        """When acknowledged messages were sent, in order; their sequences, and the lowest from each one on."""
        if place not in self._lowest:
            sent = sorted((self.sent_at[place][number][0], at) for number, at in self.acknowledged[place].items())
            sequences = [sequence for _, sequence in sent]
            lowest = list(accumulate(reversed(sequences), min))[::-1]
            self._lowest[place] = [at for at, _ in sent], sequences, lowest
        return self._lowest[place]

    def set_back(self, begin: float, end: float) -> bool:
        """Whether servers forgot what they had in a stretch of time, and a sidecar began again with their positions.

        Among replicas, another one can begin with them although none has ended.
        """
        shared = int(self.run.get("replicas", 1)) > 1
        return any(
            begin <= at <= end
            and (
                any(each.kind in _ENDS and each.meets(since, end) for each in self.disturbances)
                or (shared and self.broken(since, end))
            )
            for since, at in self.power_cuts
        )

    def position_lost(self, sent: float, again: float) -> bool:
        """Whether a server may have forgotten that it sent a message, and no sidecar remembered it.

        A server writes the position of a consumer late, so a killed one begins again before its last messages. A
        sidecar that survives leaves them out. One that is killed before the server is back cannot
        (docs/fault-reference.md).
        """
        return any(
            kill.kind in _KILLS
            and kill.begin - _UNWRITTEN <= sent <= kill.begin + _NETWORK
            and kill.begin < again
            and any(end.crash and end.meets(kill.begin - _UNWRITTEN, kill.end) for end in self.disturbances)
            for kill in self.disturbances
        )

    def crashed(self, begin: float, end: float) -> bool:
        """Whether a sidecar crashed in a stretch of time, or another may have taken over its messages in flight.

        One that is stopped while its server is down cannot ask for messages in flight (`rule.drain_incomplete`).
        A replica that loses its lease, paused or cut off, is not allowed to publish what it had received.
        """
        if int(self.run.get("replicas", 1)) > 1:
            return self.broken(begin, end)
        return any(
            (each.crash or (each.kind == CLEAN_STOP and self.broken(each.begin, each.end))) and each.meets(begin, end)
            for each in self.disturbances
        )

    def broken(self, begin: float, end: float) -> bool:
        """Whether a sidecar crashed, or a connection or a server failed, in a stretch of time."""
        return any(each.kind not in _HARMLESS and each.meets(begin, end) for each in self.disturbances)


FORGETFUL = ("server killed", "all servers killed", "power cut", "bits flipped", "disk full")
"""Faults after which a server may lack messages that it has acknowledged."""
CLEAN_STOP = "sidecar stopped"
_ENDED = "sidecar ended"
_EXPIRING = re.compile(r"\r\n(?:Nats-TTL: [0-9]|Nats-Schedule: )")
_ENDS = {CLEAN_STOP, _ENDED}
_KILLS = {"server killed", "all servers killed"}
_UNWRITTEN = 2.0  # seconds until a server has certainly written a position, at any load
_NETWORK = 0.5  # seconds by which a message may arrive after its server was killed
_REMOVALS = {"messages deleted", "source purged"}
_HARMLESS = {
    CLEAN_STOP,
    "sidecar restarted",
    "configuration reloaded",
    "sidecar's clock stepped",
    "target full",
    *_REMOVALS,
}
"""What excuses nothing: a rule has to get over it without losing or doubling."""
_DOUBTS = ("in_doubt", "lost")


class _Reader:
    def __init__(self, story: Story) -> None:
        self._story = story
        self._faults: dict[int, tuple[str, float]] = {}
        self._down: dict[int, float] = {}
        self._away: dict[int, float] = {}
        self._counters: dict[tuple[int, str], dict[str, int]] = {}
        self._reported: dict[int, float] = {}  # when each process last reported its counters
        self._errors: dict[int, dict[str, str]] = {}  # of failed rules, as each process last reported them

    def read(self, event: Event) -> None:
        story, at = self._story, float(event["t"])
        story.end = at
        match event["event"]:
            case "run":
                story.run = event
            case "sent":
                for number, *row in event["rows"]:
                    story.sent[event["to"]][number] = Original(*row)
                    story.sent_at[event["to"]][number] = (at, None)
            case "stored":
                for number, sequence in event["rows"]:
                    story.acknowledged[event["to"]][number] = sequence
                    story.sent_at[event["to"]][number] = (story.sent_at[event["to"]][number][0], at)
            case "received":
                self._received(at, event)
            case "removing":
                story.removed[event["stream"]].update(event.get("sequences", ()))
                story.purged[event["stream"]] = max(story.purged[event["stream"]], event.get("through", 0))
            case "marked":
                for sequence, subject in event["rows"]:
                    story.marked[event["stream"]][subject] = (sequence, at)
            case "forgotten":
                story.power_cuts.append((event["since"], at))
            case "damaged":
                story.damaged.add(event["stream"])
            case "trimmed":
                story.trimmed.add(event["stream"])
            case "fault":
                self._fault(at, event)
            case "sidecar":
                self._sidecar(at, event)
            case "status":
                self._status(at, event)
            case "again":
                story.final.pop(event["stream"], None)
            case "final":
                for sequence, time_ns, *row in event["rows"]:
                    story.final[event["stream"]][sequence] = Stored(sequence, time_ns, Original(*row))
            case "settled":
                story.unsettled = list(event["waiting"])
            case "refused":
                story.refused.append(event["text"])

    def finished(self) -> Story:
        story = self._story
        for kind, begin in self._faults.values():
            story.disturbances.append(Disturbance(kind, begin, story.end))
        for begin in self._down.values():
            story.disturbances.append(Disturbance(_ENDED, begin, story.end, crash=True))
        for (_, rule), counters in self._counters.items():
            story.in_doubt[rule] += sum(counters.get(name, 0) for name in _DOUBTS)
            story.out_of_order[rule] += counters.get("out_of_order", 0)
        return story

    def _received(self, at: float, event: Event) -> None:
        if event["name"] != ADVISORIES:
            self._story.received[event["name"]] += [Received(at, Original(*row)) for row in event["rows"]]
            return
        for row in event["rows"]:
            reported = json.loads(row[4])
            self._story.advised.append(Advised(at, reported["id"], reported["stream"], reported["stream_seq"]))

    def _fault(self, at: float, event: Event) -> None:
        if event["phase"] == "begin":
            self._faults[event["number"]] = (event["kind"], at)
        elif event["phase"] == "end":
            kind, begin = self._faults.pop(event["number"])
            self._story.disturbances.append(Disturbance(kind, begin, at))

    def _status(self, at: float, event: Event) -> None:
        """Connections can be lost without a fault, too: where the machine stands still, a lease runs out."""
        pid = event["pid"]
        errors = event.get("errors", {})
        for rule in errors.keys() - self._errors.get(pid, {}).keys():
            self._story.ended_badly.append((at, f"rule {rule} failed: {errors[rule]}"))
        self._errors[pid] = errors
        for rule, counters in event["rules"].items():
            before = self._counters.get((pid, rule), {})
            if counters.get("reconnects", 0) > before.get("reconnects", 0):
                self._story.disturbances.append(Disturbance("connection lost", self._reported.get(pid, at), at))
            self._counters[pid, rule] = counters
        self._reported[pid] = at

    def _sidecar(self, at: float, event: Event) -> None:
        replica, pid = event["replica"], event["pid"]
        match event["what"]:
            case "killed":
                self._down.setdefault(replica, at)
            case "ended":
                last = event["last"]
                for rule, counters in last["counters"].items():
                    self._counters[pid, rule] = counters
                if event["expected"] == "asked to stop" and event["code"] == 0:
                    # It has finished what was in flight; but until the next one is ready, none is subscribed.
                    self._away.setdefault(replica, at)
                    return
                self._down.setdefault(replica, at)
                if not event["expected"]:
                    self._story.ended_badly.append((at, f"exit code {event['code']}: {last['error']}"))
            case "ready":
                if replica in self._away:
                    self._story.disturbances.append(Disturbance(CLEAN_STOP, self._away.pop(replica), at))
                if replica in self._down:
                    begin = self._down.pop(replica)
                    self._story.disturbances.append(Disturbance(_ENDED, begin, at, crash=True))
