"""Clocks, chances and names of the bridge, from the seed: what would differ between two runs of one seed.

The order of sets of text depends on `PYTHONHASHSEED`, which the command sets to 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import zlib
from collections.abc import Callable, Iterator, MutableMapping
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import structlog
import yaml

from nats_bridge.client import consumer_names
from nats_bridge.client.connection import Connection
from nats_bridge.kinds.copying.writing.in_flight import Window
from tests.simulation.network import SimulatedSocket
from tests.simulation.world import BEGAN_NS, World

_SMALL: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("limits.yaml").read_text())
_SHOWN = ("event", "rule", "reason", "stream", "after", "consumer")


def running() -> str:
    """The name of the process under simulation that runs at this moment."""
    return str(getattr(asyncio.events._get_running_loop(), "name", "none"))


@contextlib.contextmanager
def determined(
    world: World, noted: Callable[[MutableMapping[str, Any]], None], *, is_small: bool = False
) -> Iterator[None]:
    """Let a world replace everything that the bridge asks of its surroundings.

    `noted` is called with each event that the bridge logs. If `is_small`, a few messages reach the sidecar's limits.
    """
    chance = world.chance

    class Moment(datetime):
        """The time of day of the world."""

        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return datetime.fromtimestamp(world.now + world.clock_step + BEGAN_NS / 1e9, tz or UTC)

    def log(_: Any, __: str, event: MutableMapping[str, Any]) -> Any:
        noted(event)
        said = " ".join(f"{name}={event[name]}" for name in _SHOWN if name in event)
        world.record(f"log {said}")
        raise structlog.DropEvent

    drawn = SimpleNamespace(Random=lambda seed=None: random.Random(chance.getrandbits(64) if seed is None else seed))
    random.seed(chance.getrandbits(64))
    consumer_names._in_use.clear()
    structlog.configure(processors=[structlog.contextvars.merge_contextvars, log], cache_logger_on_first_use=False)
    replaced: dict[str, Any] = {
        "time.time": lambda: world.now + world.clock_step + BEGAN_NS / 1e9,
        "time.time_ns": lambda: world.now_ns + int(world.clock_step * 1e9),
        **dict.fromkeys(("time.monotonic", "time.clock_gettime"), lambda *_: world.now + 1.0),
        **dict.fromkeys(
            ("secrets.token_hex", "nats.aio.client.token_hex"), lambda size=32: chance.randbytes(size).hex()
        ),
        "socket.gethostname": running,
        "nats.nuid.randbelow": chance.randrange,
        "nats.nuid.token_bytes": chance.randbytes,
        **dict.fromkeys((f"nats_bridge.client.{name}.random" for name in ("reconnect_schedule", "server_pool")), drawn),
        "nats_bridge.rules.leadership.leases.os": SimpleNamespace(getpid=lambda: 1),
        "nats_bridge.client.wide_transport.FencedSocket": SimulatedSocket,
        "nats_bridge.client.consumer_names.place": running,
        "nats_bridge.client.connection.place": running,
    }
    for name, module in sorted(sys.modules.items()):
        if name.startswith("nats_bridge.") and getattr(module, "datetime", None) is datetime:
            replaced[f"{name}.datetime"] = Moment
    if is_small:
        replaced |= _SMALL | {"nats_bridge.client.delivery_limit._CALM": chance.choice([2.0, 600.0])}
        Window.__init__.__defaults__, Window.__init__.__kwdefaults__ = (16, 16 << 20), {"least": 16}
    with contextlib.ExitStack() as stack:
        for name, value in replaced.items():
            stack.enter_context(patch(name, value))
        stack.enter_context(patch.object(Connection, "__hash__", lambda self: zlib.crc32(self.name.encode())))
        yield
