"""Rules of kind advisories, as the configuration has them."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from nats_bridge.settings.base import Flag, Hint, StreamName
from nats_bridge.settings.rule_parts import RepublishObject
from nats_bridge.settings.rules import DIALECT, Rule, RuleName


class AdvisoriesRule(Rule):
    """Republish JetStream's advisories, or the messages that they are about."""

    misplaced: ClassVar[Mapping[str, str]] = {
        "stream": "the stream is part of the advisories' subjects; put it into republish.src, or into captured_by if it"
        " stores advisories",
        "start": "a rule receives new advisories or, with captured_by, all advisories in that stream; remove it",
    }

    name: RuleName
    kind: Literal["advisories"] = Field(description="republish advisories, such as dead letters")
    republish: Annotated[
        RepublishObject,
        Hint('for example: republish: {src: "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.*.*", dest: "dlq.$1.$2"}'),
    ] = Field(description="advisories to select, and their new subjects")
    attach_message: Flag = Field(
        default=False, description="publish the message that the advisory is about, with the advisory in its headers"
    )
    captured_by: StreamName | None = Field(
        default=None, description="stream that stores the advisories, so that the rule misses none"
    )
    copies_in: tuple[StreamName, ...] = Field(
        default=(), description="streams with copies, in case the message is lost in its own stream"
    )
    source_connection: str = Field(default="default", alias="from", description="connection of the advisories")
    target_connection: str = Field(default="default", alias="to", description="connection to write to")
    dialect: str | None = Field(default=None, description=DIALECT)

    @property
    def streams(self) -> tuple[tuple[str, str], ...]:
        """The streams that the rule names: each with its connection."""
        named = (*filter(None, (self.captured_by,)), *self.copies_in)
        return tuple((self.source_connection, stream) for stream in named)

    @property
    def about(self) -> str:
        """The rule's subject in messages: the pattern of advisories."""
        return self.republish.src

    @property
    def connections(self) -> tuple[str, ...]:
        """The names of the connections that the rule uses."""
        return self.source_connection, self.target_connection


RULES = (AdvisoriesRule,)
"""The models of this package's kinds."""
