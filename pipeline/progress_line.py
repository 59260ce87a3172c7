"""How far a job is, in words: pure functions from numbers to a line."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["State", "line", "span", "summary"]


@dataclass(frozen=True, slots=True)
class State:
    """A job at one moment.

    Attributes:
        job: what it is called.
        stage: what it does, for a person; empty if it does not say.
        messages: handled in this stage so far.
        total: how many there are to handle in this stage; None if that is not known.
        rate: messages per second of late; 0 while that is not known.
        tasks_done: Spark's tasks of this stage that are over.
        tasks: Spark's tasks of this stage, as far as Spark has planned them.
        seconds: since the job began.
    """

    job: str
    stage: str = ""
    messages: int = 0
    total: int | None = None
    rate: float = 0.0
    tasks_done: int = 0
    tasks: int = 0
    seconds: float = 0.0


def line(state: State) -> str:
    """One line: `capture ORDERS: reading, 1,200,000 of 5,000,000 (24 %), 118,000/s, 0:32 left, task 3 of 8`."""
    parts = [state.stage] if state.stage else []
    if state.messages or state.total:
        counted = f"{state.messages:,}"
        if state.total is not None:
            share = f" ({min(100, state.messages * 100 // state.total)} %)" if state.total else ""
            counted += f" of {state.total:,}{share}"
        parts.append(counted + ("" if state.total is not None else " messages"))
    if state.rate >= 1:
        parts.append(f"{state.rate:,.0f}/s")
        if state.total is not None and state.total > state.messages:
            parts.append(f"{span((state.total - state.messages) / state.rate)} left")
    if state.tasks:
        parts.append(f"{state.tasks_done} of {state.tasks} tasks")
    parts.append(f"{span(state.seconds)} so far")
    return f"{state.job}: {', '.join(parts)}"


def summary(job: str, messages: int, seconds: float) -> str:
    """The line at the end: `capture ORDERS: 5,000,000 messages in 42.1 s (118,765/s)`."""
    rate = f" ({messages / seconds:,.0f}/s)" if messages and seconds > 0 else ""
    took = f"{seconds:.1f} s" if seconds < 600 else span(seconds)
    return f"{job}: {messages:,} message{'' if messages == 1 else 's'} in {took}{rate}"


def span(seconds: float) -> str:
    """A duration for a person: `0:07`, `12:30`, `3:05:00`."""
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
