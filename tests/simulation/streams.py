"""Streams as a simulated server keeps them: the suite's model, with a window for ids, and what a crash leaves."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from nats_conformance.catalogue.case import Message
from nats_conformance.implementations.stream_model import StreamModel, header
from nats_conformance.observation import Stored
from nats_transforms.subject import matches
from nats_transforms.timestamp import rfc3339_nano

if TYPE_CHECKING:
    from tests.simulation.consumers import PushConsumer

_MESSAGE_ID = b"Nats-Msg-Id"
_NO_TIME = "0001-01-01T00:00:00Z"


class KeptStream:
    """One stream, and its consumers."""

    def __init__(self, config: Mapping[str, Any], created_ns: int) -> None:
        self.model = StreamModel(config, b"")
        self.shown_created_ns = created_ns  # the creation time that the server reports
        self.consumers: dict[str, PushConsumer] = {}
        self.changes = 0  # messages stored or removed
        self.last_ns = 0
        self.has_leader = True
        self.predecessors: dict[int, int] | None = None  # of each message's subject, by the message's time, if wanted
        self._history: list[tuple[int, int]] = []  # when each sequence was stored
        self._ids: deque[tuple[int, bytes]] = deque()

    @property
    def name(self) -> str:
        return str(self.model.config["name"])

    def take(self, message: Message, now_ns: int) -> Stored | int:
        """Store a message, or return the sequence of the one with its id. Raise `Refused` if the stream refuses it."""
        model = self.model
        window = int(model.config.get("duplicate_window") or 0)
        while self._ids and self._ids[0][0] <= now_ns - window:
            model.ids.pop(self._ids.popleft()[1], None)
        if known := model.check(message):
            return known
        if self.predecessors is not None:
            self.predecessors[now_ns] = model.newest(message.subject)
        stored = model.store(message, now_ns)
        self._note(stored)
        return stored

    def _note(self, stored: Stored) -> None:
        self.changes, self.last_ns = self.changes + 1, stored.time_ns
        self._history.append((stored.time_ns, stored.sequence))
        if message_id := header(stored.message.header_block, _MESSAGE_ID):
            self._ids.append((stored.time_ns, message_id))

    def delete(self, sequence: int) -> bool:
        self.changes += 1
        return self.model.delete(sequence)

    def purge(self, request: Mapping[str, Any]) -> int:
        before = len(self.model.messages)
        last = self.model.last_sequence
        self.model.purge(request)
        if request.get("seq") and not request.get("filter") and request["seq"] > last + 1 and not self.model.messages:
            self.model.last_sequence = request["seq"] - 1  # the next message gets that sequence
        self.changes += 1
        return before - len(self.model.messages)

    @property
    def times(self) -> list[int]:
        """When each message was stored, in nanoseconds since 1970."""
        return [time_ns for time_ns, _ in self._history]

    def lose_since(self, time_ns: int) -> None:
        """Lose everything stored since a time, as after a power cut."""
        model = self.model
        while self._history and self._history[-1][0] > time_ns:
            model.messages.pop(self._history.pop()[1], None)
        self.last_ns, model.last_sequence = self._history[-1] if self._history else (0, 0)
        self.changes += 1

    def reopen(self, now_ns: int) -> None:
        """Read the ids again, as a server does when it starts."""
        for _, message_id in self._ids:
            self.model.ids.pop(message_id, None)
        self._ids.clear()
        window = int(self.model.config.get("duplicate_window") or 0)
        for stored in self.model.messages.values():
            message_id = header(stored.message.header_block, _MESSAGE_ID)
            if message_id and stored.time_ns > now_ns - window:
                self._ids.append((stored.time_ns, message_id))
                self.model.ids[message_id] = stored.sequence

    @property
    def first(self) -> int:
        return next(iter(self.model.messages), self.model.last_sequence + 1)

    def state(self, subjects: str | None = None) -> dict[str, Any]:
        messages, last, first = self.model.messages, self.model.last_sequence, self.first
        removed = (last - first + 1) - len(messages)
        size = sum(len(each.message.payload) + 60 for each in messages.values())
        first_ts = rfc3339_nano(messages[first].time_ns).decode() if messages else _NO_TIME
        last_ts = rfc3339_nano(self.last_ns).decode() if self.last_ns else _NO_TIME
        state: dict[str, Any] = {"messages": len(messages), "bytes": size, "first_seq": first if last else 0}
        state |= {"first_ts": first_ts, "last_seq": last, "last_ts": last_ts}
        subjects_held = len({each.message.subject for each in messages.values()})
        state |= {"num_subjects": subjects_held, "consumer_count": len(self.consumers)}
        if removed:
            state["num_deleted"] = removed
        if subjects is not None:
            found = filter(selector(subjects), (each.message.subject for each in messages.values()))
            state["subjects"] = dict(Counter(subject.decode() for subject in found))
        return state

    def info(self, now_ns: int, body: Mapping[str, Any]) -> dict[str, Any]:
        created, now = rfc3339_nano(self.shown_created_ns).decode(), rfc3339_nano(now_ns).decode()
        state = self.state(body.get("subjects_filter"))
        return {"config": dict(self.model.config), "created": created, "state": state, "ts": now}


def selector(*patterns: str) -> Callable[[bytes], bool]:
    """Return a check whether a subject matches one of some filters. Without filters, every subject does."""
    wanted = [pattern.encode() for pattern in patterns]
    if not wanted or b">" in wanted:
        return lambda _: True
    if any(b"*" in each or b">" in each for each in wanted):
        return lambda subject: any(subject == each or matches(subject, each) for each in wanted)
    return frozenset(wanted).__contains__
