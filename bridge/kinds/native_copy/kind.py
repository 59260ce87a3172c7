"""Rules of kind native_copy, as `registry` offers them."""

from __future__ import annotations

from nats_bridge.bridge.kinds.kind import Meanings, RuleKind, no_durables
from nats_bridge.bridge.kinds.native_copy.counters import NativeCopyCounters
from nats_bridge.bridge.kinds.native_copy.moves import native_copy_moves
from nats_bridge.bridge.kinds.native_copy.permissions import native_copy_needs
from nats_bridge.bridge.kinds.native_copy.run import make_run

__all__ = ["KIND"]

KIND = RuleKind(
    operation="serve",
    counters=NativeCopyCounters,
    meanings=Meanings(
        sent="delivered",
        dropped={"unselected": "unselected"},
        facts={"headers_removed": "headers_stripped", "reconnects": "resumed"},
        events=("consumers", "refused_requests", "woken"),
    ),
    run=make_run,
    needs=native_copy_needs,
    moves=native_copy_moves,
    refuses_handoff=lambda rule: (
        "the server copies natively already: to do without the sidecar, give its source the rule's subject_transforms,"
        " the source's own external and opt_start_seq, or restore its mirror from a backup with these"
    ),
    handoff=None,
    take_over=None,
    durables=no_durables,
    keeps_position=lambda _: True,
    no_history="the server that copies reads the history itself",
    reads_stream=True,
)
