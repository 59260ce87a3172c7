"""Maps the columns of rows to message parts. The mapping is checked before anything is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import StructType

from nats_bridge_spark.errors import SchemaError

_HEADERS: Final = "array<struct<name:string,value:string>>"


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The columns with the parts of a message.

    Attributes:
        subject: index of the column with the subject.
        data: that with the payload.
        headers: the column with name and value of each header; None without one.
        header_block: the column with raw header blocks; None without one.
        message_id: the column with message ids; None without one.
    """

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
    def of(cls, schema: StructType, id_column: str | None) -> RowLayout:
        """Read a schema.

        Args:
            schema: of the rows.
            id_column: the column with message ids, if the user has named one.

        Raises:
            SchemaError: a column is missing, unknown or of another type.
        """
        at: dict[str, int] = {}
        unknown = []
        names = {"subject": "subject", "data": "data", "headers": "headers", "header_block": "header_block"}
        names[id_column or "id"] = "id"
        for index, field in enumerate(schema.fields):
            role = names.get(field.name)
            if role is None:
                unknown.append(field.name)
            else:
                at[role] = index
        for role, expected in (("subject", "a string"), ("data", "binary or a string")):
            if role not in at:
                raise SchemaError(f"column {role}: missing; a message has a subject (a string) and data ({expected})")
        if id_column and "id" not in at:
            raise SchemaError(f"option idColumn: the rows have no column '{id_column}'")
        if unknown:
            kept = ", ".join(f'"{schema.fields[index].name}"' for index in sorted(at.values()))
            word = "column" if len(unknown) == 1 else "columns"
            raise SchemaError(
                f"{word} {', '.join(unknown)}: no part of a message (subject, data, headers or header_block, id);"
                f" leave out what is not to be written: .select({kept})"
            )
        if "headers" in at and "header_block" in at:
            raise SchemaError("columns headers, header_block: both say what the headers are; select one of them")
        types = {role: schema.fields[index].dataType.simpleString() for role, index in at.items()}
        for role, allowed in _ALLOWED.items():
            if role in types and types[role] not in allowed:
                column = schema.fields[at[role]].name
                raise SchemaError(f"column {column}: its type is {types[role]}, not {' or '.join(allowed)}")
        return cls(at["subject"], at["data"], at.get("headers"), at.get("header_block"), at.get("id"))


_ALLOWED: Final[dict[str, tuple[str, ...]]] = {
    "subject": ("string",),
    "data": ("binary", "string"),
    "headers": (_HEADERS,),
    "header_block": ("binary",),
    "id": ("string",),
}
