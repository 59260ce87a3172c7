"""Writing a configuration as the server sends it back: which members appear and which are left out."""

from typing import Any

from nats_transforms.dialect import Dialect
from nats_transforms.stream_config.schema import STREAM_FIELDS, Field, ListOf, Struct, fields_of, zero_of


def write_config(request: dict[str, Any], dialect: Dialect) -> dict[str, Any]:
    """Return the normalised configuration, in the server's order of members.

    It does not contain the `_nats.*` metadata that servers from 2.11 on add about themselves.
    """
    fields = [field for field in STREAM_FIELDS if field.exists(dialect)]
    return _written_fields(request, fields, dialect)


def _written_fields(record: dict[str, Any], fields: list[Field], dialect: Dialect) -> dict[str, Any]:
    return {
        field.name: _written(record[field.name], field, dialect)
        for field in fields
        if field.written or record[field.name] not in (zero_of(field.type, dialect), [], None)
    }


def _written(value: Any, field: Field, dialect: Dialect) -> Any:
    if isinstance(field.type, Struct):
        return _written_fields(value, list(fields_of(field.type, dialect).values()), dialect)
    if isinstance(field.type, ListOf):
        item = field.type.item
        if isinstance(item, Struct):
            members = list(fields_of(item, dialect).values())
            return [None if one is None else _written_fields(one, members, dialect) for one in value]
        return list(value)
    return value
