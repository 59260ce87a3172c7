"""Imports nats-py without its optional parts (aiohttp, `nats.js`), which load on first use.

nats-py imports aiohttp for WebSockets alone, and aiohttp reads the system's certificate authorities, twice. Its own
JetStream client, `nats.js`, takes most of the rest; the bridge has `jetstream_api`. A command that asks a server takes
a quarter less time without both, and 10 MiB less. Nothing is replaced: the first use of an attribute loads the module.

The bridge imports nats-py only from here, because an earlier import elsewhere would load both parts.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType

__all__ = ["Client", "TcpTransport", "errors"]


class _LateFinder(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in ("aiohttp", "nats.js") else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


sys.meta_path.insert(0, _finder := _LateFinder())
try:
    from nats import errors
    from nats.aio.client import Client
    from nats.aio.transport import TcpTransport
finally:
    sys.meta_path.remove(_finder)
