"""Republish rules, as the configuration has them."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from nats_bridge.settings.base import Flag, Hint, StreamName, Subject
from nats_bridge.settings.rule_fields import Start, StartField
from nats_bridge.settings.rule_parts import EXCLUDE, WHERE, HeaderEquals, RepublishObject
from nats_bridge.settings.rules import DIALECT, OneStreamRule, RuleName


class Delivery(StrEnum):
    """The effect of a crash: messages in flight are lost (`at_most_once`), or duplicated (`at_least_once`)."""

    AT_MOST_ONCE = "at_most_once"
    AT_LEAST_ONCE = "at_least_once"


class RepublishRule(OneStreamRule):
    """Republish the messages of a stream."""

    name: RuleName
    kind: Literal["republish"] = Field(description="republish what a stream stores")
    stream: Annotated[StreamName, Hint("the name of the stream to republish")] = Field(
        description="stream to republish"
    )
    republish: Annotated[RepublishObject, Hint('for example: republish: {src: "orders.>", dest: "monitor.>"}')] = Field(
        description="subjects to select and transform"
    )
    exclude: tuple[Subject, ...] = Field(default=(), description=EXCLUDE)
    where: HeaderEquals | None = Field(default=None, description=WHERE)
    source_connection: str = Field(default="default", alias="from", description="connection of the stream")
    target_connection: str = Field(default="default", alias="to", description="connection to write to")
    start: StartField = Field(
        default=Start(),
        description="first message, if the rule has no position yet",
        json_schema_extra={"default": "new"},
    )
    delivery: Delivery = Field(
        default=Delivery.AT_MOST_ONCE,
        description="at_most_once: a crash can lose messages; at_least_once: a crash can repeat them",
    )
    durable: Flag = Field(default=True, description="keep the position on the server")
    allow_side_effects: Flag = Field(
        default=False,
        description="run even if reading changes which messages a work-queue or interest stream keeps",
    )
    dialect: str | None = Field(default=None, description=DIALECT)

    @property
    def connections(self) -> tuple[str, ...]:
        """The names of the connections that the rule uses."""
        return self.source_connection, self.target_connection


RULES = (RepublishRule,)
"""The models of this package's kinds."""
