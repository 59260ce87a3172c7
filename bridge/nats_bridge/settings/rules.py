"""The base of all rules. Each kind's package has its model.

Each carries the server's own object under its native name.
"""

from abc import abstractmethod
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema

from nats_bridge.rule_kinds import rule_models
from nats_bridge.settings.base import DurableName, Hint, Part
from nats_bridge.settings.rule_parts import Source

RuleName = Annotated[
    DurableName,
    Hint("give every rule a unique name"),
    Field(description="the rule's name, for logs, metrics and its durable consumer"),
]
"""The name of a rule, as a field."""

DIALECT: Final = "server version to reproduce, instead of the file's `dialect`"
"""The description of a rule's dialect."""


class Rule(Part):
    """A rule of any kind; each kind has a subclass with its fields."""

    if TYPE_CHECKING:  # fields, whose order each kind decides

        @property
        def name(self) -> str:
            """The rule's name."""

        @property
        def kind(self) -> str:
            """Its kind."""

        @property
        def dialect(self) -> str | None:
            """The dialect that it asks for, instead of the configuration's."""

    @property
    @abstractmethod
    def streams(self) -> tuple[tuple[str, str], ...]:
        """The streams that the rule names: each with its connection."""

    @property
    @abstractmethod
    def about(self) -> str:
        """The rule's subject in messages."""

    @property
    @abstractmethod
    def connections(self) -> tuple[str, ...]:
        """The names of the connections that the rule uses."""

    @property
    def entries(self) -> tuple[Source, ...]:
        """The streams that the rule copies, as entries of `sources`; empty if it copies nothing."""
        return ()


class OneStreamRule(Rule):
    """The common properties of rules of one stream."""

    if TYPE_CHECKING:

        @property
        def stream(self) -> str:
            """The stream that the rule reads or writes."""

        @property
        def source_connection(self) -> str:
            """The connection of the stream."""

    @property
    def streams(self) -> tuple[tuple[str, str], ...]:
        """The streams that the rule names: each with its connection."""
        return ((self.source_connection, self.stream),)

    @property
    def about(self) -> str:
        """The rule's subject in messages: its stream."""
        return self.stream

    @property
    def connections(self) -> tuple[str, ...]:
        """The names of the connections that the rule uses."""
        return (self.source_connection,)


class _ByKind:
    """Metadata of `Rule` that selects the model by `kind` for validation."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        models: Any = reduce(or_, rule_models().values())
        return handler.generate_schema(Annotated[models, Field(discriminator="kind")])


AnyRule: TypeAlias = Annotated[Rule, _ByKind()]
"""`Rule` as a field."""
