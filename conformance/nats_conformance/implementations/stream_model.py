"""A stream as a server keeps it, in memory: sequences, times, limits, duplicates, rollups, removals, and its sources.

It only models features that affect republish and copies: no consumers, ages, TTLs, batches, counters and schedules, and
no native defects in the search for a last sequence. Cases about those need servers (`needs: [store]`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nats_conformance.catalogue.case import Json, Message, raw_of
from nats_conformance.observation import Stored
from nats_transforms.dialect import Dialect
from nats_transforms.header_block import START, remove
from nats_transforms.source_record import SourceRecord, first_record
from nats_transforms.subject import matches
from nats_transforms.timestamp import nanoseconds_of

_START_NS = 1_767_225_600_000_000_000
_STEP_NS = 250_000_000

_IN_MEMORY, _IN_FILE, _HEADERS_IN_FILE = 16, 30, 4
"""Bytes that a store adds to a message, for all of them and for one with headers."""

_REQUEST_INFO = b"Nats-Request-Info"
_CRLF = b"\r\n"


class Clock:
    """A clock that advances by a quarter of a second whenever it is read.

    Its times have fractions of no, one and two digits, so that an engine which writes them otherwise than servers do
    is found out.
    """

    def __init__(self) -> None:
        self._looks = 0

    def now(self) -> int:
        """Nanoseconds since 1970."""
        self._looks += 1
        return _START_NS + self._looks * _STEP_NS


class Refused(Exception):  # noqa: N818 - an answer, not an error
    """The stream refuses a message; contains the server's answer to the publisher."""

    def __init__(self, err_code: int, description: str) -> None:
        super().__init__(description)
        self.err_code = err_code
        self.description = description

    @property
    def ack(self) -> dict[str, Json]:
        """The refusal as the stream's answer."""
        return {"err_code": self.err_code, "description": self.description}


@dataclass(slots=True)
class StreamModel:
    """One stream.

    Attributes:
        config: as the engine gave it back, defaults filled in.
        identity: which stream of this name it is.
        messages: by sequence, in order.
        last_sequence: the sequence of the last stored message, even if it was removed.
        positions: the next sequence of each copied source, by the identity of the entry.
        ids: the sequence of the message with each id.
    """

    config: Mapping[str, Any]
    identity: bytes
    messages: dict[int, Stored] = field(default_factory=dict)
    last_sequence: int = 0
    positions: dict[str, int] = field(default_factory=dict)
    ids: dict[bytes, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.last_sequence = max((self.config.get("first_seq") or 0) - 1, 0)

    def takes(self, subject: bytes) -> bool:
        """Return whether messages published on a subject come into this stream."""
        return any(matches(subject, raw_of(each)) for each in self.config.get("subjects", ()))

    def newest(self, subject: bytes) -> int:
        """Return the sequence of the newest remaining message with this subject; 0 for none."""
        return next((at for at, each in reversed(self.messages.items()) if each.message.subject == subject), 0)

    def check(self, message: Message, *, is_copy: bool = False, takes_duplicates: bool = False) -> int:
        """Check a message as a stream does before it stores it, in a server's order.

        `is_copy`: a rollup that is not permitted is stored like any message. `takes_duplicates`: ids are ignored.
        Returns the sequence of a stored message with the same id, 0 for none. Duplicate windows are assumed to be
        longer than a case.

        Raises:
            Refused: the stream refuses it.
        """
        if self.config.get("sealed"):
            raise Refused(10109, "invalid operation on sealed stream")
        block = message.header_block
        expected = header(block, b"Nats-Expected-Stream")
        if expected and expected != self.config["name"].encode():
            raise Refused(10060, "expected stream does not match")
        known = self.ids.get(header(block, b"Nats-Msg-Id"), 0) if self.config.get("duplicate_window") else 0
        if known and not takes_duplicates:
            return known
        self._check_expectations(message)
        rollup = header(block, b"Nats-Rollup").lower()
        if rollup and not is_copy:
            if not self.config.get("allow_rollup_hdrs"):
                raise Refused(10111, "rollup not permitted")
            if rollup not in (b"sub", b"all"):
                raise Refused(10111, f'rollup value invalid: "{rollup.decode("utf-8", "replace")}"')
        if 0 < self._limit("max_msg_size") < len(block) + len(message.payload):
            raise Refused(10054, "message size exceeds maximum allowed")
        if self.config.get("discard") == "new":
            self._check_room(message)
        return 0

    def _check_expectations(self, message: Message) -> None:
        if b"\nNats-Expected-" not in message.header_block:
            return
        of_subject = header(message.header_block, b"Nats-Expected-Last-Subject-Sequence")
        of_stream = header(message.header_block, b"Nats-Expected-Last-Sequence")
        for expected, found in ((of_subject, self.newest(message.subject)), (of_stream, self.last_sequence)):
            if expected.isdigit() and int(expected) != found:
                raise Refused(10071, f"wrong last sequence: {found}")
        last_id = next(reversed(self.ids), b"")
        expected = header(message.header_block, b"Nats-Expected-Last-Msg-Id")
        if expected and expected != last_id:
            raise Refused(10070, f"wrong last msg ID: {last_id.decode('utf-8', 'replace')}")

    def _check_room(self, message: Message) -> None:
        subject = message.subject
        per_subject, most = self._limit("max_msgs_per_subject"), self._limit("max_msgs")
        is_full = 0 < per_subject <= sum(1 for each in self.messages.values() if each.message.subject == subject)
        if is_full and self.config.get("discard_new_per_subject"):
            raise Refused(10077, "maximum messages per subject exceeded")
        if 0 < most <= len(self.messages) and not is_full:
            raise Refused(10077, "maximum messages exceeded")
        if 0 < self._limit("max_bytes") < self._bytes() + self._size(message):
            raise Refused(10077, "maximum bytes exceeded")

    def store(self, message: Message, time_ns: int, sequence: int | None = None) -> Stored:
        """Store a message, with the next sequence if none is given, and remove the messages that it displaces."""
        self.last_sequence = self.last_sequence + 1 if sequence is None else sequence
        stored = Stored(message, self.last_sequence, time_ns)
        if self.config.get("retention") == "interest":
            return stored  # no case has a consumer, and without interest nothing is kept
        self.messages[self.last_sequence] = stored
        message_id = header(message.header_block, b"Nats-Msg-Id")
        if message_id:
            self.ids[message_id] = self.last_sequence
        rollup = header(message.header_block, b"Nats-Rollup").lower()
        if rollup and self.config.get("allow_rollup_hdrs"):
            self._roll_up(message.subject if rollup == b"sub" else None)
        self.enforce_limits()
        return stored

    @property
    def keeps(self) -> bool:
        """Whether anything is stored at all."""
        return self.config.get("retention") != "interest"

    def _roll_up(self, subject: bytes | None) -> None:
        for sequence in list(self.messages)[:-1]:
            if subject is None or self.messages[sequence].message.subject == subject:
                del self.messages[sequence]

    def enforce_limits(self) -> None:
        """Remove the oldest messages that are too many."""
        per_subject, most = self._limit("max_msgs_per_subject"), self._limit("max_msgs")
        if per_subject > 0:
            kept: dict[bytes, int] = {}
            for sequence, each in reversed(list(self.messages.items())):
                kept[each.message.subject] = kept.get(each.message.subject, 0) + 1
                if kept[each.message.subject] > per_subject:
                    del self.messages[sequence]
        if most > 0:
            for sequence in list(self.messages)[:-most]:
                del self.messages[sequence]
        while 0 < self._limit("max_bytes") < self._bytes():
            del self.messages[next(iter(self.messages))]

    def delete(self, sequence: int) -> bool:
        """Remove one message. Return whether it existed."""
        return self.messages.pop(sequence, None) is not None

    def purge(self, request: Mapping[str, Any]) -> None:
        """Remove messages: those matching `filter`, those before `seq`, or all but the newest `keep` of them."""
        pattern = raw_of(request.get("filter") or ">")
        chosen = [sequence for sequence, each in self.messages.items() if matches(each.message.subject, pattern)]
        if request.get("seq"):
            chosen = [sequence for sequence in chosen if sequence < request["seq"]]
        if request.get("keep"):
            chosen = chosen[: -request["keep"]]
        for sequence in chosen:
            del self.messages[sequence]

    def _bytes(self) -> int:
        return sum(self._size(each.message) for each in self.messages.values())

    def _size(self, message: Message) -> int:
        in_memory = self.config.get("storage") == "memory"
        overhead = _IN_MEMORY if in_memory else _IN_FILE + (_HEADERS_IN_FILE if message.header_block else 0)
        return len(message.subject) + len(message.header_block) + len(message.payload) + overhead

    def _limit(self, name: str) -> int:
        return int(self.config.get(name) or -1)


def header(block: bytes, name: bytes) -> bytes:
    """Return the value that a server reads for a name, from its first line; empty without one."""
    start = block.find(b"\n" + name + b":")
    if start < 0:
        return b""
    start += len(name) + 2
    return block[start : block.find(b"\r\n", start)].strip(b" \t")


def ingested(block: bytes, dialect: Dialect) -> bytes:
    """Return the header block as it is stored."""
    if dialect.status_is_cut:
        return remove(_without_status(block), _REQUEST_INFO)
    at = block.find(b"\n" + _REQUEST_INFO + b":") + 1
    if not at or (not dialect.request_info_is_found_after_longer_names and block.find(_REQUEST_INFO) != at):
        return block
    end = block.find(_CRLF, at) + len(_CRLF)
    left = block[:at] + block[end:]
    return b"" if len(left) <= len(START + _CRLF) else left


def _without_status(block: bytes) -> bytes:
    name = START.removesuffix(_CRLF)
    end = block.find(_CRLF)
    if not block.startswith(name) or end <= len(name):
        return block
    left = name + block[end:]
    return b"" if left == START + _CRLF else left


def start_of(
    entry: Mapping[str, Json], target: StreamModel, source: StreamModel, dialect: Dialect, *, mirrors: bool
) -> int:
    """Return the source's sequence to begin with: after the records in the target, else from the entry."""
    known = 0 if mirrors else _recorded(entry, target, dialect)
    if known:
        return known + 1
    if entry.get("opt_start_seq"):
        start = int(entry["opt_start_seq"])
        return start if dialect.source_start_waits_for_its_sequence else min(start, source.last_sequence + 1)
    if entry.get("opt_start_time"):
        begin = nanoseconds_of(entry["opt_start_time"])
        later = (sequence for sequence, each in source.messages.items() if each.time_ns >= begin)
        return next(later, source.last_sequence + 1)
    return 0


def _recorded(entry: Mapping[str, Json], target: StreamModel, dialect: Dialect) -> int:
    """Return the sequence in the newest record of this entry in the target; 0 for none."""
    checked = entry.get("filter_subject") if dialect.source_search_follows_filter else None
    for each in reversed(target.messages.values()):
        if checked and not matches(each.message.subject, raw_of(checked)):
            continue
        record = first_record(each.message.header_block)
        if record is not None and _is_of(record, entry, dialect):
            return record.sequence
    return 0


def _is_of(record: SourceRecord, entry: Mapping[str, Json], dialect: Dialect) -> bool:
    if record.filters is not None and not dialect.source_record_names_filters:
        return False
    transforms = entry.get("subject_transforms") or ({"src": entry.get("filter_subject"), "dest": ""},)
    filters = tuple(raw_of(each.get("src")) for each in transforms)
    destinations = tuple(raw_of(each.get("dest")) for each in transforms)
    return record.is_of(raw_of(entry["name"]), filters, destinations)
