"""Playing cases of the catalogue on a subject of test, judged at once."""

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TypeVar

from nats_conformance.catalogue.case import Case
from nats_conformance.judging import judge
from nats_conformance.outcome import Outcome
from nats_conformance.subject import CannotPlay, Subject

_Subject = TypeVar("_Subject", bound=Subject)


@asynccontextmanager
async def opened(subject: _Subject) -> AsyncIterator[_Subject]:
    """Open a subject of test, and close it at the end."""
    await subject.open()
    try:
        yield subject
    finally:
        await subject.close()


async def outcomes(subject: Subject, cases: Iterable[Case]) -> tuple[Counter[Outcome], list[str]]:
    """How often each outcome was met, and what is wrong with those that failed."""
    found: Counter[Outcome] = Counter()
    wrong = []
    for case in cases:
        if not case.applies(subject.identity.version):
            continue
        try:
            observation = await subject.play(case)
        except CannotPlay as answer:
            found[Outcome.SKIPPED if answer.is_skip else Outcome.INAPPLICABLE] += 1
            continue
        verdict = judge(case, subject.identity, observation)
        found[verdict.outcome] += 1
        if not verdict.outcome.is_good:
            wrong.append(f"{case.id}: {verdict.reason}: {verdict.mismatches}")
    return found, wrong
