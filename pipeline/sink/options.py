"""The options of a write, from text to values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pipeline.connections import FIELDS, connection_of, options_of
from pipeline.errors import OptionError

__all__ = ["WriteOptions"]

_PATIENCE: Final = 60.0
_TRUE: Final = frozenset({"true", "yes", "1"})
_FALSE: Final = frozenset({"false", "no", "0"})


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How to write.

    Attributes:
        connection: the options of the connection, as `pipeline.connections` reads them; paths of secrets, no secrets.
        stream: the stream that must answer.
        ordered: whether one task writes, and so in order.
        id_column: the column with message ids; None for `id` where there is one.
        write_id: what the user calls the write, so that it can be repeated; None for a new name.
        patience: seconds without any progress (a full stream, a server that is away) until the task fails.
        look_back: seconds of the stream's past that are searched for earlier attempts where nothing else bounds that;
            None for all of it.
        allow_speculation: whether a task may be tried twice at the same time.
        check_subjects: whether a subject that is none of the stream's is an error before it is sent.
    """

    connection: tuple[tuple[str, str], ...]
    stream: str
    ordered: bool = True
    id_column: str | None = None
    write_id: str | None = None
    patience: float = _PATIENCE
    look_back: float | None = None
    allow_speculation: bool = False
    check_subjects: bool = True

    @classmethod
    def of(cls, options: Mapping[str, str]) -> WriteOptions:
        """Read the options of a data source.

        Args:
            options: by name, in any case, as Spark hands them on.

        Raises:
            OptionError: one is missing or cannot be used.
        """
        given = {name.lower(): value for name, value in options.items()}
        stream = given.get("stream", "").strip()
        if not stream:
            raise OptionError('option stream: missing; say .option("stream", "ORDERS")')
        if any(character in stream for character in " \t\r\n.*>/\\"):
            raise OptionError(f"option stream: '{stream}' cannot be the name of a stream")
        connection = connection_of({name: value for name, value in given.items() if name in _CONNECTION})
        return cls(
            connection=tuple(sorted(options_of(connection).items())),
            stream=stream,
            ordered=_flag(given, "ordered", True),
            id_column=given.get("idcolumn") or None,
            write_id=given.get("writeid") or None,
            patience=_seconds(given, "patience", _PATIENCE),
            look_back=_seconds(given, "lookBack", 0.0) or None,
            allow_speculation=_flag(given, "allowSpeculation", False),
            check_subjects=_flag(given, "checkSubjects", True),
        )


_CONNECTION: Final = frozenset(name.lower() for name in FIELDS)


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name.lower(), str(default)).strip().lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise OptionError(f"option {name}: '{text}' is neither true nor false")


def _seconds(given: Mapping[str, str], name: str, default: float) -> float:
    text = given.get(name.lower())
    if text is None:
        return default
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise OptionError(f"option {name}: '{text}' is not a number of seconds above 0")
    return seconds
