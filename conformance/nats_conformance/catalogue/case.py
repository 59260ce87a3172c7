"""A conformance case: set-up, steps, and the expectation per version.

Theory of operation. A case is data, read from YAML by `reading`. Its `streams` are created first, and its `steps` run
one after the other. The visible result is an `Observation` (see `nats_conformance.observation`), which is compared with
an `Expectation`. If a range of versions is known to behave differently, a `Difference` contains their result and the
reason. A case whose steps cannot be expressed as data names a `scenario` instead: a function of
`nats_conformance.scenarios` that returns facts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeAlias

from nats_transforms.dialect import Feature
from nats_transforms.tested_versions import Version

Json: TypeAlias = Any
"""A value as `json.loads` returns it."""


def raw_of(text: Json) -> bytes:
    """Return the bytes of a string in a configuration, which may not be UTF-8; empty for other values."""
    return text.encode("utf-8", "surrogateescape") if isinstance(text, str) else b""


def text_of(raw: bytes) -> str:
    """Return the text for a configuration."""
    return raw.decode("utf-8", "surrogateescape")


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
class Message:
    """A message to publish, as raw bytes. An empty header block means no headers."""

    subject: bytes
    header_block: bytes = b""
    payload: bytes = b""


@dataclass(frozen=True, slots=True)
class Create:
    """STREAM.CREATE with this configuration."""

    config: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Update:
    """STREAM.UPDATE with this configuration."""

    config: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish, and wait for the stream's answer, if there is a stream that takes the subject."""

    message: Message


@dataclass(frozen=True, slots=True)
class Delete:
    """STREAM.MSG.DELETE of one sequence."""

    stream: str
    sequence: int


@dataclass(frozen=True, slots=True)
class Purge:
    """STREAM.PURGE; `request` contains `filter`, `seq` or `keep`."""

    stream: str
    request: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Drop:
    """STREAM.DELETE."""

    stream: str


@dataclass(frozen=True, slots=True)
class Settle:
    """Wait until a copying stream has this many messages; see `Expectation.settled` for versions that differ."""

    stream: str
    messages: int


Step: TypeAlias = Create | Update | Publish | Delete | Purge | Drop | Settle


@dataclass(frozen=True, slots=True)
class ExpectedRefusal:
    """The expected error of a server. Members that are None are not compared."""

    code: int | None = None
    err_code: int | None = None
    description: str | None = None


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


@dataclass(frozen=True, slots=True)
class Expectation:
    """The expected observation. Members that are None are not compared.

    Attributes:
        refusal: the error of the last create or update; None if all are accepted.
        config: members of the last answer's configuration; a value of None means that the member is absent.
        received: the messages that subscribers of `listen` receive, in this order.
        stored: the messages in streams at the end, in this order.
        any_order: streams whose order is not determined (several sources): compared as sets.
        acks: the stream's answers to the publications, compared in the given members; None if no stream answers.
        facts: the result of a scenario.
    """

    refusal: ExpectedRefusal | None = None
    config: Mapping[str, Json] | None = None
    received: tuple[MessagePattern, ...] | None = None
    stored: Mapping[str, tuple[MessagePattern, ...]] | None = None
    any_order: frozenset[str] = frozenset()
    acks: tuple[Mapping[str, Json] | None, ...] | None = None
    facts: Mapping[str, Json] | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """The result of a range of versions that differs, and the reason."""

    range: Feature
    reason: str
    expectation: Expectation


@dataclass(frozen=True, slots=True)
class TransformCase:
    """The short form of a case: one transform, some subjects.

    The question for a library of transforms; servers run the streams and steps generated from it.
    """

    source: bytes
    destination: bytes
    place: TransformPlace
    subjects: tuple[bytes, ...]

    def __str__(self) -> str:
        source, destination, *subjects = (
            each.decode("utf-8", "backslashreplace") for each in (self.source, self.destination, *self.subjects)
        )
        return f"{self.place.value}: '{source}' to '{destination}', of {', '.join(subjects)}"


def copied_entries(config: Mapping[str, Json]) -> list[Json]:
    """Return the entries that a stream copies from; a case may contain any value there."""
    entries = config.get("sources") or [config.get("mirror")]
    return entries if isinstance(entries, list) else []


@dataclass(frozen=True, slots=True)
class Case:
    """One conformance case.

    Attributes:
        id: a stable id, by clause, such as `adr28/headers/order/1`.
        clause: document and section, such as `ADR-28, RePublish Headers`.
        range: the versions that the case applies to; others skip it.
        needs: the required features of a test subject; see `nats_conformance.implementations`.
        harms: versions whose server process crashes or hangs, so the case only runs on servers that the suite starts.
        listen: subjects whose messages are collected.
        kd: known divergences of the bridge that this case shows, by id.
    """

    id: str
    title: str
    level: Level
    clause: str
    expectation: Expectation
    streams: tuple[Mapping[str, Json], ...] = ()
    steps: tuple[Step, ...] = ()
    listen: tuple[bytes, ...] = (b"out.>",)
    transform: TransformCase | None = None
    scenario: str | None = None
    range: Feature = field(default_factory=lambda: Feature(since=((2, 9, 0),)))
    needs: frozenset[str] = frozenset()
    harms: Feature | None = None
    differences: tuple[Difference, ...] = ()
    kd: tuple[str, ...] = ()
    quote: str = ""
    file: Path | None = None
    line: int = 0

    @property
    def configs(self) -> tuple[Mapping[str, Json], ...]:
        """All stream configurations: those of the set-up, and those that the steps create or update."""
        return (*self.streams, *(step.config for step in self.steps if isinstance(step, Create | Update)))

    @property
    def entries(self) -> tuple[Mapping[str, Json], ...]:
        """The entries that streams of the case copy from: the elements of all `sources`, and every `mirror`."""
        found = [entry for config in self.configs for entry in copied_entries(config)]
        return tuple(entry for entry in found if isinstance(entry, Mapping))

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
        return self.harms is not None and self.harms.holds(version)
