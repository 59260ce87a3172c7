"""Defines the interface between test subjects and the runner."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import TypeAlias

from nats_conformance.catalogue.case import Case
from nats_conformance.errors import SubjectError
from nats_conformance.identity import Identity
from nats_conformance.observation import Observation


class CannotPlay(Exception):  # noqa: N818 - an answer, not an error
    """The test subject does not run a case. `is_skip` distinguishes a skip from a case that does not apply."""

    def __init__(self, reason: str, *, is_skip: bool = False) -> None:
        super().__init__(reason)
        self.is_skip = is_skip


Answer: TypeAlias = Observation | CannotPlay | SubjectError
"""The result of a case in a batch."""


class _Opened:
    """The common part of all test subjects."""

    identity: Identity

    async def open(self) -> None:
        """Get ready. Raises SubjectError."""

    async def close(self) -> None:
        """End, and delete everything that was created."""


class SingleSubject(_Opened, ABC):
    """A test subject that runs cases one by one, `at_once` of them at the same time."""

    at_once = 1

    @abstractmethod
    async def play(self, case: Case) -> Observation:
        """Play one case and return its observation.

        Raises:
            CannotPlay: it does not play this one, and why.
            SubjectError: it could not be played.
        """


class BatchSubject(_Opened, ABC):
    """A test subject that is faster with many cases at once."""

    @abstractmethod
    def play_many(self, cases: Sequence[Case]) -> AsyncIterator[tuple[Case, Answer]]:
        """Run cases in any order. Each has exactly one answer."""


Subject: TypeAlias = SingleSubject | BatchSubject
"""A native server, an engine, a bridge, a library."""
