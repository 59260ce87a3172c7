"""Reads JSON like the server's decoder (Go's `encoding/json`, observed on 2.9 to 2.15), which differs from
`json.loads`.

A member may appear twice, and a number keeps its spelling, because the server's errors quote it. A byte that is not
UTF-8 and a lone surrogate each become U+FFFD. `NaN`, `Infinity` and a byte order mark are not JSON.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

_SURROGATE = re.compile("[\ud800-\udfff]")
_NAMED = {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v"}
_NAMED |= {'"': r"\"", "\\": r"\\"}
_LONGEST_INTEGER = 20
"""Characters of the longest number that fits into 64 bits, with its sign."""


class Members(dict[str, Any]):
    """An object. It contains the last of several members with the same name; `pairs` has all of them in order."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs


class Number(float):
    """A number that fits into no integer member, with its spelling."""

    def __init__(self, spelling: str) -> None:
        self.spelling = spelling

    def __str__(self) -> str:
        return self.spelling


def read_json(raw: bytes) -> Any:
    """One JSON value.

    Returns:
        The value as `json.loads` has it, with `Members` for objects, and with `Number` for numbers that have a
        fraction, an exponent or more than 64 bits. A lone surrogate stands for U+FFFD, as `as_text` has it.

    Raises:
        json.JSONDecodeError: not JSON. The server's text is another one.
        RecursionError: nested too deep for Python, which is less than the 10,000 levels that servers read.
    """
    text = raw.decode("utf-8", "surrogateescape")
    if text.startswith("\ufeff"):
        raise json.JSONDecodeError("it begins with a byte order mark; save it as UTF-8 without one", text, 0)

    def refuse(constant: str) -> NoReturn:
        raise json.JSONDecodeError(f"{constant} is not a JSON value", text, text.find(constant))

    return json.loads(
        text,
        object_pairs_hook=Members,
        parse_float=Number,
        parse_int=lambda spelling: int(spelling) if len(spelling) <= _LONGEST_INTEGER else Number(spelling),
        parse_constant=refuse,
    )


def members_of(value: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Yield the members of an object in order, also those that come twice."""
    return value.pairs if isinstance(value, Members) else value.items()


def as_text(text: str) -> str:
    """Return the text that the server reads: a lone surrogate becomes U+FFFD."""
    return _SURROGATE.sub("\ufffd", text)


def folded(name: str) -> str:
    """Return a member's name without its case.

    It is Unicode case folding: U+017F is an s, U+212A a k. A letter that folds to two, such as a ligature, stays.
    """
    return "".join(small if len(small := letter.casefold()) == 1 else letter for letter in name)


def quoted(text: str) -> str:
    """Return a text as the server's errors quote it."""
    return f'"{"".join(map(_quoted_letter, as_text(text)))}"'


def _quoted_letter(letter: str) -> str:
    code = ord(letter)
    if letter in _NAMED or letter.isprintable():
        return _NAMED.get(letter, letter)
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
