"""The runner: every case on every subject of test, written down as it goes. It judges nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from conformance.catalogue.case import Case
from conformance.errors import SubjectError
from conformance.history import HistoryWriter, Played, Unplayed
from conformance.outcome import Outcome
from conformance.subjects.subject import CannotPlay, Subject

__all__ = ["Progress", "play_all"]

Progress: TypeAlias = Callable[[str, int, int], None]
"""Told of the subject's label, how many of its cases are done, and how many there are."""


async def play_all(
    cases: Sequence[Case], subjects: Sequence[Subject], writer: HistoryWriter, progress: Progress = lambda *_: None
) -> None:
    """Play every case on every subject, one subject after the other; each is open already and stays open.

    A case that fails to be played is written down as errored, and the run goes on.
    """
    for subject in subjects:
        await _play_on(subject, cases, writer, progress)


async def _play_on(subject: Subject, cases: Sequence[Case], writer: HistoryWriter, progress: Progress) -> None:
    label = subject.identity.label
    waiting = list(reversed(cases))
    done = 0

    async def work() -> None:
        nonlocal done
        while waiting:
            writer.add(await _play(subject, waiting.pop()))
            done += 1
            progress(label, done, len(cases))

    progress(label, 0, len(cases))
    async with asyncio.TaskGroup() as workers:
        for _ in range(min(subject.at_once, len(cases))):
            workers.create_task(work())


async def _play(subject: Subject, case: Case) -> Played | Unplayed:
    label = subject.identity.label
    if not case.applies(subject.identity.version):
        return Unplayed(case.id, label, Outcome.INAPPLICABLE, "the case is about other versions")
    begin = time.perf_counter()
    try:
        observation = await subject.play(case)
    except CannotPlay as answer:
        outcome = Outcome.SKIPPED if answer.is_skip else Outcome.INAPPLICABLE
        return Unplayed(case.id, label, outcome, str(answer))
    except SubjectError as error:
        return Unplayed(case.id, label, Outcome.ERRORED, str(error))
    return Played(case.id, label, observation, time.perf_counter() - begin)
