"""The moves of messages through a native_copy rule."""

from __future__ import annotations

from collections.abc import Iterator

from nats_bridge.bridge.rules.loops.moves import Landscape, Move
from nats_bridge.bridge.settings import NativeCopyRule

__all__ = ["native_copy_moves"]


def native_copy_moves(rule: NativeCopyRule, landscape: Landscape, version: str) -> Iterator[Move]:
    """The moves of a rule; see `RuleKind.moves`. None: what copies is the server's own mirror or source."""
    return iter(())
