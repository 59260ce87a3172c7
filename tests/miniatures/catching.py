"""Playing miniatures: which cases find a wrong engine out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nats_conformance.catalogue.case import Case
from nats_conformance.catalogue.reading import read_catalogue
from nats_conformance.errors import SubjectError
from nats_conformance.implementations.engine import EngineSubject
from nats_conformance.implementations.engine_operations import EngineOperations
from nats_conformance.judging import judge
from nats_conformance.subject import CannotPlay
from nats_transforms.dialect import NEWEST
from tests.miniatures.configurations import CONFIGURATIONS
from tests.miniatures.copies import COPIES
from tests.miniatures.functions import FUNCTIONS
from tests.miniatures.headers import HEADERS
from tests.miniatures.miniature import Miniature

MINIATURES: tuple[Miniature, ...] = (*HEADERS, *FUNCTIONS, *CONFIGURATIONS, *COPIES)
"""All of them."""


@dataclass(frozen=True, slots=True)
class Caught:
    """A miniature and the ids of the cases that it failed, in the order of the catalogue."""

    miniature: Miniature
    caught_by: tuple[str, ...]

    @property
    def is_named(self) -> bool:
        """Whether the case that must catch it did."""
        return self.miniature.case in self.caught_by


async def caught(
    cases: Iterable[Case] | None = None, miniatures: Iterable[Miniature] = MINIATURES
) -> tuple[Caught, ...]:
    """Play cases, the whole catalogue where none are given, against every miniature."""
    played = tuple(read_catalogue() if cases is None else cases)
    return tuple([Caught(each, await failing(each.engine(), played)) for each in miniatures])


async def failing(engine: EngineOperations | None, cases: Iterable[Case]) -> tuple[str, ...]:
    """The ids of the cases that an engine of the newest dialect fails, or cannot play to their end.

    None is the true one.
    """
    subject = EngineSubject(NEWEST.name, engine)
    found = []
    for case in cases:
        if not case.applies(NEWEST.version):
            continue
        try:
            observation = await subject.play(case)
        except CannotPlay:
            continue
        except SubjectError:
            found.append(case.id)
            continue
        if not judge(case, subject.identity, observation).outcome.is_good:
            found.append(case.id)
    return tuple(found)
