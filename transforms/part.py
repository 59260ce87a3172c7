"""One token of a compiled destination."""

from __future__ import annotations

from dataclasses import dataclass

from nats_bridge.transforms.destination import Kind


@dataclass(frozen=True, slots=True)
class Part:
    """A destination token bound to its source.

    ``positions`` are positions (from 0) in the *subject* of the tokens it is computed from, in the order of
    the arguments; for ``>`` the position from which the subject is copied. ``indexes`` are the wildcard
    numbers as written. ``number`` is a length, a modulus or a limit in 32 bits, ``delimiter`` that of split.
    """

    text: bytes
    kind: Kind
    positions: tuple[int, ...] = ()
    indexes: tuple[int, ...] = ()
    number: int = 0
    delimiter: bytes = b""
