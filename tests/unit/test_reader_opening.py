"""A reader whose opening is interrupted leaves nothing that waits. The connection is a stand-in."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from nats_bridge.client.write_fence import ALWAYS_OPEN
from nats_bridge.consuming.ordered_reader import OrderedReader
from nats_bridge.kinds.copying.counters import CopyCounters

INFO = {"created": "2026-01-01T00:00:00Z", "state": {"messages": 0, "last_seq": 0, "last_ts": "2026-01-01T00:00:00Z"}}


class NeverBegun(OrderedReader):
    """Its consumer is never found."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.looks = asyncio.Event()

    async def _begin(self, *, seeded: bool = False) -> None:
        self.looks.set()
        await asyncio.Event().wait()


async def subscribed(*_: Any, **__: Any) -> Any:
    return SimpleNamespace()


async def test_an_interrupted_opening_leaves_no_task() -> None:
    client = SimpleNamespace(is_connected=True, subscribe_batches=subscribed, new_inbox=lambda: "_INBOX.a")
    plan = SimpleNamespace(rule="rule", stream="S", position="none", filters=(), work_queue=False, direct=False)
    consumer = SimpleNamespace(plan=plan, name="c", inbox="", begins=None, fence=ALWAYS_OPEN)
    listening = {"on_disconnect": lambda _: None, "forget": lambda _: None, "is_lost_since": lambda _: False}
    connection = SimpleNamespace(client=client, name="default", losses=0, api=SimpleNamespace(), **listening)
    reader = NeverBegun(
        cast(Any, connection), cast(Any, consumer), cast(Any, SimpleNamespace()), CopyCounters(), lambda _: None
    )
    before = asyncio.all_tasks()
    opening = asyncio.create_task(reader.open(0, INFO))
    await reader.looks.wait()
    opening.cancel()
    await asyncio.wait([opening])
    assert reader._worker is not None
    reader._worker.cancel()
    await asyncio.wait([reader._worker])
    assert asyncio.all_tasks() == before
