"""The options of a write, from text to values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from nats_bridge.settings import Connection
from nats_bridge_spark.connections import connection_of
from nats_bridge_spark.errors import OptionError
from nats_bridge_spark.options import WRITE, flag, given
from nats_bridge_spark.source.read_options import require_name

_PATIENCE: Final = 60.0


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a write.

    Attributes:
        connection: the connection of the stream.
        stream: the stream that must answer.
        ordered: whether one task writes, and so in order.
        id_column: the column with message ids; None for `id`, if it exists.
        write_id: the user's name of the write, so that it can be repeated; None for a new name.
        patience: seconds without progress (a full stream, a server that is down) until the task fails.
        look_back: seconds of the stream's past to search for earlier attempts, if nothing else limits the search; None
            for all of it.
        check_subjects: whether a subject that the stream does not store is an error before it is sent.
    """

    connection: Connection = field(repr=False)
    stream: str
    ordered: bool = True
    id_column: str | None = None
    write_id: str | None = None
    patience: float = _PATIENCE
    look_back: float | None = None
    check_subjects: bool = True

    @classmethod
    def of(cls, options: Mapping[str, str]) -> WriteOptions:
        """Read the options of a data source.

        Args:
            options: by name, in any case, as Spark hands them on.

        Raises:
            OptionError: one is missing or cannot be used.
        """
        found = given(options, WRITE)
        stream = found.get("stream", "").strip()
        if not stream:
            raise OptionError('option stream: missing; set .option("stream", "ORDERS")')
        require_name("option stream", stream)
        return cls(
            connection=connection_of(found),
            stream=stream,
            ordered=flag(found, "ordered", default=True),
            id_column=found.get("idColumn") or None,
            write_id=found.get("writeId") or None,
            patience=_seconds(found, "patience") or _PATIENCE,
            look_back=_seconds(found, "lookBack"),
            check_subjects=flag(found, "checkSubjects", default=True),
        )


def _seconds(found: Mapping[str, str], name: str) -> float | None:
    text = found.get(name)
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise OptionError(f"option {name}: '{text}' is not a number of seconds above 0")
    return seconds
