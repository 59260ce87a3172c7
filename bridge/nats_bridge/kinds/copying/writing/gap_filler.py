"""Keeps the source's sequences: stores fillers for sequences that the source lacks, and purges them.

A stream numbers messages in order, so a copy gets its source's number only if everything before it was stored. If the
source has a gap (a deleted or unselected message), an empty message takes the number, on a separate subject, and is
removed by a purge of that subject. The target then has the same gap as the source.
"""

from __future__ import annotations

from collections.abc import Iterator

from nats_bridge.errors import RuleRefusedError
from nats_bridge.kinds.copying.encoder import Operation
from nats_transforms import header_block
from nats_transforms.copy_id import HEADER, CopyId

_PIECE = 2048  # fillers sent at once


class GapFiller:
    """Follows the numbers of one target.

    Args:
        rule: the rule's name, for messages.
        source: the source's name, for messages.
        key: the entry's key for message ids.
        filler: the subject for fillers; None without one.
        last: the target's last sequence.
    """

    def __init__(self, rule: str, source: str, key: bytes, filler: str | None, last: int = 0) -> None:
        self._rule = rule
        self._source = source
        self._key = key
        self._filler = filler
        self._next = last + 1

    def pieces(self, operations: list[Operation]) -> Iterator[tuple[list[Operation], bool]]:
        """Yield the operations in pieces, with fillers for missing numbers before them, and whether a piece is fillers.

        Raises:
            RuleRefusedError: a number is missing and no subject for fillers is set.
        """
        start = 0
        for index, (sequence, _) in enumerate(operations):
            number = int(sequence)
            if number != self._next:
                if index > start:
                    yield operations[start:index], False
                start = index
                yield from ((piece, True) for piece in self._fillers(self._next, number))
            self._next = number + 1
        if start < len(operations):
            yield operations[start:], False

    def _fillers(self, first: int, end: int) -> Iterator[list[Operation]]:
        if self._filler is None:
            missing = f"{first}" if end == first + 1 else f"{first} to {end - 1}"
            raise RuleRefusedError(
                f"rule '{self._rule}': stream '{self._source}' has no message {missing} to copy, so the next one would"
                " not keep its sequence: set filler_subject to a subject of the target that nothing else uses"
            )
        for low in range(first, end, _PIECE):
            yield [self._filling(number) for number in range(low, min(low + _PIECE, end))]

    def _filling(self, number: int) -> Operation:
        assert self._filler is not None
        block = header_block.append(b"", [(HEADER, CopyId(self._key, number, 0).format())])
        line = b"HPUB %b %d %d\r\n" % (self._filler.encode(), len(block), len(block))
        return b"%d" % number, line + block + b"\r\n"
