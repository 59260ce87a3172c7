"""The plan of a write, which every task follows: the user's options, the columns of the rows, and the stream's end."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from pyspark.sql.types import StructType

from nats_bridge.client.stream_identity import KnownStream
from nats_bridge.settings import Connection
from nats_bridge_spark.columns import COLUMNS
from nats_bridge_spark.connections import connection_of
from nats_bridge_spark.errors import OptionError, SchemaError
from nats_bridge_spark.options import WRITE, flag, given
from nats_bridge_spark.source.read_options import require_name


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a write.

    Attributes:
        patience: seconds without progress (a full stream, a server that is down) until the task fails.
        look_back: seconds of the stream's past to search for earlier attempts, if nothing else limits the search; None
            for all of it.
    """

    connection: Connection = field(repr=False)
    stream: str
    id_column: str | None
    write_id: str | None
    patience: float
    look_back: float | None
    check_subjects: bool

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Read the options of a data source, or raise an `OptionError`."""
        found = given(options, WRITE)
        stream = found.get("stream", "").strip()
        if not stream:
            raise OptionError('option stream: missing; set .option("stream", "ORDERS")')
        require_name("option stream", stream)
        return cls(
            connection=connection_of(found),
            stream=stream,
            id_column=found.get("idColumn") or None,
            write_id=found.get("writeId") or None,
            patience=_seconds(found, "patience") or 60.0,
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


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The indices of the columns with the parts of a message; None without one."""

    subject: int
    data: int
    headers: int | None = None
    header_block: int | None = None
    message_id: int | None = None

    @property
    def brings_ids(self) -> bool:
        """Whether rows can have their own ids."""
        return self.message_id is not None or self.headers is not None or self.header_block is not None

    @property
    def brings_only_ids(self) -> bool:
        """Whether all rows have their own ids, and no headers."""
        return self.message_id is not None and self.headers is None and self.header_block is None

    @classmethod
    def of(cls, schema: StructType, id_column: str | None) -> Self:
        """Read a schema.

        Args:
            id_column: the column with message ids, if the user has named one.

        Raises:
            SchemaError: a column is missing, unknown or of another type.
        """
        names = {role: role for role in _ALLOWED if role != "id"} | {id_column or "id": "id"}
        at = {names[name]: index for index, name in enumerate(schema.names) if name in names}
        unknown = [name for name in schema.names if name not in names]
        for role, expected in (("subject", "a string"), ("data", "binary or a string")):
            if role not in at:
                raise SchemaError(f"column {role}: missing; a message has a subject (a string) and data ({expected})")
        if id_column and "id" not in at:
            raise SchemaError(f"option idColumn: the rows have no column '{id_column}'")
        if unknown:
            kept = ", ".join(f'"{schema.names[index]}"' for index in sorted(at.values()))
            word = "column" if len(unknown) == 1 else "columns"
            raise SchemaError(
                f"{word} {', '.join(unknown)}: no part of a message (subject, data, headers or header_block, id);"
                f" leave out what is not to be written: .select({kept})"
            )
        if "headers" in at and "header_block" in at:
            raise SchemaError("columns headers, header_block: both say what the headers are; select one of them")
        for role, index in at.items():
            found, allowed = schema.fields[index].dataType.simpleString(), _ALLOWED[role]
            if found not in allowed:
                raise SchemaError(f"column {schema.names[index]}: its type is {found}, not {' or '.join(allowed)}")
        return cls(at["subject"], at["data"], at.get("headers"), at.get("header_block"), at.get("id"))


_ALLOWED: Final[dict[str, tuple[str, ...]]] = {
    "subject": ("string",),
    "data": ("binary", "string"),
    "headers": (COLUMNS["headers"],),
    "header_block": ("binary",),
    "id": ("string",),
}


@dataclass(frozen=True, slots=True)
class WritePlan:
    """The common part of all tasks of a write. It is sent to them, so it contains no secrets.

    Attributes:
        write_id: the name of the write; empty for a streaming query, whose own id takes its place.
        after: the stream's last sequence before the write stored anything; None if unknown.
        known: the identity of the stream at that time; None if unknown.
    """

    options: WriteOptions
    layout: RowLayout
    write_id: str = ""
    after: int | None = None
    known: KnownStream | None = None
    streaming: bool = False

    @property
    def name(self) -> str:
        """The value of the option `writeId` that repeats this write."""
        return self.write_id if self.after is None else f"{self.write_id}@{self.after}"
