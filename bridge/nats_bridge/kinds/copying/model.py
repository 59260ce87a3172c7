"""Rules that copy, as the configuration has them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from nats_bridge.settings.base import BucketName, Flag, Hint, StreamName
from nats_bridge.settings.rule_fields import OnRejected, OnRejectedField
from nats_bridge.settings.rule_parts import ENTRY_START, FROM_BEGINNING, KvSource, Source
from nats_bridge.settings.rules import DIALECT, Rule, RuleName

OBJECT_STREAM = "OBJ_"
"""Begins the name of an object store's stream."""

_ONCE: Final = "copies are stored exactly once, and the target contains the position; remove it"


class CopyingRule(Rule):
    """The common fields of rules that store copies in a stream."""

    misplaced: ClassVar[Mapping[str, str]] = {
        "start": ENTRY_START,
        "exclude": "set it in each entry of sources",
        "delivery": _ONCE,
        "durable": _ONCE,
    }

    target_connection: str = Field(default="default", alias="to", description="connection to write to")
    on_rejected: OnRejectedField = Field(
        default=OnRejected(),
        description="if the target rejects a message: stop, or publish it on the subject `skip` and continue",
        json_schema_extra={"default": "stop"},
    )
    on_recreated: Literal["stop", "restart"] = Field(
        default="stop", description="if a source was deleted and recreated: stop, or copy the new stream"
    )
    strict_order: Flag = Field(
        default=False,
        description="keep the order even if a cluster changes leaders; slow, because each message waits for an answer",
    )
    dialect: str | None = Field(default=None, description=DIALECT)

    @property
    @abstractmethod
    def target_stream(self) -> str:
        """The stream that receives."""

    @property
    @abstractmethod
    def entries(self) -> tuple[Source, ...]:
        """The rule's sources, as entries of `sources`."""

    @property
    def streams(self) -> tuple[tuple[str, str], ...]:
        """The streams that the rule names: each with its connection."""
        return ((self.target_connection, self.target_stream), *((each.connection, each.name) for each in self.entries))

    @property
    def about(self) -> str:
        """The rule's subject in messages: the stream that it copies into."""
        return self.target_stream

    @property
    def connections(self) -> tuple[str, ...]:
        """The names of the connections that the rule uses."""
        return (self.target_connection, *(entry.connection for entry in self.entries))


class SourcesRule(CopyingRule):
    """Copy streams into a stream, as the server does with `sources`."""

    misplaced: ClassVar[Mapping[str, str]] = {
        **CopyingRule.misplaced,
        "from": "set it in each entry of sources; 'to' is the connection of the target",
    }

    name: RuleName
    kind: Literal["sources"] = Field(description="copy streams into a stream")
    stream: Annotated[StreamName, Hint("the name of the target stream")] = Field(description="target stream")
    sources: Annotated[tuple[Source, ...], Hint("for example: sources: [{name: ORDERS}]")] = Field(
        description="the sources", min_length=1
    )

    @property
    def target_stream(self) -> str:
        """The stream that receives."""
        return self.stream

    @property
    def entries(self) -> tuple[Source, ...]:
        """The rule's sources, as entries of `sources`."""
        return self.sources


class MirrorRule(CopyingRule):
    """Copy one stream into another, as the server does with `mirror`."""

    misplaced: ClassVar[Mapping[str, str]] = {
        **CopyingRule.misplaced,
        "from": "write it into mirror; 'to' is the connection of the target",
        "start": "set opt_start_seq or opt_start_time in mirror",
        "exclude": "write it into mirror",
    }

    name: RuleName
    kind: Literal["mirror"] = Field(description="copy one stream into another")
    stream: Annotated[StreamName, Hint("the name of the target stream")] = Field(
        description="target stream: an ordinary stream, not a native mirror"
    )
    mirror: Annotated[Source, Hint("for example: mirror: {name: ORDERS}")] = Field(description="the source")
    keep_sequence: Flag = Field(default=False, description="keep the source's sequence numbers")
    filler_subject: str | None = Field(
        default=None, description="with keep_sequence: subject of the empty messages for numbers that the source lacks"
    )

    @property
    def target_stream(self) -> str:
        """The stream that receives."""
        return self.stream

    @property
    def entries(self) -> tuple[Source, ...]:
        """The rule's sources, as entries of `sources`."""
        return (self.mirror,)


class KvSourcesRule(CopyingRule):
    """Copy buckets into a bucket: puts, deletes and purges."""

    misplaced: ClassVar[Mapping[str, str]] = {
        **CopyingRule.misplaced,
        "from": "set it in each entry of sources; 'to' is the connection of the target",
        "start": FROM_BEGINNING,
    }

    name: RuleName
    kind: Literal["kv_sources"] = Field(description="copy buckets into a bucket")
    bucket: Annotated[BucketName, Hint("the name of the target bucket")] = Field(description="target bucket")
    sources: Annotated[tuple[KvSource, ...], Hint("for example: sources: [{bucket: SETTINGS}]")] = Field(
        description="buckets to copy", min_length=1
    )

    @property
    def target_stream(self) -> str:
        """The stream that receives."""
        return f"KV_{self.bucket}"

    @property
    def entries(self) -> tuple[Source, ...]:
        """The rule's sources, as entries of `sources`."""
        return tuple(source.entry(self.bucket) for source in self.sources)


RULES = (
    SourcesRule,
    MirrorRule,
    KvSourcesRule,
)
"""The models of this package's kinds."""
