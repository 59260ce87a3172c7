"""`nats-bridge explain --jsonl`: many transforms as a filter, one JSON line in, one out, in order."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import BufferedReader
from json.encoder import encode_basestring_ascii
from typing import BinaryIO, Final, TypeAlias

from nats_bridge.transforms.dialect import Dialect
from nats_bridge.transforms.errors import TransformError
from nats_bridge.transforms.transform import compile_transform

__all__ = ["LineAnswerer", "answer_stream"]

_READ_SIZE: Final = 256 * 1024
_MAX_CACHED: Final = 10_000
_Apply: TypeAlias = Callable[[bytes], bytes | None]

# Subjects as JSON texts: bytes that are not UTF-8 are lone surrogates, \udc80 to \udcff, both ways.
_ENCODING: Final = ("utf-8", "surrogateescape")


def answer_stream(source: BufferedReader, sink: BinaryIO, dialect: Dialect) -> None:
    """Answer every line of `source` until its end.

    Answers to all lines that have come in so far are flushed before more is read, so that a program may
    talk to us line by line.
    """
    answerer = LineAnswerer(dialect)
    pieces: list[bytes] = []  # of a line whose end has not come in yet
    while chunk := source.read1(_READ_SIZE):
        head, newline, tail = chunk.rpartition(b"\n")
        if not newline:
            pieces.append(chunk)
            continue
        lines = b"".join([*pieces, head]).split(b"\n")
        pieces = [tail] if tail else []
        sink.write(b"".join([answerer.answer(line) for line in lines]))
        sink.flush()
    if pieces:
        sink.write(answerer.answer(b"".join(pieces)))
        sink.flush()


class LineAnswerer:
    """Answers lines; every (source, destination) is compiled once.

    Args:
        dialect: the server version to behave like.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._compiled: dict[tuple[str, str], _Apply | str] = {}

    def answer(self, line: bytes) -> bytes:
        """The answer to one line, with its line end. Never raises."""
        try:
            request = json.loads(line.decode(*_ENCODING))
        except ValueError as error:
            return _error(f"not valid JSON: {error}")
        except RecursionError:
            return _error("not valid JSON: nested too deep")
        if not isinstance(request, dict):
            return _error('must be an object: {"src", "dest", "subject"}')
        source, destination, subject = request.get("src"), request.get("dest"), request.get("subject")
        if not (isinstance(source, str) and isinstance(destination, str) and isinstance(subject, str)):
            wrong = [key for key in ("src", "dest", "subject") if not isinstance(request.get(key), str)]
            return _error(f"{', '.join(wrong)}: must be there, as text")
        try:
            apply = self._compiled.get((source, destination)) or self._compile(source, destination)
            if isinstance(apply, str):
                return _error(apply)
            result = apply(subject.encode(*_ENCODING))
        except UnicodeEncodeError as error:
            return _error(f"'\\u{ord(error.object[error.start]):04x}' is half a character and no byte")
        if result is None:
            return b'{"subject": null}\n'
        return b'{"subject": %b}\n' % encode_basestring_ascii(result.decode(*_ENCODING)).encode("ascii")

    def _compile(self, source: str, destination: str) -> _Apply | str:
        if len(self._compiled) >= _MAX_CACHED:
            self._compiled.clear()
        compiled: _Apply | str
        try:
            compiled = compile_transform(source.encode(*_ENCODING), destination.encode(*_ENCODING), self._dialect).apply
        except TransformError as error:
            compiled = error.reason
        self._compiled[(source, destination)] = compiled
        return compiled


def _error(text: str) -> bytes:
    return b'{"error": %b}\n' % encode_basestring_ascii(text).encode("ascii")
