"""Modules that other packages import and that a start does not need: loaded at their first use, or not at all.

Nothing is replaced: a late module is found as usual, and the first use of one of its attributes loads it, as does the
next import (`importlib.util.LazyLoader`). Without it, a sidecar takes 57 MiB after its start instead of 44, and needs
twice the CPU until then: aiohttp takes 10 MiB, and nats-py imports it for WebSockets alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType


class _LateFinder(MetaPathFinder):
    def __init__(self, names: Sequence[str]) -> None:
        self._names = frozenset(names)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname in self._names else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


@contextmanager
def late(*names: str) -> Iterator[None]:
    """Within it, have modules loaded at their first use.

    Args:
        names: modules or packages; those already imported stay as they are.
    """
    finder = _LateFinder(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
