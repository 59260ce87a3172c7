"""What subjects of test offer to the runner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import TypeAlias

from nats_conformance.catalogue.case import Case
from nats_conformance.errors import SubjectError
from nats_conformance.identity import Identity
from nats_conformance.observation import Observation


class CannotPlay(Exception):  # noqa: N818 - an answer, not an error
    """A case that this subject of test does not play: ``is_skip`` distinguishes a skip from one that does not apply."""

    def __init__(self, reason: str, *, is_skip: bool = False) -> None:
        super().__init__(reason)
        self.is_skip = is_skip


Answer: TypeAlias = Observation | CannotPlay | SubjectError
"""The outcome of a case that is played among others."""


class _Opened:
    """What every subject of test has."""

    identity: Identity

    async def open(self) -> None:
        """Get ready; raises SubjectError."""

    async def close(self) -> None:
        """End, and delete everything that was created."""


class SingleSubject(_Opened, ABC):
    """A subject of test that plays case by case, ``at_once`` of them at the same time."""

    at_once = 1

    @abstractmethod
    async def play(self, case: Case) -> Observation:
        """Play one case and return its observation.

        Raises:
            CannotPlay: it does not play this one, and why.
            SubjectError: it could not be played.
        """


class BatchSubject(_Opened, ABC):
    """A subject of test that is faster when it is given many cases at once."""

    @abstractmethod
    def play_many(self, cases: Sequence[Case]) -> AsyncIterator[tuple[Case, Answer]]:
        """Play cases, in any order; each has exactly one answer."""


Subject: TypeAlias = SingleSubject | BatchSubject
"""A native server, an engine, a bridge, a library."""
