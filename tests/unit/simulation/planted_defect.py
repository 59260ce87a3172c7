"""The simulation of a sidecar with a defect: after each reconnect, the first delivery is lost in the sidecar."""

from __future__ import annotations

import sys
from collections.abc import Awaitable
from typing import Any
from unittest.mock import patch

from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.reader import Reader
from tests.simulation.__main__ import main

_reconnected, _hand_on = Reader._reconnected, Reader._hand_on
_drops: set[int] = set()


def _loses_next(reader: Reader, *arguments: Any) -> Any:
    _drops.add(id(reader))
    return _reconnected(reader, *arguments)


def _loses(reader: Reader, batch: list[Delivered], last: int, *, again: bool = False) -> Awaitable[None] | None:
    if id(reader) in _drops:
        _drops.remove(id(reader))
        batch = batch[1:]
    return _hand_on(reader, batch, last, again=again) if batch else None


if __name__ == "__main__":
    with patch.object(Reader, "_reconnected", _loses_next), patch.object(Reader, "_hand_on", _loses):
        sys.exit(main())
