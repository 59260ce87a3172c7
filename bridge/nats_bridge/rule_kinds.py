"""The kinds of rules and their features: running, metrics, permissions, loop checks and handoff.

Rules, metrics and permissions ask for a kind by its name and import none: the packages of `kinds` are above them. A new
kind is a package there and a line here. Its modules `model` and `kind` are required. Others, such as `checks` and
`log_events`, are found by their names (`module_of`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeAlias, TypeVar, get_args

if TYPE_CHECKING:
    from nats_bridge.client.connection import Connection
    from nats_bridge.consuming.consumer_plan import Durable
    from nats_bridge.observability.counters import Counters
    from nats_bridge.permissions.need import Need
    from nats_bridge.permissions.stream_facts import KnownStreams
    from nats_bridge.rules.context import RuleContext
    from nats_bridge.rules.handoff.answer import Handoff, Wish
    from nats_bridge.rules.loops.moves import Landscape, Move
    from nats_bridge.rules.run import RuleRun
    from nats_bridge.settings import Rule, Settings
    from nats_transforms.dialect import Dialect
    from nats_transforms.republish import Refusal, Republished, StoredMessage
    from nats_transforms.selection import Unselected
    from nats_transforms.sourcing import Copied


RECEIVED, BYTES_OUT = "received", "bytes_out"
"""The counters of messages that a rule has taken, and of the bytes that it has written, in every kind."""


@dataclass(frozen=True, slots=True)
class Meanings:
    """The meaning of one kind's counters for status, metrics and traces, so that a new counter appears in all of them.

    Attributes:
        sent: the counter of messages that were passed on to the target, each once.
        dropped: counters of messages that did not, with the reason.
        facts: other counters that have a separate metric, with its name in `telemetry.names.FACTS`.
    """

    sent: str
    dropped: Mapping[str, str]
    facts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Incoming:
    """A message as a rule receives it.

    Attributes:
        message: the message; outside a stream, its sequence has no meaning.
        stream: the stream that stores it; empty for any.
        last_sequence: the sequence of the previous message with the same subject; 0 for none.
    """

    message: StoredMessage
    stream: str = ""
    last_sequence: int = 0


Outcome: TypeAlias = "Republished | Copied | Refusal | Unselected"
"""A message that a rule publishes or stores; or the reason why no client can publish it; or the reason why the rule
makes nothing."""

Opened: TypeAlias = "Mapping[str, Connection]"
"""Open connections by name."""


RuleT = TypeVar("RuleT", bound="Rule")


class RuleKind(ABC, Generic[RuleT]):
    """One kind of rule, or several kinds that run in the same way. `kind_of` finds the kind of a rule.

    Attributes:
        operation: the name of its work in spans.
        counters: the counters of its runs, with `Attributes` in the docstring.
        meanings: how to read its counters.
        reads_stream: whether it reads a stream, so that it has a lag.
        no_history: the reason why a rule cannot be backfilled; empty for a copying rule, which can.
    """

    operation: ClassVar[str]
    counters: ClassVar[type[Counters]]
    meanings: ClassVar[Meanings]
    reads_stream: ClassVar[bool] = False
    no_history: ClassVar[str] = "only copies can be put into a stream with a history"

    @abstractmethod
    def run(self, rule: RuleT, settings: Settings, connections: Opened, context: RuleContext) -> RuleRun:
        """Create the run of a rule. Nothing happens before its `check`."""

    @abstractmethod
    def needs(self, rule: RuleT, settings: Settings, dialect: Dialect, known: KnownStreams) -> Iterator[Need]:
        """Return the permissions that the users of a rule's connections need."""

    @abstractmethod
    def moves(self, rule: RuleT, landscape: Landscape, version: str) -> Iterator[Move]:
        """Yield the moves of messages through a rule.

        Raises:
            TransformError: the rule's own check would refuse it.
        """

    @abstractmethod
    def makes(self, rule: RuleT, dialect: Dialect, incoming: Incoming) -> Iterator[Outcome]:
        """Yield the results of a rule for one message, or the reason for none, if that needs no server."""

    def keeps_position(self, rule: RuleT) -> bool:
        """Return whether another replica resumes a rule without a loss where this one drained it."""
        return True

    def durables(self, rule: RuleT, sidecar: str) -> tuple[Durable, ...]:
        """Return the durable consumers that keep a rule's positions, given the sidecar's name."""
        return ()

    def refuses_handoff(self, rule: RuleT) -> str:
        """Return the reason why no server can take over from a rule; empty if one can, which `handoff` decides."""
        can = type(self).handoff is not RuleKind.handoff
        return "" if can else f"servers have no rules of kind {rule.kind}, so no server can take over"

    async def handoff(self, rule: RuleT, settings: Settings, connections: Opened, wish: Wish) -> Handoff:
        """Return the native configuration that takes over from a rule, or gives back to it with `Wish.back`.

        Called only if `refuses_handoff` returns no reason.
        """
        raise NotImplementedError

    async def take_over(
        self, rule: RuleT, settings: Settings, connections: Opened, answer: Handoff, wish: Wish
    ) -> Handoff | None:
        """Send the update for `handoff --apply` if more than the update is needed; return None otherwise."""
        return None

    @property
    def events(self) -> tuple[str, ...]:
        """The counters of events without a separate metric: all that `meanings` does not name."""
        meanings = self.meanings
        named = {RECEIVED, BYTES_OUT, meanings.sent, *meanings.dropped, *meanings.facts}
        return tuple(name for name in self.counters().as_dict() if name not in named)


# The packages as text: a sidecar loads the kinds that its configuration has.
KINDS: Final = MappingProxyType(
    {
        "republish": "republish",
        "sources": "copying",
        "mirror": "copying",
        "kv_sources": "copying",
        "subject_transform": "ingress",
        "advisories": "advisories",
        "watch": "watching",
    }
)
"""By the `kind` of a rule, the package whose modules `model` and `kind` have `RULES` and `KIND`."""


def kind_of(rule: Rule) -> RuleKind[Any]:
    """Return a rule's kind."""
    return kind_named(rule.kind)


def kind_named(name: str) -> RuleKind[Any]:
    """Return a kind by the `kind` of its rules.

    Raises:
        KeyError: there is none.
    """
    kind: RuleKind[Any] = module_of(name, "kind").KIND
    return kind


def has_module(kind: str, module: str) -> bool:
    """Return whether the package of a kind has a module of this name."""
    return find_spec(_path(kind, module)) is not None


def module_of(kind: str, module: str) -> ModuleType:
    """Import a module of a kind's package."""
    return import_module(_path(kind, module))


def _path(kind: str, module: str) -> str:
    return f"{__package__}.kinds.{KINDS[kind]}.{module}"


@cache
def rule_models() -> Mapping[str, type[Rule]]:
    """Return the model of every kind's rules, by kind."""
    modules = dict.fromkeys(module_of(kind, "model") for kind in KINDS)
    models = [model for module in modules for model in module.RULES]
    return {get_args(model.model_fields["kind"].annotation)[0]: model for model in models}
