"""Rules: what the sidecar does with a stream. Each carries the server's own object under its native name."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import Field, StrictBool, TypeAdapter

from bridge.settings.base import DurableName, Flag, Part, StreamName
from bridge.settings.start import Start, StartField

__all__ = ["LATER_KINDS", "Delivery", "RepublishObject", "RepublishRule", "Rule"]

LATER_KINDS: Final = ("sources", "mirror", "subject_transform", "kv_sources", "advisories")
"""Kinds of rules that are planned and not in this version."""


class Delivery(StrEnum):
    """What a crash may do: lose what was in hand (`at_most_once`), or double it (`at_least_once`)."""

    AT_MOST_ONCE = "at_most_once"
    AT_LEAST_ONCE = "at_least_once"


class RepublishObject(Part):
    """The `republish` object of a stream's configuration, as the server takes it."""

    src: str = Field(default=">", description="subjects to republish; may hold wildcards")
    dest: str = Field(description="where to, with $1 or {{functions}}; see ADR-28 and ADR-30")
    headers_only: StrictBool = Field(default=False, description="send no bodies, only Nats-Msg-Size")

    def native(self) -> dict[str, Any]:
        """The object as the server writes it, for a stream's configuration or for the engine."""
        return {"src": self.src, "dest": self.dest, "headers_only": self.headers_only}


class RepublishRule(Part):
    """Republish the messages of a stream, as ADR-28 describes it for the server."""

    name: DurableName = Field(description="the rule's name, in logs, metrics and its durable consumer's name")
    kind: Literal["republish"]
    stream: StreamName = Field(description="the stream whose messages are republished")
    republish: RepublishObject
    source_connection: str = Field(default="default", alias="from", description="connection that holds the stream")
    target_connection: str = Field(default="default", alias="to", description="connection that is published to")
    start: StartField = Field(
        default=Start(),
        description="where to begin when the rule has no position yet: new, first, a sequence or a time",
        json_schema_extra={"default": "new"},
    )
    delivery: Delivery = Field(
        default=Delivery.AT_MOST_ONCE,
        description="at_most_once: nothing is ever doubled; at_least_once: nothing is ever lost",
    )
    durable: Flag = Field(
        default=True, description="keep the position on the server; false leaves nothing behind there"
    )
    allow_side_effects: Flag = Field(
        default=False,
        description="run even where watching changes what a work-queue or interest stream holds",
    )
    dialect: str | None = Field(
        default=None, description="server version to behave like, instead of the configuration's"
    )


Rule = Annotated[RepublishRule, Field(discriminator="kind")]
"""Any rule; `kind` says which. More kinds join here as a union."""

RULE: Final[TypeAdapter[RepublishRule]] = TypeAdapter(Rule)
"""Validates one rule by itself."""
