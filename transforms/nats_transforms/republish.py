"""Republish: from a message as it is stored to the message that the server sends for it.

Theory of operation. The destination comes from the rule's transform. The header block is the stored one with the
server's lines appended (the dialect decides which). The payload is unchanged or, with `headers_only`, empty.
`Nats-Request-Info` needs no handling: every server removes it before it stores a message, and lines that old servers
leave (2.9 to 2.11 remove only the first) are in both the stored and the republished block.

The sidecar adds `exclude`, subjects that are left out first, and `where`, a condition on a header. `destination` only
considers the former.

Only `Republish.lines_form` defines the layout of the lines, as a bytes format. `block` fills it in. So does a hot loop,
which caches `destination` by subject (unless `transform.is_random`) and already has all values as digits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from nats_transforms.destination import KEEPING_WHOLE
from nats_transforms.dialect import NEWEST, Dialect
from nats_transforms.header_block import START, opened
from nats_transforms.program import compile_program
from nats_transforms.reserved import is_reserved, may_be_reserved
from nats_transforms.selection import HeaderCondition, Unselected, left_out, unmatched
from nats_transforms.subject import REST, UNMATCHABLE, is_valid_publish, matcher, text_member, text_of, tokens
from nats_transforms.timestamp import rfc3339_nano
from nats_transforms.transform import Transform, compile_transform

_STREAM, _TIME_STAMP, _SIZE = b"Nats-Stream", b"Nats-Time-Stamp", b"Nats-Msg-Size"

LINES = (_STREAM, b"Nats-Subject", b"Nats-Sequence", _TIME_STAMP, b"Nats-Last-Sequence", _SIZE)
"""Names of the lines that are appended to a stored block, in order."""
OPTIONAL_LINES = frozenset((_TIME_STAMP, _SIZE))
"""Names of the lines that some dialects or rules do not have."""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A stored message, with the raw `header_block` and `time_ns` in nanoseconds since 1970."""

    subject: bytes
    header_block: bytes
    payload: bytes
    sequence: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class Republished:
    """The message to publish, as raw bytes."""

    subject: bytes
    header_block: bytes
    payload: bytes


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a matching message is not republished.

    `code` is `empty_token`, `wildcard_token`, `white_space` or `reserved`; `destination` is the resulting subject.
    `native` tells whether a server of the dialect withholds it as well. False is a known divergence: old servers
    deliver white space, which no client can publish, and act on reserved subjects.
    """

    code: str
    destination: bytes
    native: bool

    @property
    def reason(self) -> str:
        """The refusal in words."""
        return f"{text_of(self.destination)!r} {_REASONS[self.code]}"


_REASONS = {
    "empty_token": "has an empty token, no subscription can receive it",
    "wildcard_token": "has a wildcard as a token",
    "white_space": "has white space, no client can publish it",
    "reserved": "is a command to the server, which no message may choose",
}


@dataclass(frozen=True, slots=True)
class Republish:
    """A compiled republish rule.

    `destination(subject)` returns the subject to publish on, or None to publish nothing. It is cheap and, unless
    `transform.is_random`, always the same for the same subject. `form` is `lines_form` with its defaults.
    """

    stream: bytes
    headers_only: bool
    dialect: Dialect
    transform: Transform
    exclude: tuple[bytes, ...]
    where: HeaderCondition | None
    destination: Callable[[bytes], bytes | None] = field(repr=False, compare=False)
    form: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "form", self.lines_form())

    def apply(self, message: StoredMessage, last_sequence: int) -> Republished | None:
        """Return the message to publish for a stored one; None if the rule publishes nothing.

        `last_sequence` is the sequence of the last message with the same subject before this one was stored; 0 for
        none.
        """
        destination = self.destination(message.subject)
        if destination is None or (self.where is not None and not self.where.holds(message.header_block)):
            return None
        block = self.block(
            message.subject,
            message.header_block,
            message.sequence,
            message.time_ns,
            last_sequence,
            len(message.payload),
        )
        return Republished(destination, block, b"" if self.headers_only else message.payload)

    def block(
        self, subject: bytes, stored: bytes, sequence: int, time_ns: int, last_sequence: int, payload_size: int
    ) -> bytes:
        """Return the whole header block. `payload_size` in bytes is only used with `headers_only`."""
        first = opened(stored) if len(stored) > 2 or self.dialect.republish_cuts_two_byte_block else START
        values = subject, b"%d" % sequence, rfc3339_nano(time_ns), b"%d" % last_sequence, b"%d" % payload_size
        return first + self.form % values

    def lines_form(self, *, time: bytes = b"%b", absent: bytes = b"%.0b") -> bytes:
        """Return the lines that are appended to a stored block, with the empty line after them, as a bytes format.

        It takes five values: subject, sequence, time stamp, last sequence, and size of the payload. `time` is the
        placeholder of the time stamp, for a caller that has it in pieces. `absent` replaces each line that the dialect
        or the rule does not have. The default takes the value and results in no bytes. With `b""`, the format does not
        take that value.
        """
        absences = {_TIME_STAMP: not self.dialect.republish_time_stamp, _SIZE: not self.headers_only}
        values = {_STREAM: self.stream.replace(b"%", b"%%"), _TIME_STAMP: time}
        lines = [absent if absences.get(name) else b"%b: %b\r\n" % (name, values.get(name, b"%b")) for name in LINES]
        return b"".join(lines) + b"\r\n"

    def refusal(self, subject: bytes) -> Refusal | None:
        """Return the reason why nothing is published for a selected subject.

        None if it is published or not selected.
        """
        result = self.transform.apply(subject)
        return None if result is None or left_out(subject, b"", self.exclude, None) else _refusal(result, self.dialect)

    def unselected(self, message: StoredMessage) -> Unselected | None:
        """Return the reason why the rule does not select a message; None if it does."""
        if self.transform.apply(message.subject) is None:
            return unmatched(message.subject, (self.transform.pattern,))
        return left_out(message.subject, message.header_block, self.exclude, self.where)

    def __reduce__(self) -> tuple[Callable[..., Republish], tuple[object, ...]]:
        return _assemble, (self.stream, self.headers_only, self.transform, self.exclude, self.where)


def compile_republish(
    stream: str | bytes,
    republish: Mapping[str, object],
    dialect: Dialect = NEWEST,
    *,
    exclude: Sequence[bytes] = (),
    where: HeaderCondition | None = None,
) -> Republish:
    """Compile the native `republish` object (`src`, `dest`, `headers_only`) of a stream.

    A missing `src` is `>`. A missing `dest` is refused by 2.9; from 2.10 on nothing is republished. Checks that need
    the stream (cycles, overlap) are made elsewhere.

    Raises:
        TransformError: source and destination do not make a transform.
        TypeError: a member of the wrong type.
    """
    source = text_member(republish, "src", "republish ") or REST
    transform = compile_transform(source, text_member(republish, "dest", "republish "), dialect)
    headers_only = republish.get("headers_only") or False
    if not isinstance(headers_only, bool):
        raise TypeError(f"republish headers_only must be true or false, not {headers_only!r}")
    name = stream.encode() if isinstance(stream, str) else stream
    return _assemble(name, headers_only, transform, tuple(exclude), where)


def _assemble(
    stream: bytes, headers_only: bool, transform: Transform, exclude: tuple[bytes, ...], where: HeaderCondition | None
) -> Republish:
    destination = _destination(transform)
    if (excludes := matcher(exclude)) is not None:
        destination = _unless(excludes, destination)
    return Republish(stream, headers_only, transform.dialect, transform, exclude, where, destination)


# The separators of words in a protocol line. A form feed is not one; only the check of newer servers includes it.
_SEPARATORS = b" \t\r\n"


def _unless(
    excludes: Callable[[bytes], object], destination: Callable[[bytes], bytes | None]
) -> Callable[[bytes], bytes | None]:
    return lambda subject: None if excludes(subject) else destination(subject)


def _unless_reserved(destination: Callable[[bytes], bytes | None]) -> Callable[[bytes], bytes | None]:
    def checked(subject: bytes) -> bytes | None:
        result = destination(subject)
        return None if result is None or is_reserved(result) else result

    return checked


def _destination(transform: Transform) -> Callable[[bytes], bytes | None]:
    apply = transform.apply
    dialect = transform.dialect
    checked = transform.pattern == REST and transform.destination == REST
    if not checked and not transform.is_empty and all(part.kind in KEEPING_WHOLE for part in transform.parts):
        # Tokens of a matching subject are never empty and never wildcards, so only white space can be wrong.
        spaces = b" \t\r\n\f" if dialect.republish_suppresses_invalid_subject else _SEPARATORS
        program = compile_program(transform.pattern, transform.destination, transform.parts, dialect, without=spaces)
        return _unless_reserved(program) if may_be_reserved(transform) else program

    def destination_checked(subject: bytes) -> bytes | None:
        result = apply(subject)
        return None if result is None or _refusal(result, dialect) is not None else result

    return destination_checked


def _refusal(result: bytes, dialect: Dialect) -> Refusal | None:
    if is_reserved(result):
        return Refusal("reserved", result, native=dialect.republish_suppresses_reserved_subject)
    if dialect.republish_suppresses_invalid_subject:
        code = unpublishable(result)
        return None if code is None else Refusal(code, result, native=True)
    if b"" in tokens(result):
        # Older servers send it, but no subscription and no stream can receive it.
        return Refusal("empty_token", result, native=True)
    spaced = any(separator in result for separator in _SEPARATORS)
    return Refusal("white_space", result, native=False) if spaced else None


def unpublishable(subject: bytes) -> str | None:
    """Return the reason why the sidecar does not publish on a subject, as the code of a `Refusal`; None if it does."""
    if is_valid_publish(subject):
        return "reserved" if is_reserved(subject) else None
    parts = tokens(subject)
    if b"" in parts:
        return "empty_token"
    return "white_space" if UNMATCHABLE.isdisjoint(parts) else "wildcard_token"
