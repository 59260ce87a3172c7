"""Rules of kind sources, mirror and kv_sources, as `rule_kinds` offers them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from nats_bridge.consuming.consumer_plan import Durable
from nats_bridge.kinds.copying.acknowledging import durables
from nats_bridge.kinds.copying.counters import CopyCounters
from nats_bridge.kinds.copying.entry_subjects import compiled_entry
from nats_bridge.kinds.copying.model import CopyingRule, MirrorRule
from nats_bridge.kinds.copying.run import CopyRun
from nats_bridge.observability.counters import READING_FACTS
from nats_bridge.rule_kinds import Incoming, Meanings, Opened, Outcome, RuleKind
from nats_bridge.rules.context import RuleContext
from nats_bridge.rules.loops.moves import Landscape, Move, compiled, copying
from nats_bridge.settings import Settings
from nats_transforms.dialect import Dialect
from nats_transforms.subject_patterns import EVERYTHING, Pattern

if TYPE_CHECKING:
    from nats_bridge.permissions.need import Need
    from nats_bridge.permissions.stream_facts import KnownStreams
    from nats_bridge.rules.handoff.answer import Handoff, Wish


# Only commands need the modules on handoff and permissions, so they are imported on use.


class CopyingKind(RuleKind[CopyingRule]):
    """Rules of kind sources, mirror and kv_sources."""

    operation = "copy"
    counters = CopyCounters
    meanings = Meanings(
        sent="copied",
        dropped={"unselected": "unselected", "rejected": "rejected"},
        facts={
            **READING_FACTS,
            "duplicates": "duplicate",
            "asked_again": "resent",
            "withheld_headers": "headers_stripped",
            "out_of_order": "out_of_order",
        },
    )
    reads_stream = True
    no_history = ""

    def run(self, rule: CopyingRule, settings: Settings, connections: Opened, context: RuleContext) -> CopyRun:
        """Create the run of a rule."""
        return CopyRun(rule, settings, connections, context)

    def needs(self, rule: CopyingRule, settings: Settings, dialect: Dialect, known: KnownStreams) -> Iterator[Need]:
        """Return the permissions that the users of a rule's connections need."""
        from nats_bridge.kinds.copying.permissions import copying_needs

        return copying_needs(rule, settings, dialect, known)

    def moves(self, rule: CopyingRule, landscape: Landscape, version: str) -> Iterator[Move]:
        """Yield the moves of messages through a rule. Copies are published, so any stream may store them."""
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

    def makes(self, rule: CopyingRule, dialect: Dialect, incoming: Incoming) -> Iterator[Outcome]:
        """Yield the results of a rule for one message."""
        for entry in rule.entries:
            if incoming.stream in ("", entry.name):
                sourcing = compiled_entry(entry, dialect, mirrors=isinstance(rule, MirrorRule))
                if outcome := sourcing.apply(incoming.message) or sourcing.unselected(incoming.message):
                    yield outcome

    def durables(self, rule: CopyingRule, sidecar: str) -> tuple[Durable, ...]:
        """Return the durable consumers of the entries that acknowledge."""
        return durables(rule, sidecar)

    def refuses_handoff(self, rule: CopyingRule) -> str:
        """Return the reason why no server can take over from a rule."""
        if not isinstance(rule, MirrorRule):
            return ""
        filtered = rule.mirror.filter_subject or rule.mirror.subject_transforms
        how = "with the same filter or transforms " if filtered else ""
        # Copies that keep the source's sequences carry no record that anything else could resume from.
        other = (
            ""
            if rule.keep_sequence
            else "; or write the rule as kind: sources (it resumes from the same copies) and hand that over"
        )
        return (
            f"stream '{rule.stream}' cannot become a native mirror: servers refuse that (10055). Create a native mirror"
            f" of '{rule.mirror.name}' {how}next to it and let readers move there{other}"
        )

    async def handoff(self, rule: CopyingRule, settings: Settings, connections: Opened, wish: Wish) -> Handoff:
        """Return the native configuration that takes over from a rule, or gives back to it."""
        if wish.back:
            from nats_bridge.kinds.copying.handoff.from_server import copying_back

            return await copying_back(rule, connections)
        from nats_bridge.kinds.copying.handoff.to_server import CopyingHandoff

        return await CopyingHandoff(rule, settings, connections, wish).answer()


KIND = CopyingKind()
