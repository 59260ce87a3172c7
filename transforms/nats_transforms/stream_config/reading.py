"""Decodes a request as the server's JSON decoder does: types, unknown members, error texts.

Theory of operation. The decoder reads the document in order. It remembers the first value of a wrong type or unknown
member, and continues. An unknown word and a malformed time end it at once and are reported instead. Keys match in any
case, so a member may appear twice: the second is read into the first, and `null` leaves numbers, strings and booleans
unchanged. Servers before 2.11 return only `invalid JSON`. Newer ones add Go's own text, whose paths are those of
servers built with Go 1.24 or newer.
"""

import json
from collections.abc import Mapping
from typing import Any

from nats_transforms.dialect import Dialect
from nats_transforms.stream_config.json_text import Number, as_text, folded, members_of, quoted
from nats_transforms.stream_config.refusals import not_created, refusal
from nats_transforms.stream_config.schema import (
    REQUEST_ONLY,
    Choice,
    Field,
    ListOf,
    Scalar,
    StringMap,
    Struct,
    Time,
    Type,
    fields_of,
    stream_request,
    zero_of,
)
from nats_transforms.stream_config.start_time import InvalidTimeError, UnwritableTimeError, normal_time

Request = dict[str, Any]


class _Invalid(Exception):  # noqa: N818 - never leaves this module
    pass


class _Reader:
    def __init__(self, dialect: Dialect, *, strict: bool) -> None:
        self.dialect = dialect
        self.strict = strict
        self.first_error = ""
        self.unknown: list[str] = []

    def remember(self, text: str) -> None:
        self.first_error = self.first_error or text

    def mismatch(self, value: object, type_name: str, where: str) -> None:
        self.remember(f"json: cannot unmarshal {_described(value, type_name)} into {where} of type {type_name}")

    def read(self, value: object, type_: Type, where: str, path: str, before: Any) -> Any:
        if isinstance(value, str):
            value = as_text(value)
        if isinstance(type_, Choice):
            return _chosen(value, type_, where)
        if value is None:
            return before if _is_kept_by_null(type_) else zero_of(type_, self.dialect)
        match type_:
            case Scalar():
                if _fits(value, type_):
                    return value
                self.mismatch(value, type_.name, where)
                return before
            case Time():
                if not isinstance(value, str):
                    raise _Invalid("Time.UnmarshalJSON: input is not a JSON string")
                try:
                    return normal_time(value)
                except UnwritableTimeError:
                    raise not_created("error creating store for stream") from None
                except InvalidTimeError as error:
                    raise _Invalid(str(error)) from None
            case ListOf():
                return self.read_list(value, type_, where, path, before)
            case StringMap():
                return self.read_map(value, type_, where, before)
            case Struct():
                return self.read_struct(value, type_, where, path, before)

    def read_list(self, value: object, type_: ListOf, where: str, path: str, before: list[Any]) -> list[Any]:
        if not isinstance(value, list | tuple):
            self.mismatch(value, type_.name, where)
            return []
        first = [zero_of(type_.item, self.dialect)] * max(0, len(value) - len(before))
        pairs = zip(value, [*before[: len(value)], *first], strict=True)
        return [self.read(item, type_.item, where, path, earlier) for item, earlier in pairs]

    def read_map(self, value: object, type_: StringMap, where: str, before: dict[str, str]) -> dict[str, str]:
        if not isinstance(value, Mapping):
            self.mismatch(value, type_.name, where)
            return {}
        read = dict(before)
        for key, text in members_of(value):
            if isinstance(text, str):
                read[as_text(str(key))] = as_text(text)
            elif text is None:
                read[as_text(str(key))] = ""
            else:
                self.mismatch(text, "string", where)
        return read

    def read_struct(
        self, value: object, struct: Struct, where: str, path: str, before: dict[str, Any] | None
    ) -> dict[str, Any] | None:
        if not isinstance(value, Mapping):
            self.mismatch(value, f"server.{struct.name}", where)
            zero: dict[str, Any] | None = zero_of(struct, self.dialect)
            return zero
        fields = fields_of(struct, self.dialect)
        read = dict(before or {field.name: zero_of(field.type, self.dialect) for field in fields.values()})
        for key, member in members_of(value):
            field = fields.get(folded(str(key)))
            if field is None:
                self.unknown.append(f"{path}{as_text(str(key))}")
                if self.strict:
                    self.remember(f"json: unknown field {quoted(str(key))}")
                continue
            inner = f"{path}{field.name}."
            read[field.name] = self.read(member, field.type, _where(struct, field, path), inner, read[field.name])
        return read


def read_request(config: object, dialect: Dialect, *, strict: bool | None = None) -> tuple[Request, list[str]]:
    """Decode a request. Return all members with their values, and the paths of ignored members.

    `strict` overrides the dialect's default (from 2.11 on, a server may be configured either way).

    Raises:
        StreamConfigError: 10025, the server's `invalid JSON`.
    """
    reader = _Reader(dialect, strict=dialect.strict_json if strict is None else strict)
    struct = stream_request()
    try:
        read = reader.read(config, struct, "Go value", "", zero_of(struct, dialect))
    except _Invalid as error:
        raise _invalid_json(str(error), dialect) from None
    if reader.first_error:
        raise _invalid_json(reader.first_error, dialect)
    return read, reader.unknown


def _is_kept_by_null(type_: Type) -> bool:
    # In Go these are values. The others are pointers, slices and maps, which null empties.
    return isinstance(type_, Scalar) or (isinstance(type_, Struct) and not type_.optional)


def _invalid_json(reason: str, dialect: Dialect) -> Exception:
    return refusal("invalid_json", reason=f": {reason}" if dialect.json_errors_say_why else "")


def _where(struct: Struct, field: Field, path: str) -> str:
    # The configuration is embedded in the request, and Go names embedded records in the path.
    embedded = "" if field in REQUEST_ONLY else "StreamConfig."
    return f"Go struct field {struct.name}.{embedded}{path}{field.name}"


def _described(value: object, type_name: str) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        numeric = type_name.startswith(("int", "uint")) or type_name == "time.Duration"
        return f"number {value}" if numeric else "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, Mapping) else "array"


def _fits(value: object, type_: Scalar) -> bool:
    if isinstance(type_.zero, bool):
        return isinstance(value, bool)
    if isinstance(type_.zero, str):
        return isinstance(value, str)
    return isinstance(value, int) and not isinstance(value, bool) and type_.low <= value <= type_.high


def _chosen(value: object, choice: Choice, where: str) -> str:
    if isinstance(value, str):
        word = value.lower() if choice.any_case else value
        if word in choice.words:
            return word
        if not word and choice.empty_is_zero:
            return choice.words[0]
    if choice.own_error:
        if value is None or isinstance(value, str):
            raise _Invalid(choice.own_error)
        raise _Invalid(f"json: cannot unmarshal {_described(value, 'string')} into {where} of type string")
    spelling = str(value) if isinstance(value, Number) else json.dumps(value, ensure_ascii=False, default=str)
    raise _Invalid(f"can not unmarshal {quoted(spelling)}")
