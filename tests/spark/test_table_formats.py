"""docs/spark-backfill.md: captures as Delta and Iceberg tables, by the page's own programs."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nats_bridge.settings import Connection
from nats_bridge_spark.capture.capturing import CaptureRequest, capture
from nats_bridge_spark.progress import Progress
from tests.live.raw_messages import RawPeer
from tests.live.shared_servers import Name
from tests.spark.histories import block

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).parents[2] / "docs" / "spark-backfill.md").read_text("utf-8")
PROGRAMS = dict(re.findall(r"^```python\n# (\w+)\.py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
READERS = {
    "delta": "from deltalake import DeltaTable\ntable = DeltaTable('delta/orders').to_pyarrow_dataset().to_table()",
    "iceberg": "table = table.scan().to_arrow()",
}
# Without the interpreter's own end, in which a thread of deltalake that still reads aborts the process at times.
SHOWN = """
import os
rows = table.select(['sequence', 'subject', 'header_block', 'data']).to_pylist()
print([tuple(row.values()) for row in rows], flush=True)
os._exit(0)
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_table_has_each_captured_message_once(
    name: str, spark: SparkSession, url: str, peer: RawPeer, unique_name: Name, tmp_path: Path
) -> None:
    stream, lines = unique_name("TABLE"), block(b"A: 1")
    wanted = CaptureRequest(Connection(servers=(url,)), stream, str(tmp_path / "orders"))
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"])
    expected: list[tuple[int, str, bytes, bytes]] = []
    for _ in range(2):
        for number in range(len(expected) + 1, len(expected) + 51):
            data = b"%d" % number
            await peer.store(f"{stream}.{number % 3}".encode(), data, lines)
            expected.append((number, f"{stream}.{number % 3}", lines, data))
        await asyncio.to_thread(capture, spark, wanted, Progress("capture"))
        for _ in range(2):
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", f"{PROGRAMS[name]}\n{READERS[name]}\n{SHOWN}"),
                cwd=tmp_path,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            out, err = await process.communicate()
            assert process.returncode == 0, err.decode()
            assert sorted(eval(out)) == expected
    assert not [file for file in (tmp_path / "orders" / "messages").rglob("*") if "delta" in file.name]


def test_the_page_has_both() -> None:
    assert set(PROGRAMS) == set(READERS)
