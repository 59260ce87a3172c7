"""The runner: plays every case on every subject of test, and records each. It judges nothing."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from nats_conformance.catalogue.case import Case
from nats_conformance.errors import SubjectError
from nats_conformance.history import HistoryWriter, Played, Unplayed
from nats_conformance.outcome import Outcome
from nats_conformance.subject import Answer, BatchSubject, CannotPlay, SingleSubject, Subject

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with the subject's label, the number of its finished cases, and their total."""


async def play_all(
    cases: Sequence[Case], subjects: Sequence[Subject], writer: HistoryWriter, progress: Progress = lambda *_: None
) -> None:
    """Run every case on every subject, one subject after the other. Each is already open and stays open.

    A case that fails to be played is written down as errored, and the run continues.
    """
    for subject in subjects:
        await _play_on(subject, cases, writer, progress)


async def _play_on(subject: Subject, cases: Sequence[Case], writer: HistoryWriter, progress: Progress) -> None:
    label = subject.identity.label
    done = 0

    def add(record: Played | Unplayed) -> None:
        nonlocal done
        writer.add(record)
        done += 1
        progress(label, done, len(cases))

    progress(label, 0, len(cases))
    waiting: list[Case] = []
    for case in cases:
        if case.applies(subject.identity.version):
            waiting.append(case)
        else:
            add(Unplayed(case.id, label, Outcome.INAPPLICABLE, "the case is about other versions"))
    if isinstance(subject, BatchSubject):
        await _play_together(subject, waiting, add)
        return
    waiting.reverse()

    async def work() -> None:
        while waiting:
            case = waiting.pop()
            begin = time.perf_counter()
            answer = await _answer(subject, case)
            add(_record(label, case, answer, time.perf_counter() - begin))

    async with asyncio.TaskGroup() as workers:
        for _ in range(min(subject.at_once, len(waiting))):
            workers.create_task(work())


async def _play_together(
    subject: BatchSubject, cases: Sequence[Case], add: Callable[[Played | Unplayed], None]
) -> None:
    """Run all cases on a subject at once. The seconds of a case are those since the previous answer."""
    label = subject.identity.label
    left = {case.id: case for case in cases}
    reason = "it was given no answer"
    begin = time.perf_counter()
    try:
        async for case, answer in subject.play_many(cases):
            del left[case.id]  # an answer without a request is a mistake of the subject's
            add(_record(label, case, answer, time.perf_counter() - begin))
            begin = time.perf_counter()
    except SubjectError as error:
        reason = str(error)
    for case in left.values():
        add(Unplayed(case.id, label, Outcome.ERRORED, reason))


async def _answer(subject: SingleSubject, case: Case) -> Answer:
    try:
        return await subject.play(case)
    except (CannotPlay, SubjectError) as answer:
        return answer


def _record(label: str, case: Case, answer: Answer, seconds: float) -> Played | Unplayed:
    match answer:
        case CannotPlay():
            outcome = Outcome.SKIPPED if answer.is_skip else Outcome.INAPPLICABLE
            return Unplayed(case.id, label, outcome, str(answer))
        case SubjectError():
            return Unplayed(case.id, label, Outcome.ERRORED, str(answer))
        case _:
            return Played(case.id, label, answer, seconds)
