"""Rules of kind watch, as `rule_kinds` offers them."""

from __future__ import annotations

from nats_bridge.kinds.watching.counters import WatchCounters
from nats_bridge.kinds.watching.permissions import watch_needs
from nats_bridge.kinds.watching.run import WatchRun
from nats_bridge.rule_kinds import Meanings, RuleKind

KIND = RuleKind(
    operation="watch",
    counters=WatchCounters,
    meanings=Meanings(
        sent="sent",
        dropped={},
        facts={},
    ),
    run=lambda rule, _, connections, context: WatchRun(rule, connections[rule.connection], context),
    needs=watch_needs,
    moves=lambda *_: iter(()),
    makes=lambda *_: iter(()),
    refuses_handoff=lambda rule: (
        "no server compares its mirrors and sources with what they copy: it reports its own lag, which stays 0"
        " where it has stopped silently"
    ),
    no_history="a watch rule writes nothing",
    reads_stream=False,
)
