"""Histories for comparisons, written as files without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

_SCHEMA = pa.schema(
    [
        ("stream", pa.string()),
        ("subject", pa.string()),
        ("sequence", pa.int64()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("time_ns", pa.int64()),
        ("header_block", pa.binary()),
        ("data", pa.binary()),
    ]
)


@dataclass(frozen=True, slots=True)
class Stored:
    """A message of a history."""

    sequence: int
    subject: str = "a.b"
    block: bytes | None = b""
    data: bytes | None = b"x"


def block(*lines: bytes) -> bytes:
    """A header block of these lines."""
    return b"NATS/1.0\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def history(folder: Path, messages: Iterable[Stored], *, stream: str = "S", files: int = 1) -> Path:
    """Write messages as Parquet; the folder."""
    every = list(messages)
    folder.mkdir(parents=True)
    size = -(-len(every) // files) or 1
    for at, some in enumerate(_cut(every, size)):
        columns = {
            "stream": [stream] * len(some),
            "subject": [each.subject for each in some],
            "sequence": [each.sequence for each in some],
            "time": [1_700_000_000_000_000 + each.sequence for each in some],
            "time_ns": [(1_700_000_000_000_000 + each.sequence) * 1000 for each in some],
            "header_block": [each.block for each in some],
            "data": [each.data for each in some],
        }
        pa.parquet.write_table(pa.table(columns, _SCHEMA), folder / f"part-{at}.parquet")
    return folder


def _cut(every: list[Stored], size: int) -> Iterator[list[Stored]]:
    for start in range(0, max(len(every), 1), size):
        yield every[start : start + size]
