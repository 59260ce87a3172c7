"""What is asked of a server and of the engine: one configuration, and the messages that go through it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from nats_conformance.catalogue.case import Json, Message


class Kind(StrEnum):
    """What a trial is about, and what a comparison is counted as."""

    REPUBLISH = "republish"
    INGRESS = "ingress transform"
    SOURCE = "source"
    MIRROR = "mirror"
    CREATE = "create"
    UPDATE = "update"
    RANDOM = "random"


ALL = frozenset(Kind)
"""Every kind."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One input.

    Attributes:
        kind: what it is about.
        config: the stream configuration that is asked for.
        messages: published to the stream, or, where it has a source, to the source before.
        others: streams that are there before.
        previous: the configuration of the stream before, where ``config`` is an update.
    """

    kind: Kind
    config: Mapping[str, Json]
    messages: tuple[Message, ...] = ()
    others: tuple[Mapping[str, Json], ...] = ()
    previous: Mapping[str, Json] | None = None

    @property
    def copies(self) -> bool:
        """Whether the stream gets its messages from another one."""
        return self.kind in (Kind.SOURCE, Kind.MIRROR)
