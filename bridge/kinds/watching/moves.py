"""How messages move through a watch rule."""

from __future__ import annotations

from collections.abc import Iterator

from nats_bridge.bridge.rules.loops.moves import Landscape, Move
from nats_bridge.bridge.settings import WatchRule

__all__ = ["watch_moves"]


def watch_moves(rule: WatchRule, landscape: Landscape, version: str) -> Iterator[Move]:
    """The moves of a rule; see `RuleKind.moves`. None: it writes no messages."""
    return iter(())
