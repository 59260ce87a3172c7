"""Playing miniatures: which cases find a wrong engine out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nats_bridge.conformance.catalogue import Case, read_catalogue
from nats_bridge.conformance.errors import SubjectError
from nats_bridge.conformance.implementations.engine import EngineSubject
from nats_bridge.conformance.implementations.engine_operations import EngineOperations
from nats_bridge.conformance.implementations.subject import CannotPlay
from nats_bridge.conformance.judging import judge
from nats_bridge.conformance.miniatures.configurations import CONFIGURATIONS
from nats_bridge.conformance.miniatures.copies import COPIES
from nats_bridge.conformance.miniatures.functions import FUNCTIONS
from nats_bridge.conformance.miniatures.headers import HEADERS
from nats_bridge.conformance.miniatures.miniature import Miniature
from nats_bridge.transforms.dialect import NEWEST

__all__ = ["MINIATURES", "Caught", "caught", "failing", "reported"]

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


def reported(found: Sequence[Caught]) -> str:
    """For a person: every miniature, what it does wrong, and what caught it."""
    lines = []
    for each in found:
        lines.append(f"{each.miniature.name}: {each.miniature.description}")
        if each.is_named:
            others = len(each.caught_by) - 1
            more = f", and by {others} more" if others else ""
            lines.append(f"    caught by {each.miniature.case}{more}")
        elif each.caught_by:
            lines.append(f"    NOT CAUGHT by {each.miniature.case}, only by {', '.join(each.caught_by)}")
        else:
            lines.append("    NOT CAUGHT")
    good = sum(each.is_named for each in found)
    return "\n".join([*lines, f"{good} of {len(found)} wrong engines were caught by the cases that they name"])
