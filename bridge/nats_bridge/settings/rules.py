"""Rules: what the sidecar does with a stream. Each carries the server's own object under its native name."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from enum import StrEnum
from functools import reduce
from operator import or_
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, TypeAlias, get_args

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema

from nats_bridge.settings.base import (
    BucketName,
    DurableName,
    Flag,
    Hint,
    Part,
    StreamName,
    StreamPattern,
    Subject,
)
from nats_bridge.settings.rule_fields import (
    OnRejected,
    OnRejectedField,
    Start,
    StartField,
)
from nats_bridge.settings.rule_parts import (
    ENTRY_START,
    EXCLUDE,
    FROM_BEGINNING,
    WHERE,
    HeaderEquals,
    KvSource,
    RepublishObject,
    Source,
    SubjectTransform,
)

OBJECT_STREAM = "OBJ_"
"""Begins the name of an object store's stream."""


class Delivery(StrEnum):
    """The effect of a crash: messages in flight are lost (`at_most_once`), or duplicated (`at_least_once`)."""

    AT_MOST_ONCE = "at_most_once"
    AT_LEAST_ONCE = "at_least_once"


_Name = Annotated[
    DurableName,
    Hint("give every rule a name of its own"),
    Field(description="the rule's name, in logs, metrics and its durable consumer's name"),
]
_DIALECT: Final = "server version to behave like, instead of the configuration's"


class Rule(Part):
    """A rule of any kind; a subclass per kind has its fields."""

    if TYPE_CHECKING:  # fields, each where it stands among those of its kind

        @property
        def name(self) -> str:
            """The rule's name."""
            ...

        @property
        def kind(self) -> str:
            """Its kind."""
            ...

        @property
        def dialect(self) -> str | None:
            """The dialect that it asks for, instead of the configuration's."""
            ...

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
        """The streams that the rule copies, as entries of `sources`; none if it copies nothing."""
        return ()


class _OneStreamRule(Rule):
    """The common properties of rules of one stream."""

    if TYPE_CHECKING:

        @property
        def stream(self) -> str: ...

        @property
        def source_connection(self) -> str: ...

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


class RepublishRule(_OneStreamRule):
    """Republish the messages of a stream, as ADR-28 describes it for the server."""

    name: _Name
    kind: Literal["republish"] = Field(description="republish what a stream stores")
    stream: Annotated[StreamName, Hint("the name of the stream to republish")] = Field(
        description="the stream whose messages are republished"
    )
    republish: Annotated[RepublishObject, Hint('such as republish: {src: "orders.>", dest: "monitor.>"}')] = Field(
        description="which subjects, and what they become; the native object"
    )
    exclude: tuple[Subject, ...] = Field(default=(), description=EXCLUDE)
    where: HeaderEquals | None = Field(default=None, description=WHERE)
    source_connection: str = Field(default="default", alias="from", description="connection that holds the stream")
    target_connection: str = Field(default="default", alias="to", description="connection that is published to")
    start: StartField = Field(
        default=Start(),
        description="where to begin when the rule has no position yet: new, first, a sequence or a time",
        json_schema_extra={"default": "new"},
    )
    delivery: Delivery = Field(
        default=Delivery.AT_MOST_ONCE,
        description="at_most_once: nothing is ever duplicated; at_least_once: nothing is ever lost",
    )
    durable: Flag = Field(
        default=True, description="keep the position on the server; false leaves nothing behind there"
    )
    allow_side_effects: Flag = Field(
        default=False,
        description="run even where watching changes what a work-queue or interest stream holds",
    )
    dialect: str | None = Field(default=None, description=_DIALECT)

    @property
    def connections(self) -> tuple[str, ...]:
        """The names of the connections that the rule uses."""
        return self.source_connection, self.target_connection


_ONCE: Final = "copies are stored exactly once, and the stream that receives holds the position; remove it"


class CopyingRule(Rule):
    """The common fields of rules that store copies in a stream."""

    misplaced: ClassVar[Mapping[str, str]] = {
        "start": ENTRY_START,
        "exclude": "each entry of sources has its own exclude",
        "delivery": _ONCE,
        "durable": _ONCE,
    }

    target_connection: str = Field(default="default", alias="to", description="connection that holds the stream")
    on_rejected: OnRejectedField = Field(
        default=OnRejected(),
        description='what to do with a message that the stream refuses: stop, or {skip: "dead.letter.subject"}',
        json_schema_extra={"default": "stop"},
    )
    on_recreated: Literal["stop", "restart"] = Field(
        default="stop", description="what to do when a source is a new stream of the same name"
    )
    strict_order: Flag = Field(
        default=False,
        description="wait for each message's answer: order is kept even if a cluster changes leaders; slow",
    )
    dialect: str | None = Field(default=None, description=_DIALECT)

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
    """Copy from streams into a stream, as the server does with `sources`."""

    misplaced: ClassVar[Mapping[str, str]] = {
        **CopyingRule.misplaced,
        "from": "each entry of sources has its own from; 'to' is the connection of the stream that receives",
    }

    name: _Name
    kind: Literal["sources"] = Field(description="copy from streams into a stream")
    stream: Annotated[StreamName, Hint("the name of the stream that receives")] = Field(
        description="the stream that receives"
    )
    sources: Annotated[tuple[Source, ...], Hint("such as sources: [{name: ORDERS}]")] = Field(
        description="the sources, as in a stream's configuration", min_length=1
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
        "from": "write it into mirror; 'to' is the connection of the stream that receives",
        "start": "mirror says where it begins, with opt_start_seq or opt_start_time",
        "exclude": "write it into mirror",
    }

    name: _Name
    kind: Literal["mirror"] = Field(description="copy one stream into another")
    stream: Annotated[StreamName, Hint("the name of the stream that receives")] = Field(
        description="the stream that receives; an ordinary stream, not a native mirror"
    )
    mirror: Annotated[Source, Hint("such as mirror: {name: ORDERS}")] = Field(
        description="the source, as in a stream's configuration"
    )
    keep_sequence: Flag = Field(default=False, description="the copies have the source's sequence numbers")
    filler_subject: str | None = Field(
        default=None, description="with keep_sequence: a subject of the stream for numbers that the source lacks"
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
        "from": "each entry of sources has its own from; 'to' is the connection of the bucket that receives",
        "start": FROM_BEGINNING,
    }

    name: _Name
    kind: Literal["kv_sources"] = Field(description="copy buckets into a bucket")
    bucket: Annotated[BucketName, Hint("the name of the bucket that receives")] = Field(
        description="the bucket that receives"
    )
    sources: Annotated[tuple[KvSource, ...], Hint("such as sources: [{bucket: SETTINGS}]")] = Field(
        description="the buckets that are copied from", min_length=1
    )

    @property
    def target_stream(self) -> str:
        """The stream that receives."""
        return f"KV_{self.bucket}"

    @property
    def entries(self) -> tuple[Source, ...]:
        """The rule's sources, as entries of `sources`."""
        return tuple(source.entry(self.bucket) for source in self.sources)


class SubjectTransformRule(_OneStreamRule):
    """A stream's ingress transform from outside: the publisher uses `src`, the stream stores `dest`."""

    misplaced: ClassVar[Mapping[str, str]] = {
        "to": "publishers and stream are on one connection; 'from' names it",
        "start": "messages are transformed as they are published; remove it",
    }

    name: _Name
    kind: Literal["subject_transform"] = Field(description="transform subjects at a stream's ingress")
    stream: Annotated[StreamName, Hint("the name of the stream that stores the transformed messages")] = Field(
        description="the stream that stores, and answers the publisher"
    )
    subject_transform: Annotated[
        SubjectTransform, Hint('such as subject_transform: {src: "in.*", dest: "stored.{{partition(8,1)}}.$1"}')
    ] = Field(description="src: what publishers use; dest: what the stream stores")
    source_connection: str = Field(default="default", alias="from", description="connection of publishers and stream")
    dialect: str | None = Field(default=None, description=_DIALECT)


class AdvisoriesRule(Rule):
    """Republish JetStream's advisories, if wanted with the message that they are about."""

    misplaced: ClassVar[Mapping[str, str]] = {
        "stream": "the stream is part of the advisories' subjects, put it into republish.src; captured_by names a"
        " stream that stores them",
        "start": "advisories are not stored, a rule receives new ones, or all of a stream (captured_by); remove it",
    }

    name: _Name
    kind: Literal["advisories"] = Field(description="republish advisories, such as dead letters")
    republish: Annotated[
        RepublishObject,
        Hint('such as republish: {src: "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.*.*", dest: "dlq.$1.$2"}'),
    ] = Field(description="which advisories, and what their subjects become")
    attach_message: Flag = Field(
        default=False, description="publish the message that the advisory is about, the advisory in its headers"
    )
    captured_by: StreamName | None = Field(
        default=None, description="a stream that stores these advisories: they are read from it, so that none is missed"
    )
    copies_in: tuple[StreamName, ...] = Field(
        default=(), description="streams with copies of the messages, for those that their own stream has lost"
    )
    source_connection: str = Field(
        default="default", alias="from", description="connection that receives the advisories"
    )
    target_connection: str = Field(default="default", alias="to", description="connection that is published to")
    dialect: str | None = Field(default=None, description=_DIALECT)

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


class WatchRule(Rule):
    """Watch native mirrors and sources, and report which are stalled."""

    misplaced: ClassVar[Mapping[str, str]] = {
        "from": "'connection' names the one whose account is watched",
        "to": "'connection' names the one whose account is watched",
        "stream": "write streams: [NAME]",
        "dialect": "it transforms nothing; remove it",
    }

    name: _Name
    kind: Literal["watch"] = Field(description="watch native mirrors and sources for stalls")
    connection: str = Field(default="default", description="connection whose account is watched")
    watched_streams: tuple[StreamPattern, ...] = Field(
        default=("*",),
        alias="streams",
        min_length=1,
        description="streams whose mirror or sources are watched; `*` stands for any characters",
    )
    stalled_after: float = Field(
        default=20.0,
        ge=0.1,
        le=86_400,
        description="seconds without progress, while messages are missing, after which a copy is stalled",
    )
    on_stall: Literal["warn", "step_down"] = Field(
        default="warn",
        description="warn: report it; step_down: also have the leader of the stream that copies step down, once,"
        " where another leader can help",
    )
    interval: float = Field(
        default=3.0, ge=0.1, le=86_400, description="seconds from one comparison of all copies to the next"
    )
    max_requests: float = Field(
        default=50.0, ge=1, le=10_000, description="requests per second that it sends at most, whatever it watches"
    )
    unready_on_stall: Flag = Field(default=False, description="whether the rule is not ready while a copy is stalled")

    @property
    def dialect(self) -> None:
        """The dialect that it asks for: none, it transforms nothing."""

    @property
    def streams(self) -> tuple[tuple[str, str], ...]:
        """The streams that the rule names: each with its connection."""
        return tuple((self.connection, name) for name in self.watched_streams if "*" not in name)

    @property
    def about(self) -> str:
        """What the rule works on, for a person: the streams."""
        return ", ".join(self.watched_streams)

    @property
    def connections(self) -> tuple[str, ...]:
        """The names of the connections that the rule uses."""
        return (self.connection,)


_MODELS: Final = (
    RepublishRule,
    SourcesRule,
    MirrorRule,
    KvSourcesRule,
    SubjectTransformRule,
    AdvisoriesRule,
    WatchRule,
)

KINDS: Final[Mapping[str, type[Rule]]] = MappingProxyType(
    {get_args(model.model_fields["kind"].annotation)[0]: model for model in _MODELS}
)
"""The model of every kind of rule."""


class _ByKind:
    """Metadata of `Rule`: the model that validates one is that of its `kind`."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        models: Any = reduce(or_, KINDS.values())
        return handler.generate_schema(Annotated[models, Field(discriminator="kind")])


AnyRule: TypeAlias = Annotated[Rule, _ByKind()]
"""`Rule` as a field."""
