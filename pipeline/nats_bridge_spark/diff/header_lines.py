"""Compares two header blocks line by line: names, values, order, case, spelling.

A block is read like by the server: its first line is not a header, a line ends at CRLF, a name ends at the first colon,
and blanks around a value do not count (if nothing else differs, this is reported as spelling).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal[
    "header-added", "header-removed", "header-value", "header-case", "header-order", "header-spelling"
]


HeaderDifference: TypeAlias = tuple[Kind, bytes, bytes, bytes]
"""The kind; the header's name, empty if the block as a whole differs; its values on the left and on the right.

Several values are joined by commas. If the order of the whole block differs, the names are in their order.
"""


def header_lines(block: bytes) -> list[tuple[bytes, bytes]]:
    """Return the names and values of a block, in order. A line without a colon has an empty value."""
    found = []
    for line in block.split(b"\r\n")[1:]:
        if line:
            name, _, value = line.partition(b":")
            found.append((name, value.strip(b" \t")))
    return found


def differences(left: bytes, right: bytes) -> Iterator[HeaderDifference]:
    """Yield all differences of two blocks; none if they are equal, byte for byte."""
    if left == right:
        return
    lines = header_lines(left), header_lines(right)
    values = _by_name(lines[0]), _by_name(lines[1])
    found = False
    renamed = _renamed(*values)
    for old, new in renamed.items():
        found = True
        yield "header-case", old, old, new
        values[1][old] = values[1].pop(new)
    for name, here in values[0].items():
        there = values[1].get(name)
        if there == here:
            continue
        found = True
        if there is None:
            yield "header-removed", name, _joined(here), b""
        elif sorted(there) == sorted(here):
            yield "header-order", name, _joined(here), _joined(there)
        else:
            yield "header-value", name, _joined(here), _joined(there)
    for name, there in values[1].items():
        if name not in values[0]:
            found = True
            yield "header-added", name, b"", _joined(there)
    orders = [_order(lines[0], values, {}), _order(lines[1], values, {new: old for old, new in renamed.items()})]
    if orders[0] != orders[1]:
        found = True
        yield "header-order", b"", b", ".join(orders[0]), b", ".join(orders[1])
    if not found:
        yield "header-spelling", b"", left, right


def _by_name(lines: list[tuple[bytes, bytes]]) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    for name, value in lines:
        found.setdefault(name, []).append(value)
    return found


def _renamed(left: dict[bytes, list[bytes]], right: dict[bytes, list[bytes]]) -> dict[bytes, bytes]:
    """Return names only on the left, with the name on the right that differs only in case."""
    lacking = {name.lower(): name for name in right if name not in left}
    return {
        name: lacking[name.lower()]
        for name in left
        if name not in right and name.lower() in lacking and left[name] == right[lacking[name.lower()]]
    }


def _order(
    lines: list[tuple[bytes, bytes]],
    values: tuple[dict[bytes, list[bytes]], dict[bytes, list[bytes]]],
    renamed: dict[bytes, bytes],
) -> list[bytes]:
    """Return the names of a block in their order, those that both blocks have equally often."""
    names = [renamed.get(name, name) for name, _ in lines]
    left, right = values
    return [name for name in names if name in left and name in right and len(left[name]) == len(right[name])]


def _joined(values: list[bytes]) -> bytes:
    return b", ".join(values)
