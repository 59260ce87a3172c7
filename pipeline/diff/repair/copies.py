"""The messages that a repair publishes: what the comparison says that the right side must have.

Theory of operation: the sidecar's own encoder makes them, with two differences. The source record has a name of its own
(`REPAIR_HEADER`), so that neither a server nor the sidecar takes it for a position; and the id is a repair's, so that a
stream that remembers the id of a copy which it has lost takes it again. Each message is then compared as the sides are:
what would not be equal is not published.
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import replace
from typing import Final

from nats_bridge.bridge.replication import (
    CopyCounters,
    CopyEncoder,
    Delivered,
    Operation,
    Rejected,
    Target,
    parts_of,
    publication,
)
from nats_bridge.pipeline.diff.comparing import Comparison, reader
from nats_bridge.pipeline.diff.provenance import REPAIR_HEADER, provenance
from nats_bridge.pipeline.diff.repair.steps import Step
from nats_bridge.transforms import header_block
from nats_bridge.transforms.dialect import NEWEST
from nats_bridge.transforms.source_record import HEADER, TWIN_HEADER
from nats_bridge.transforms.sourcing import Sourcing, compile_sourcing

_ROLLUP: Final = b"\nNats-Rollup:"
_EXPECTED: Final = b"Nats-Expected-Last-Subject-Sequence"


class Copies:
    """Makes messages.

    Args:
        comparison: what is compared.
        stream: the left side's stream.
        target: the right side's.
        max_payload: bytes that its server takes in one message, headers included.
    """

    def __init__(self, comparison: Comparison, stream: str, target: Target, max_payload: int) -> None:
        self._comparison = comparison
        self._records = comparison.by == "provenance:right"
        self._puts = comparison.by == "subject"
        self._left, self._right = reader(comparison, right=False), reader(comparison, right=True)
        sourcing = comparison.rule
        if not isinstance(sourcing, Sourcing):
            name = comparison.source.decode() or stream
            sourcing = compile_sourcing({"name": name}, NEWEST, mirrors=False)
        key = hashlib.sha256("\n".join(["repair", stream, target.created]).encode()).hexdigest()[:12].encode()
        self._encoder = CopyEncoder(
            replace(sourcing, mirrors=False),
            key,
            target.with_record_header(REPAIR_HEADER),
            CopyCounters(),
            max_payload=max_payload,
            records=self._records,
        )

    def made(self, name: int, step: Step) -> Operation | str:
        """What to publish, or why it cannot be.

        Args:
            name: the operation's.
            step: with a message of the left side.
        """
        block = self._without_position(step.block)
        if not self._puts and _ROLLUP in block:
            return "its Nats-Rollup would remove others"
        if not self._records and not self._puts and self._comparison.by == "id" and provenance(block) is not None:
            return "it says where it comes from: compare with --by provenance"
        # Its last part stands where copies have the time: another content, or another message to repair, is another id.
        reply = b"$JS.ACK.S.C.1.%d.%d.%d.0" % (step.left, step.left, zlib.crc32(step.data, step.right & 0xFFFFFFFF))
        message: Delivered = (step.subject, reply, block, step.data)
        out: list[Operation] = []
        _, special = self._encoder.run([message], out)
        if isinstance(special, Rejected):
            return special.reason
        if not out and special is None:
            return "the rule does not copy it"
        operation = special or out[0]
        subject, block, data = parts_of(operation[1])
        if not self._is_equal(step, subject, block):
            return "the right side's stream would change it"
        if self._puts:
            block = header_block.append(block, [(_EXPECTED, b"%d" % step.right)])
            if len(block) + len(data) > self._encoder.limit:
                return f"with its headers it is larger than the {self._encoder.limit} bytes that the stream takes"
        return b"%d" % name, publication(subject, b"", block, data)

    def _without_position(self, block: bytes) -> bytes:
        """The block without the source records, or with them under the repair's name where they identify it."""
        if b"-Source:" not in block or self._records or self._comparison.by == "id":
            return block
        for name in (HEADER, TWIN_HEADER):
            line = b"\n" + name + b":"
            if self._puts:
                block = header_block.remove(block, name)
            elif line in block:
                block = block.replace(line, b"\n" + REPAIR_HEADER + b":")
        return block

    def _is_equal(self, step: Step, subject: bytes, block: bytes) -> bool:
        _, source, number, _, wanted, expected, _ = self._left(step.left, step.subject, step.block)
        _, of, made, _, _, changed, _ = self._right(0, subject, block)
        same = (wanted or step.subject) == subject and (step.block if expected is None else expected) == (
            block if changed is None else changed
        )
        return same and (source, number) == (of, made)
