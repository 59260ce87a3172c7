"""The interface of subjects of test to the runner."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from nats_bridge.conformance.catalogue.case import Case
from nats_bridge.conformance.errors import SubjectError
from nats_bridge.conformance.implementations.identity import Identity
from nats_bridge.conformance.observation import Observation


class CannotPlay(Exception):  # noqa: N818 - an answer, not an error
    """A case that this subject of test does not play: ``is_skip`` distinguishes a skip from one that does not apply."""

    def __init__(self, reason: str, *, is_skip: bool = False) -> None:
        super().__init__(reason)
        self.is_skip = is_skip


Answer: TypeAlias = Observation | CannotPlay | SubjectError
"""The outcome of a case that is played among others."""


class Subject(Protocol):
    """A native server, an engine, a bridge, a library.

    ``at_once`` is how many cases it can play at the same time.
    """

    identity: Identity
    at_once: int

    async def open(self) -> None:
        """Get ready; raises SubjectError."""

    async def play(self, case: Case) -> Observation:
        """Play one case and return its observation.

        Raises:
            CannotPlay: it does not play this one, and why.
            SubjectError: it could not be played.
        """

    async def close(self) -> None:
        """End, and delete everything that was created."""


@runtime_checkable
class BatchSubject(Subject, Protocol):
    """A subject of test that is faster when it is given many cases at once."""

    def play_many(self, cases: Sequence[Case]) -> AsyncIterator[tuple[Case, Answer]]:
        """Play cases, in any order; each has exactly one answer."""
