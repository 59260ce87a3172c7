"""A conformance case: set-up, steps, and the expectation per version.

Theory of operation. A case is data, read from YAML by `reading`: the keys of a case file are the attributes of these
classes, or their aliases, and pydantic checks them. Where a file has another form than the suite needs, the annotation
names that form (`read_as`): texts stand for bytes, and a message has header lines. The `streams` of a case are created
first, and its `steps` run one after the other. The visible result is an `Observation` (see
`nats_conformance.observation`), which is compared with an `Expectation`. If a range of versions is known to behave
differently, a `Difference` contains their result and the reason. A case whose steps cannot be expressed as data names a
`scenario` instead: a function of `nats_conformance.scenarios` that returns facts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import ConfigDict, Field, GetPydanticSchema, StringConstraints
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import core_schema

from nats_transforms.dialect import Feature, dialect
from nats_transforms.errors import UnknownDialectError
from nats_transforms.tested_versions import Version

Json: TypeAlias = Any
"""A value as `json.loads` returns it."""

_OLDEST: Version = (2, 9, 0)
"""The version with which a range begins that has no `since`."""


class _InFile:
    """A mapping in a case file: a key that is no attribute or alias is an error."""

    __slots__ = ()
    __pydantic_config__ = ConfigDict(extra="forbid")


def raw_of(text: Json) -> bytes:
    """Return the bytes of a string in a configuration, which may not be UTF-8; empty for other values."""
    return text.encode("utf-8", "surrogateescape") if isinstance(text, str) else b""


def text_of(raw: bytes) -> str:
    """Return the text for a configuration."""
    return raw.decode("utf-8", "surrogateescape")


# --- the forms of a file that differ from the attributes


def read_as(written: Any, convert: Callable[[Any], object]) -> GetPydanticSchema:
    """Let a file have another form of an attribute, which `convert` turns into the attribute's own."""
    return GetPydanticSchema(lambda _, handler: core_schema.no_info_after_validator_function(convert, handler(written)))


def _from_hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise ValueError("no hexadecimal text of whole bytes, such as 666f6f") from None


@dataclass(frozen=True, slots=True)
class Hex(_InFile):
    """Bytes that are no UTF-8."""

    hex: Annotated[bytes, read_as(str, _from_hex)]


def _bytes_of(text: str | Hex) -> bytes:
    return text.encode() if isinstance(text, str) else text.hex


def _versions(texts: str | Sequence[str]) -> tuple[Version, ...]:
    return tuple(map(_version, [texts] if isinstance(texts, str) else texts))


def _version(text: str) -> Version:
    try:
        dialect(text)
    except UnknownDialectError as error:
        raise ValueError(str(error)) from None
    fields = [int(part) for part in text.split(".")]
    return (fields[0], fields[1], fields[2] if len(fields) == 3 else 0)


Text: TypeAlias = Annotated[bytes, read_as(str | Hex, _bytes_of), Field(description="a text, or bytes as {hex: …}")]
VersionText: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[0-9]+\.[0-9]+(\.[0-9]+)?$")]
Versions: TypeAlias = Annotated[
    tuple[Version, ...],
    read_as(VersionText | list[VersionText], _versions),
    Field(description="the first version, or the first of each minor line that a change was brought to"),
]
Config: TypeAlias = Mapping[str, Json]


# --- ranges of versions


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranged(_InFile):
    """A part of a case that is about some versions: from `since` on, up to but not including `until`."""

    since: Versions = ()
    until: Annotated[Versions, Field(description="first versions that it is not about any more")] = ()

    @property
    def range(self) -> Feature:
        """The versions."""
        return Feature(self.since or (_OLDEST,), self.until)


# --- messages


@dataclass(frozen=True, slots=True)
class Message:
    """A message to publish, as raw bytes. An empty header block means no headers."""

    subject: bytes
    header_block: bytes = b""
    payload: bytes = b""


@dataclass(frozen=True, slots=True)
class MessagePattern:
    """An expected message. Members that are None are not compared.

    The bytes may contain placeholders: `<time>` (RFC 3339 as the server writes it, equal to the stored time if that was
    observed), `<identity>` (of a source stream), `<int A..B>`.
    """

    subject: bytes
    header_block: bytes | None = None
    payload: bytes | None = None
    sequence: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenMessage(_InFile):
    """A message in a file: header lines without the status line, or the whole block."""

    subject: Text
    headers: Annotated[tuple[Text, ...] | None, Field(description="lines behind NATS/1.0, in order, without CRLF")] = (
        None
    )
    block: Annotated[Text | None, Field(description="the whole header block, CRLFs included")] = None
    payload: Text | None = None
    sequence: Annotated[int | None, Field(description="in the stream; only where messages are expected")] = None

    def __post_init__(self) -> None:
        if self.headers is not None and self.block is not None:
            raise ValueError("give headers or block, not both")

    def _header_block(self) -> bytes | None:
        if not self.headers:
            return b"" if self.headers is not None else self.block
        return b"".join([b"NATS/1.0\r\n", *(line + b"\r\n" for line in self.headers), b"\r\n"])

    def to_publish(self) -> Message:
        """Return the message for a publisher. Raise ValueError if it has a sequence."""
        if self.sequence is not None:
            raise ValueError("the sequence of a published message is the server's to give")
        return Message(self.subject, self._header_block() or b"", self.payload or b"")

    def to_expect(self) -> MessagePattern:
        """Return the message as an expected one."""
        return MessagePattern(self.subject, self._header_block(), self.payload, self.sequence)


Published: TypeAlias = Annotated[Message, read_as(WrittenMessage, WrittenMessage.to_publish)]
Expected: TypeAlias = Annotated[MessagePattern, read_as(WrittenMessage, WrittenMessage.to_expect)]


# --- steps


@dataclass(frozen=True, slots=True)
class Create:
    """STREAM.CREATE with this configuration."""

    config: Config


@dataclass(frozen=True, slots=True)
class Update:
    """STREAM.UPDATE with this configuration."""

    config: Config


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish, and wait for the stream's answer, if there is a stream that takes the subject."""

    message: Message


@dataclass(frozen=True, slots=True)
class Delete(_InFile):
    """STREAM.MSG.DELETE of one sequence."""

    stream: str
    sequence: int


@dataclass(frozen=True, slots=True)
class Purge(_InFile):
    """STREAM.PURGE: of the messages that match `filter`, those before `seq`, or all but the newest `keep`."""

    __match_args__ = ("stream", "request")  # for those who send it or show it

    stream: str
    filter: str | None = None
    seq: int | None = None
    keep: int | None = None

    @property
    def request(self) -> dict[str, Json]:
        """The body of the request to the server."""
        members = {"filter": self.filter, "seq": self.seq, "keep": self.keep}
        return {name: value for name, value in members.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Drop:
    """STREAM.DELETE."""

    stream: str


@dataclass(frozen=True, slots=True)
class Settle(_InFile):
    """Wait until a copying stream has this many messages."""

    stream: str
    messages: int


Step: TypeAlias = Create | Update | Publish | Delete | Purge | Drop | Settle


def _publishes(messages: Message | Sequence[Message]) -> tuple[Publish, ...]:
    return (Publish(messages),) if isinstance(messages, Message) else tuple(map(Publish, messages))


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenStep(_InFile):
    """A step in a file: exactly one of the members. `publish` may be several steps."""

    create: Annotated[Create, read_as(Config, Create)] | None = None
    update: Annotated[Update, read_as(Config, Update)] | None = None
    publish: Annotated[tuple[Publish, ...], read_as(Published | tuple[Published, ...], _publishes)] | None = None
    delete: Delete | None = None
    purge: Purge | None = None
    drop: Annotated[Drop, read_as(str, Drop)] | None = None
    settle: Settle | None = None

    def __post_init__(self) -> None:
        if len(self._given()) != 1:
            raise ValueError("a step is exactly one of create, update, publish, delete, purge, drop, settle")

    def _given(self) -> list[Step | tuple[Publish, ...]]:
        members = (self.create, self.update, self.publish, self.delete, self.purge, self.drop, self.settle)
        return [member for member in members if member is not None]

    def steps(self) -> tuple[Step, ...]:
        """Return the step; one for each message to publish."""
        (given,) = self._given()
        return given if isinstance(given, tuple) else (given,)


def _steps_of(written: Sequence[WrittenStep]) -> tuple[Step, ...]:
    return tuple(step for each in written for step in each.steps())


# --- expectations


@dataclass(frozen=True, slots=True)
class ExpectedRefusal(_InFile):
    """The expected error of a server. Members that are None are not compared."""

    code: int | None = None
    err_code: int | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True)
class Expectation(_InFile):
    """The expected observation. Members that are None are not compared.

    Attributes:
        refusal: the error of the last create or update; None if all are accepted.
        config: members of the last answer's configuration; a value of None means that the member is absent.
        results: short for `received` or `stored` of a transform, in a file.
        received: the messages that subscribers of `listen` receive, in this order.
        stored: the messages in streams at the end, in this order.
        any_order: streams whose order is not determined (several sources): compared as sets.
        acks: the stream's answers to the publications, compared in the given members; None if no stream answers.
        facts: the result of a scenario.
    """

    refusal: Annotated[ExpectedRefusal | None, Field(alias="refused")] = None
    config: Annotated[Config | None, Field(description="members of the returned configuration; null: absent")] = None
    received: tuple[Expected, ...] | None = None
    stored: Mapping[str, tuple[Expected, ...]] | None = None
    any_order: frozenset[str] = frozenset()
    acks: tuple[Mapping[str, Json] | None, ...] | None = None
    facts: Annotated[Mapping[str, Json] | None, Field(description="of a scenario")] = None
    results: Annotated[
        Mapping[Text, Text | None] | None,
        Field(description="of a transform: each new subject; null: nothing can be received"),
    ] = None


_NOTHING = Expectation()
"""The expectation of a difference that does not have one of its own yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(Ranged):
    """The result of a range of versions that differs, and the reason.

    Attributes:
        without: in a file, instead of an expectation: the header whose lines are missing in the case's own.
    """

    reason: Annotated[str, Field(min_length=8)]
    expectation: Annotated[Expectation, Field(alias="expect")] = field(default_factory=lambda: _NOTHING)
    without: Annotated[
        str,
        StringConstraints(pattern=r"^[A-Za-z-]+$"),
        Field(description="instead of expect: what the case expects, without the header lines of this name"),
    ] = ""

    def __post_init__(self) -> None:
        if not self.since and not self.until:
            raise ValueError("a difference needs since or until")
        if (self.expectation is _NOTHING) == (not self.without):
            raise ValueError("a difference says expect or without, one of them")


# --- cases


class Level(StrEnum):
    """How binding a case is."""

    MUST = "must"
    """The clause requires it."""
    SHOULD = "should"
    """The clause recommends it, or it follows from it."""
    OBSERVED = "observed"
    """No clause requires it, but servers do it and users depend on it."""


class TransformPlace(StrEnum):
    """The place in a server where a transform is applied."""

    REPUBLISH = "republish"
    INGRESS = "ingress"
    SOURCE = "source"
    MIRROR = "mirror"


@dataclass(frozen=True, slots=True)
class TransformCase(_InFile):
    """The short form of a case: one transform, some subjects.

    The question for a library of transforms; servers run the streams and steps generated from it. A file may leave out
    the subjects if the expectation has results, which name them.
    """

    source: Annotated[Text, Field(alias="src")]
    destination: Annotated[Text, Field(alias="dest")]
    place: TransformPlace = TransformPlace.REPUBLISH
    subjects: tuple[Text, ...] = ()

    def __str__(self) -> str:
        source, destination, *subjects = (
            each.decode("utf-8", "backslashreplace") for each in (self.source, self.destination, *self.subjects)
        )
        return f"{self.place.value}: '{source}' to '{destination}', of {', '.join(subjects)}"


def copied_entries(config: Config) -> list[Json]:
    """Return the entries that a stream copies from; a case may contain any value there."""
    entries = config.get("sources") or [config.get("mirror")]
    return entries if isinstance(entries, list) else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Case(Ranged):
    """One conformance case. Versions outside its range skip it.

    Attributes:
        id: a stable id, by clause, such as `adr28/headers/order/1`.
        clause: document and section, such as `ADR-28, RePublish Headers`; in a file, that of all cases if left out.
        needs: the required features of a test subject; see `nats_conformance.implementations`.
        harms: versions whose server process crashes or hangs, so the case only runs on servers that the suite starts.
        listen: subjects whose messages are collected.
        kd: known divergences of the bridge that this case shows, by id.
        create, update, publish: in a file, short for the first steps and the last ones. A case that was read has none.
    """

    id: Annotated[str, StringConstraints(pattern=r"^(adr[0-9]{2}|native|diff)(/[a-z0-9-]+){1,4}/[0-9]+$")]
    title: Annotated[str, Field(min_length=8, max_length=140)]
    level: Level
    expectation: Annotated[Expectation, Field(alias="expect")]
    clause: str = ""
    quote: Annotated[str, Field(description="the sentence of the clause that is tested")] = ""
    needs: Annotated[
        frozenset[Literal["store", "account"]],
        Field(description="store: what a stream keeps decides; account: cannot be moved to subjects of its own"),
    ] = frozenset()
    harms: Annotated[Ranged | None, Field(description="versions whose server ends or never comes to rest")] = None
    streams: tuple[Config, ...] = ()
    create: Annotated[Config | None, Field(description="short for one step")] = None
    update: Annotated[Config | None, Field(description="short for one step")] = None
    steps: Annotated[tuple[Step, ...], read_as(tuple[WrittenStep, ...], _steps_of)] = ()
    publish: Annotated[tuple[Published, ...], Field(description="short for steps that come last")] = ()
    transform: TransformCase | None = None
    scenario: str | None = None
    listen: tuple[Text, ...] = (b"out.>",)
    differences: tuple[Difference, ...] = ()
    kd: Annotated[
        tuple[Annotated[str, StringConstraints(pattern=r"^kd/[a-z0-9./-]+$")], ...],
        Field(description="known divergences of the bridge that the case shows"),
    ] = ()
    file: SkipJsonSchema[Annotated[Path | None, Field(init=False)]] = None
    line: SkipJsonSchema[Annotated[int, Field(init=False)]] = 0

    @property
    def configs(self) -> tuple[Config, ...]:
        """All stream configurations: those of the set-up, and those that the steps create or update."""
        return (*self.streams, *(step.config for step in self.steps if isinstance(step, Create | Update)))

    @property
    def entries(self) -> tuple[Config, ...]:
        """The entries that streams of the case copy from: the elements of all `sources`, and every `mirror`."""
        found = [entry for config in self.configs for entry in copied_entries(config)]
        return tuple(entry for entry in found if isinstance(entry, Mapping))

    def with_configs(self, change: Callable[[Config], Config]) -> Self:
        """Return the case with all its stream configurations changed."""
        steps = tuple(
            type(step)(change(step.config)) if isinstance(step, Create | Update) else step for step in self.steps
        )
        return replace(self, streams=tuple(map(change, self.streams)), steps=steps)

    def applies(self, version: Version) -> bool:
        """Return whether the case is about this version."""
        return self.range.holds(version)

    def difference(self, version: Version) -> Difference | None:
        """Return the known difference that this version shows, if any."""
        return next((each for each in self.differences if each.range.holds(version)), None)

    def expected(self, version: Version) -> Expectation:
        """Return the expectation for this version, including known differences."""
        difference = self.difference(version)
        return self.expectation if difference is None else difference.expectation

    def harms_server(self, version: Version) -> bool:
        """Return whether the case may only be played on a private server of this version."""
        return self.harms is not None and self.harms.range.holds(version)


@dataclass(frozen=True, slots=True)
class CaseFile(_InFile):
    """A file of the catalogue."""

    clause: str
    cases: Annotated[tuple[Case, ...], Field(min_length=1)]
