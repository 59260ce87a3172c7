"""Rules of kind watch, as `rule_kinds` offers them."""

from collections.abc import Iterator

from nats_bridge.kinds.watching.counters import WatchCounters
from nats_bridge.kinds.watching.model import WatchRule
from nats_bridge.kinds.watching.permissions import watch_needs
from nats_bridge.kinds.watching.run import WatchRun
from nats_bridge.permissions.need import Need
from nats_bridge.permissions.stream_facts import KnownStreams
from nats_bridge.rule_kinds import Incoming, Meanings, Opened, Outcome, RuleKind
from nats_bridge.rules.context import RuleContext
from nats_bridge.rules.loops.moves import Landscape, Move
from nats_bridge.settings import Settings
from nats_transforms.dialect import Dialect


class WatchKind(RuleKind[WatchRule]):
    """Rules of kind watch."""

    operation = "watch"
    counters = WatchCounters
    meanings = Meanings(sent="sent", dropped={}, facts={})
    no_history = "a watch rule writes nothing"

    def run(self, rule: WatchRule, settings: Settings, connections: Opened, context: RuleContext) -> WatchRun:
        """Create the run of a rule."""
        return WatchRun(rule, connections[rule.connection], context)

    def needs(self, rule: WatchRule, settings: Settings, dialect: Dialect, known: KnownStreams) -> Iterator[Need]:
        """Return the permissions that the user of a rule's connection needs."""
        return watch_needs(rule)

    def moves(self, rule: WatchRule, landscape: Landscape, version: str) -> Iterator[Move]:
        """None: it writes nothing."""
        return iter(())

    def makes(self, rule: WatchRule, dialect: Dialect, incoming: Incoming) -> Iterator[Outcome]:
        """Nothing."""
        return iter(())

    def refuses_handoff(self, rule: WatchRule) -> str:
        """Return the reason why no server can take over from a rule."""
        return (
            "no server compares its mirrors and sources with what they copy: it reports its own lag, which stays 0"
            " where it has stopped silently"
        )


KIND = WatchKind()
