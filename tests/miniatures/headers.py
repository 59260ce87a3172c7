"""Wrong engines whose republished messages have another header block or payload."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from nats_conformance.catalogue.case import Message
from nats_conformance.implementations.engine_operations import Config, EngineOperations, TransformsEngine
from nats_conformance.observation import Stored
from nats_transforms.dialect import Dialect
from nats_transforms.header_block import START
from tests.miniatures.miniature import Miniature

_SERVER_NAMES = (b"Nats-Stream", b"Nats-Subject", b"Nats-Sequence", b"Nats-Time-Stamp", b"Nats-Last-Sequence")


class _OtherBlock(TransformsEngine):
    """Changes the lines of a republished message's header block."""

    def __init__(self, dialect: Dialect, change: Callable[[list[bytes], Message], list[bytes]]) -> None:
        super().__init__(dialect)
        self._change = change

    async def republish(self, stream: str, rule: Config, message: Stored, last_sequence: int) -> Message | None:
        made = await super().republish(stream, rule, message, last_sequence)
        if made is None:
            return None
        lines = made.header_block.removeprefix(START).removesuffix(b"\r\n\r\n").split(b"\r\n")
        changed = self._change(lines, message.message)
        return replace(made, header_block=START + b"".join(line + b"\r\n" for line in changed) + b"\r\n")


def _with_lines(
    change: Callable[[list[bytes], Message], list[bytes]],
) -> Callable[[Dialect], EngineOperations]:
    return lambda dialect: _OtherBlock(dialect, change)


def _name(line: bytes) -> bytes:
    return line.partition(b":")[0]


def _first_of_each_name(lines: list[bytes], _: Message) -> list[bytes]:
    return list({_name(line): line for line in reversed(lines)}.values())[::-1]


def _server_lines_alone(lines: list[bytes], _: Message) -> list[bytes]:
    return [line for at, line in enumerate(lines) if at >= len(lines) - 5 or _name(line) not in _SERVER_NAMES]


def _trimmed(lines: list[bytes], _: Message) -> list[bytes]:
    return [b"%b: %b" % (_name(line), line.partition(b":")[2].strip()) for line in lines]


def _canonical(lines: list[bytes], _: Message) -> list[bytes]:
    return [_name(line).title() + line[len(_name(line)) :] for line in lines]


def _server_lines_first(lines: list[bytes], _: Message) -> list[bytes]:
    return lines[-5:] + lines[:-5]


def _sized(size: Callable[[Message], int]) -> Callable[[list[bytes], Message], list[bytes]]:
    def change(lines: list[bytes], stored: Message) -> list[bytes]:
        return [b"Nats-Msg-Size: %d" % size(stored) if _name(line) == b"Nats-Msg-Size" else line for line in lines]

    return change


def _nine_digits(lines: list[bytes], _: Message) -> list[bytes]:
    def padded(line: bytes) -> bytes:
        found = re.fullmatch(rb"(Nats-Time-Stamp: [^.Z]*)\.?([0-9]*)Z", line)
        return line if found is None else b"%b.%bZ" % (found[1], found[2].ljust(9, b"0"))

    return [padded(line) for line in lines]


class _LastSequenceOfStream(TransformsEngine):
    async def republish(self, stream: str, rule: Config, message: Stored, last_sequence: int) -> Message | None:
        return await super().republish(stream, rule, message, message.sequence - 1)


class _LastSequenceOffByOne(TransformsEngine):
    async def republish(self, stream: str, rule: Config, message: Stored, last_sequence: int) -> Message | None:
        return await super().republish(stream, rule, message, last_sequence + 1)


class _LastSequenceOfDisplacedIsZero(TransformsEngine):
    """Asks the stream after the message was stored: it has displaced others by then."""

    async def republish(self, stream: str, rule: Config, message: Stored, last_sequence: int) -> Message | None:
        return await super().republish(stream, rule, message, 0)


class _PublishedSubject(TransformsEngine):
    """Names the subject that it publishes on, not the stored one."""

    async def republish(self, stream: str, rule: Config, message: Stored, last_sequence: int) -> Message | None:
        made = await super().republish(stream, rule, message, last_sequence)
        if made is None:
            return None
        wrong, right = b"Nats-Subject: " + made.subject, b"Nats-Subject: " + message.message.subject
        return replace(made, header_block=made.header_block.replace(right, wrong))


class _KeepsPayload(TransformsEngine):
    async def republish(self, stream: str, rule: Config, message: Stored, last_sequence: int) -> Message | None:
        made = await super().republish(stream, rule, message, last_sequence)
        return None if made is None else replace(made, payload=message.message.payload)


class _EmptyTokens(TransformsEngine):
    """Joins the tokens that are not empty, and publishes what the server withholds."""

    async def republish(self, stream: str, rule: Config, message: Stored, last_sequence: int) -> Message | None:
        made = await super().republish(stream, rule, message, last_sequence)
        result = self.republish_rule(stream, rule).transform.apply(message.message.subject)
        if made is not None or result is None:
            return made
        return Message(b".".join(filter(None, result.split(b"."))), START + b"\r\n", message.message.payload)


HEADERS = (
    Miniature(
        "drops-duplicate-headers",
        "keeps the first header of each name, as a dict of headers does",
        "adr28/block/duplicate-names/1",
        _with_lines(_first_of_each_name),
    ),
    Miniature(
        "sorts-headers",
        "writes headers sorted by name",
        "adr28/block/duplicate-names/1",
        _with_lines(lambda lines, _: sorted(lines)),
    ),
    Miniature(
        "replaces-headers",
        "replaces a publisher's Nats-* header by the server's instead of appending",
        "adr28/block/own-names/1",
        _with_lines(_server_lines_alone),
    ),
    Miniature(
        "server-lines-first",
        "writes the server's lines before the publisher's",
        "adr28/block/duplicate-names/1",
        _with_lines(_server_lines_first),
    ),
    Miniature(
        "trims-header-values",
        "normalises the white space around header values",
        "adr28/block/spelling/1",
        _with_lines(_trimmed),
    ),
    Miniature(
        "canonical-header-names",
        "writes header names with capitals, as HTTP libraries do",
        "adr28/block/spelling/1",
        _with_lines(_canonical),
    ),
    Miniature(
        "size-with-headers",
        "counts the header block in Nats-Msg-Size",
        "adr28/block/size/1",
        _with_lines(_sized(lambda stored: len(stored.header_block) + len(stored.payload))),
    ),
    Miniature(
        "size-in-characters",
        "counts characters in Nats-Msg-Size instead of bytes",
        "adr28/block/size/1",
        _with_lines(_sized(lambda stored: len(stored.payload.decode("utf-8", "replace")))),
    ),
    Miniature(
        "time-stamp-of-nine-digits",
        "writes the time stamp with trailing zeros",
        "adr28/block/time-stamp/1",
        _with_lines(_nine_digits),
    ),
    Miniature(
        "last-sequence-of-stream",
        "takes the stream's last sequence for that of the subject",
        "adr28/predecessor/interleaved/1",
        _LastSequenceOfStream,
    ),
    Miniature(
        "last-sequence-off-by-one",
        "writes a last sequence that is one too high",
        "adr28/predecessor/interleaved/1",
        _LastSequenceOffByOne,
    ),
    Miniature(
        "last-sequence-after-storing",
        "looks for the predecessor after the message was stored, when it is displaced already",
        "adr28/predecessor/displaced/1",
        _LastSequenceOfDisplacedIsZero,
    ),
    Miniature(
        "subject-as-published",
        "writes the new subject into Nats-Subject",
        "adr28/block/time-stamp/1",
        _PublishedSubject,
    ),
    Miniature(
        "headers-only-with-payload",
        "sends the payload although headers_only is set",
        "adr28/block/size/1",
        _KeepsPayload,
    ),
    Miniature(
        "mends-invalid-subjects",
        "leaves empty tokens out of a result that no client can receive, and publishes it",
        "adr28/rules/nothing/1",
        _EmptyTokens,
    ),
)
