"""A conformance case: set-up, steps, and the expectation per version.

Theory of operation: a case is data, read from YAML by ``reading``. Its ``streams`` are created as a set-up, its
``steps`` are carried out one after the other, and what can be seen of them is an `Observation` (see
``nats_conformance.observation``). What must be seen is an `Expectation`; where a range of versions is known to show
something else, a `Difference` says what, and why. A case whose steps are more than data can say names a
``scenario`` instead: a function of ``nats_conformance.scenarios`` that answers with facts.
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
"""A value as ``json.loads`` gives it."""


def raw_of(text: Json) -> bytes:
    """The bytes of a text in a configuration, which may be no UTF-8; none of anything else."""
    return text.encode("utf-8", "surrogateescape") if isinstance(text, str) else b""


def text_of(raw: bytes) -> str:
    """The text for a configuration."""
    return raw.decode("utf-8", "surrogateescape")


class Level(StrEnum):
    """How binding a case is."""

    MUST = "must"
    """The clause says so."""
    SHOULD = "should"
    """The clause recommends it, or it follows from it."""
    OBSERVED = "observed"
    """No clause says it; servers do it, and users depend on it."""


class TransformPlace(StrEnum):
    """The place in a server where a transform is applied."""

    REPUBLISH = "republish"
    INGRESS = "ingress"
    SOURCE = "source"
    MIRROR = "mirror"


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it is published: raw bytes; an empty header block means that it has none."""

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
    """STREAM.PURGE; ``request`` holds ``filter``, ``seq`` or ``keep``."""

    stream: str
    request: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Drop:
    """STREAM.DELETE."""

    stream: str


@dataclass(frozen=True, slots=True)
class Settle:
    """Wait until a copying stream holds so many messages; see `Expectation.settled` for versions that differ."""

    stream: str
    messages: int


Step: TypeAlias = Create | Update | Publish | Delete | Purge | Drop | Settle


@dataclass(frozen=True, slots=True)
class ExpectedRefusal:
    """A server's error answer. A member that is None is not compared."""

    code: int | None = None
    err_code: int | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True)
class MessagePattern:
    """A message as it must be seen; a member that is None is not compared.

    The bytes may hold placeholders: ``<time>`` (RFC 3339 as the server writes it, and equal to the stored time
    where that was observed), ``<identity>`` (of a source stream), ``<int A..B>``.
    """

    subject: bytes
    header_block: bytes | None = None
    payload: bytes | None = None
    sequence: int | None = None


@dataclass(frozen=True, slots=True)
class Expectation:
    """The expected observation; a member that is None is not compared.

    Attributes:
        refusal: the last create or update is refused like this; None: every one is accepted.
        config: members of the last answer's configuration; None as a value: the member is absent.
        received: what subscribers of ``listen`` get, in this order.
        stored: what streams hold at the end, in this order.
        any_order: streams whose order is not determined (several sources): compared as sets.
        acks: the stream's answers to the publishes, compared in the members that are given; None: no stream answers.
        facts: what a scenario answers with.
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
    """What a range of versions shows instead, and why."""

    range: Feature
    reason: str
    expectation: Expectation


@dataclass(frozen=True, slots=True)
class TransformCase:
    """The short form of a case: one transform, some subjects.

    What a library that knows transforms alone is asked; servers get the streams and steps made from it.
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
    """What a stream copies, as its configuration has it; a case may have anything there."""
    entries = config.get("sources") or [config.get("mirror")]
    return entries if isinstance(entries, list) else []


@dataclass(frozen=True, slots=True)
class Case:
    """One conformance case.

    Attributes:
        id: stable, by clause, such as ``adr28/headers/order/1``.
        clause: document and section, such as ``ADR-28, RePublish Headers``.
        range: the versions that the case is about; others are not asked.
        needs: what a subject of test must offer; see ``nats_conformance.implementations``.
        harms: versions whose server process ends, or never comes to rest: only a server of our own may be asked.
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
        """What streams of the case copy: the elements of all `sources`, and every `mirror`."""
        found = [entry for config in self.configs for entry in copied_entries(config)]
        return tuple(entry for entry in found if isinstance(entry, Mapping))

    def applies(self, version: Version) -> bool:
        """Whether the case is about this version."""
        return self.range.holds(version)

    def difference(self, version: Version) -> Difference | None:
        """The known difference that this version shows, if any."""
        return next((each for each in self.differences if each.range.holds(version)), None)

    def expected(self, version: Version) -> Expectation:
        """What must be seen of this version, known differences included."""
        difference = self.difference(version)
        return self.expectation if difference is None else difference.expectation

    def harms_server(self, version: Version) -> bool:
        """Whether the case may only be played on a private server of this version."""
        return self.harms is not None and self.harms.holds(version)
