"""Playing miniatures: which cases find a wrong engine out.

``python -m conformance.miniatures`` plays the whole catalogue against each and prints what caught it.
"""

from __future__ import annotations

from collections.abc import Iterable

from conformance.catalogue import Case
from conformance.errors import SubjectError
from conformance.judging import judge
from conformance.miniatures.miniature import Miniature
from conformance.subjects.engine import EngineSubject
from conformance.subjects.engine_operations import EngineOperations
from conformance.subjects.subject import CannotPlay
from transforms.dialect import NEWEST

__all__ = ["catching", "failing"]


async def catching(miniature: Miniature, cases: Iterable[Case]) -> tuple[str, ...]:
    """The ids of the cases that a miniature does not pass, in their order; empty: nobody noticed."""
    return await failing(miniature.engine(), cases)


async def failing(engine: EngineOperations | None, cases: Iterable[Case]) -> tuple[str, ...]:
    """The ids of the cases that an engine of the newest dialect fails, or cannot play to their end."""
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
