"""nats-py as the bridge imports it: without aiohttp's HTTP client, which is loaded where a WebSocket is opened.

nats-py imports aiohttp for WebSockets alone, and that takes longer than nats-py and the bridge together: aiohttp reads
the system's certificate authorities, twice, before there is any connection. So here the package is found by a finder
that has it loaded late (`importlib.util.LazyLoader`): nats-py gets the module, and the first use of one of its
attributes loads it, as does the next import. Nothing is replaced, and WebSockets work.

The rest of the bridge imports nats-py from here; an earlier import elsewhere would have loaded aiohttp.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType

__all__ = ["Client", "TcpTransport", "errors"]


class _LateFinder(MetaPathFinder):
    """Finds one package as usual, and has its first use load it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname == self._name else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


@contextmanager
def _late(name: str) -> Iterator[None]:
    finder = _LateFinder(name)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


with _late("aiohttp"):
    from nats import errors
    from nats.aio.client import Client
    from nats.aio.transport import TcpTransport
