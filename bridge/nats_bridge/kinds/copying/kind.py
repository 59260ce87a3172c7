"""Rules of kind sources, mirror and kv_sources, as `rule_kinds` offers them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from nats_bridge.kinds.copying.acknowledging import durables
from nats_bridge.kinds.copying.counters import CopyCounters
from nats_bridge.kinds.copying.run import CopyRun
from nats_bridge.kinds.copying.target_subjects import compiled_entry
from nats_bridge.late_imports import late
from nats_bridge.observability.counters import READING_FACTS
from nats_bridge.rule_kinds import Incoming, Meanings, Outcome, RuleKind
from nats_bridge.rules.loops.moves import Landscape, Move, compiled, copying
from nats_bridge.settings import CopyingRule, KvSourcesRule, MirrorRule, Settings, SourcesRule
from nats_transforms.dialect import Dialect
from nats_transforms.subject_patterns import EVERYTHING, Pattern

with late(
    f"{__package__}.handoff", f"{__package__}.handoff_back", f"{__package__}.permissions"
):  # asked for by commands, not by a start
    from nats_bridge.kinds.copying import handoff, handoff_back, permissions

if TYPE_CHECKING:
    from nats_bridge.client.connection import Connection
    from nats_bridge.rules.handoff.answer import Handoff, Wish


def _refuses_handoff(rule: CopyingRule) -> str:
    if not isinstance(rule, MirrorRule):
        return ""
    filtered = rule.mirror.filter_subject or rule.mirror.subject_transforms
    how = "with the same filter or transforms " if filtered else ""
    # Copies that keep the source's sequences carry no record from which anything else could resume.
    other = (
        ""
        if rule.keep_sequence
        else "; or write the rule as kind: sources (it resumes from the same copies) and hand that over"
    )
    return (
        f"stream '{rule.stream}' cannot become a native mirror: servers refuse that (10055). Create a native mirror of"
        f" '{rule.mirror.name}' {how}next to it and let readers move there{other}"
    )


async def _handoff(
    rule: SourcesRule | KvSourcesRule, settings: Settings, connections: Mapping[str, Connection], wish: Wish
) -> Handoff:
    if wish.back:
        return await handoff_back.copying_back(rule, connections)
    return await handoff.CopyingHandoff(rule, settings, connections, wish).answer()


def _makes(rule: CopyingRule, dialect: Dialect, incoming: Incoming) -> Iterator[Outcome]:
    for entry in rule.entries:
        if incoming.stream in ("", entry.name):
            sourcing = compiled_entry(entry, dialect, mirrors=isinstance(rule, MirrorRule))
            if outcome := sourcing.apply(incoming.message) or sourcing.unselected(incoming.message):
                yield outcome


def _moves(rule: SourcesRule | MirrorRule | KvSourcesRule, landscape: Landscape, version: str) -> Iterator[Move]:
    """The moves of a rule; see `RuleKind.moves`. Copies are published: any stream may take them."""
    space, place = landscape.space(rule.target_connection), f"rule '{rule.name}'"
    build = partial(compiled, version=landscape.dialect(rule.target_connection, version))
    for entry in rule.entries:
        excluded = tuple(map(Pattern.of, entry.exclude))
        for source in landscape.stores(entry.connection, entry.name):
            copies = list(copying(entry.native(), f"{place} copies", rule.name, source, space, excluded, build))
            for copy in copies:
                yield copy
                if rule.on_rejected.skip:
                    text = f"{place} puts what is rejected on {rule.on_rejected.skip}"
                    yield replace(copy, text=text, becomes=Pattern.of(rule.on_rejected.skip))
            if isinstance(rule, MirrorRule) and rule.keep_sequence and rule.filler_subject:
                filler, copied = Pattern.of(rule.filler_subject), tuple(copy.selects for copy in copies)
                text = f"{place} fills gaps with {rule.filler_subject}"
                yield Move(text, rule.name, source, space, EVERYTHING, copied, filler)


KIND = RuleKind(
    operation="copy",
    counters=CopyCounters,
    meanings=Meanings(
        sent="copied",
        dropped={"unselected": "unselected", "rejected": "rejected"},
        facts={
            **READING_FACTS,
            "duplicates": "duplicate",
            "resent": "resent",
            "withheld_headers": "headers_stripped",
            "out_of_order": "out_of_order",
        },
    ),
    run=CopyRun,
    needs=lambda rule, settings, dialect, known: permissions.copying_needs(rule, settings, dialect, known),
    moves=_moves,
    makes=_makes,
    refuses_handoff=_refuses_handoff,
    handoff=_handoff,
    durables=durables,
    reads_stream=True,
)
