"""The moves of messages through a copying rule."""

from __future__ import annotations

from collections.abc import Iterator

from nats_bridge.bridge.rules.loops.moves import Landscape, Move, compiled, parts
from nats_bridge.bridge.rules.loops.subject_patterns import EVERYTHING, Pattern
from nats_bridge.bridge.settings import KvSourcesRule, MirrorRule, SourcesRule

__all__ = ["copying_moves"]


def copying_moves(rule: SourcesRule | MirrorRule | KvSourcesRule, landscape: Landscape, version: str) -> Iterator[Move]:
    """The moves of a rule; see `RuleKind.moves`. Copies are published: any stream may take them."""
    space, place = landscape.space(rule.target_connection), f"rule '{rule.name}'"
    dialect = landscape.dialect(rule.target_connection, version)
    for entry in rule.entries:
        excluded = tuple(map(Pattern.of, entry.exclude))
        found = list(parts(entry.native(), excluded, dialect, compiled))
        for source in landscape.stores(entry.connection, entry.name):
            for part in found:
                yield Move(f"{place} copies {part.text}", rule.name, source, space, *part.how)
                if rule.on_rejected.skip:
                    text = f"{place} puts what is rejected on {rule.on_rejected.skip}"
                    dead_letter = Pattern.of(rule.on_rejected.skip)
                    yield Move(text, rule.name, source, space, part.selects, part.leaves, dead_letter)
            if isinstance(rule, MirrorRule) and rule.keep_sequence and rule.filler_subject:
                filler, copied = Pattern.of(rule.filler_subject), tuple(part.selects for part in found)
                text = f"{place} fills gaps with {rule.filler_subject}"
                yield Move(text, rule.name, source, space, EVERYTHING, copied, filler)
