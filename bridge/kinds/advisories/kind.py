"""Rules of kind advisories, as `registry` offers them."""

from __future__ import annotations

from nats_bridge.bridge.kinds.advisories.counters import AdvisoriesCounters
from nats_bridge.bridge.kinds.advisories.moves import advisories_moves
from nats_bridge.bridge.kinds.advisories.permissions import advisories_needs
from nats_bridge.bridge.kinds.advisories.run import make_run
from nats_bridge.bridge.kinds.kind import Meanings, RuleKind, no_durables

__all__ = ["KIND"]

KIND = RuleKind(
    operation="republish",
    counters=AdvisoriesCounters,
    meanings=Meanings(
        sent="republished",
        dropped={
            "unmatched": "unmatched",
            "suppressed": "suppressed",
            "looped": "looped",
            "refused": "refused",
            "dropped": "overloaded",
        },
        facts={
            "in_doubt": "in_doubt",
            "repeated_out": "resent",
            "duplicates": "duplicate",
            "reconnects": "resumed",
        },
        # Too large with its message: the advisory is published without it.
        events=("attached", "messages_gone", "too_large", "stored"),
    ),
    run=make_run,
    needs=advisories_needs,
    moves=advisories_moves,
    refuses_handoff=lambda rule: (
        "servers do not republish advisories: nothing can take over, leave this rule to the bridge"
    ),
    handoff=None,
    take_over=None,
    durables=no_durables,
    keeps_position=lambda _: False,
    no_history="servers send these and keep none, so there is no history of them",
    reads_stream=False,
)
