"""Rules of kind subject_transform, as the configuration has them."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from nats_bridge.settings.base import Hint, StreamName
from nats_bridge.settings.rule_parts import SubjectTransform
from nats_bridge.settings.rules import DIALECT, OneStreamRule, RuleName


class SubjectTransformRule(OneStreamRule):
    """Transform the subjects of messages before a stream stores them."""

    misplaced: ClassVar[Mapping[str, str]] = {
        "to": "publishers and the stream are on one connection; set it with 'from'",
        "start": "messages are transformed when they are published; remove it",
    }

    name: RuleName
    kind: Literal["subject_transform"] = Field(description="transform subjects at a stream's ingress")
    stream: Annotated[StreamName, Hint("the name of the stream that stores the transformed messages")] = Field(
        description="stream that stores the messages"
    )
    subject_transform: Annotated[
        SubjectTransform, Hint('for example: subject_transform: {src: "in.*", dest: "stored.{{partition(8,1)}}.$1"}')
    ] = Field(description="transform of the publishers' subjects")
    source_connection: str = Field(default="default", alias="from", description="connection of publishers and stream")
    dialect: str | None = Field(default=None, description=DIALECT)


RULES = (SubjectTransformRule,)
"""The models of this package's kinds."""
