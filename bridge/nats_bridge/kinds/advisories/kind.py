"""Rules of kind advisories, as `rule_kinds` offers them."""

from collections.abc import Iterator

from nats_bridge.consuming.consumer_plan import Durable
from nats_bridge.kinds.advisories.check import compile_advisories
from nats_bridge.kinds.advisories.counters import AdvisoriesCounters
from nats_bridge.kinds.advisories.model import AdvisoriesRule
from nats_bridge.kinds.advisories.permissions import advisories_needs
from nats_bridge.kinds.advisories.run import AdvisoriesRun
from nats_bridge.permissions.need import Need
from nats_bridge.permissions.stream_facts import KnownStreams
from nats_bridge.rule_kinds import Incoming, Meanings, Opened, Outcome, RuleKind
from nats_bridge.rules.context import RuleContext
from nats_bridge.rules.loops.moves import Landscape, Move, compiled
from nats_bridge.settings import Settings
from nats_transforms.dialect import Dialect
from nats_transforms.republish import Republished
from nats_transforms.subject_patterns import Pattern


class AdvisoriesKind(RuleKind[AdvisoriesRule]):
    """Rules of kind advisories."""

    operation = "republish"
    counters = AdvisoriesCounters
    meanings = Meanings(
        sent="republished",
        dropped={
            "unmatched": "unmatched",
            "suppressed": "suppressed",
            "reserved": "reserved",
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
    )
    no_history = "servers send advisories but do not store them, so there is no history"

    def run(self, rule: AdvisoriesRule, settings: Settings, connections: Opened, context: RuleContext) -> AdvisoriesRun:
        """Create the run of a rule."""
        source, target = connections[rule.source_connection], connections[rule.target_connection]
        return AdvisoriesRun(rule, source, target, context)

    def needs(self, rule: AdvisoriesRule, settings: Settings, dialect: Dialect, known: KnownStreams) -> Iterator[Need]:
        """Return the permissions that the users of a rule's connections need."""
        return advisories_needs(rule, settings, dialect)

    def moves(self, rule: AdvisoriesRule, landscape: Landscape, version: str) -> Iterator[Move]:
        """Yield the moves of messages through a rule."""
        source, destination = rule.republish.src or ">", rule.republish.dest
        dialect = landscape.dialect(rule.source_connection, version)
        outcome = compiled(source, destination, dialect)
        text = f"rule '{rule.name}' republishes the advisories {source} to {destination}"
        takes, puts = landscape.space(rule.source_connection), landscape.space(rule.target_connection)
        yield Move(text, rule.name, takes, puts, Pattern.of_source(source, dialect), (), outcome)

    def makes(self, rule: AdvisoriesRule, dialect: Dialect, incoming: Incoming) -> Iterator[Outcome]:
        """Yield the results of a rule for one message."""
        republish, message = compile_advisories(rule, dialect), incoming.message
        destination = republish.destination(message.subject)
        if destination is not None:
            payload = b"" if rule.republish.headers_only else message.payload
            yield Republished(destination, message.header_block, payload)
        elif outcome := republish.unselected(message) or republish.refusal(message.subject):
            yield outcome

    def keeps_position(self, rule: AdvisoriesRule) -> bool:
        """Return whether another replica resumes a rule where this one drained it."""
        return bool(rule.captured_by)

    def durables(self, rule: AdvisoriesRule, sidecar: str) -> tuple[Durable, ...]:
        """Return the durable consumer of the stream that stores the advisories."""
        if not rule.captured_by:
            return ()
        return (Durable.of(rule.name, rule.captured_by, rule.source_connection, sidecar),)

    def refuses_handoff(self, rule: AdvisoriesRule) -> str:
        """Return the reason why no server can take over from a rule."""
        return "servers do not republish advisories, so no server can take over: keep this rule on the bridge"


KIND = AdvisoriesKind()
