"""One way to copy, what each round measured of it, and how a round goes."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from benchmarks.copy_scene import Copying, Scene, native_copy, own_copy
from benchmarks.figures import median_of
from benchmarks.load import FILLING, SUBJECTS, publish_all
from benchmarks.processes import cpu_seconds, memory_of
from benchmarks.rounds import HEADER as _HEADER
from benchmarks.rounds import Rounds
from benchmarks.stream_growth import watch_growth

HEADER = (*_HEADER[:4], "first to last", *_HEADER[4:])


@dataclass(slots=True)
class Arm(Rounds):
    """One way to copy; rates go from the beginning to the last copy.

    Attributes:
        copy: begins and ends it.
        steady: messages per second from the first copy to the last; empty where that is meaningless.
        launch: seconds from the launch of the sidecar to the beginning.
    """

    copy: Callable[[Scene], AbstractContextManager[Copying]]
    steady: list[float] = field(default_factory=list)
    launch: list[float] = field(default_factory=list)

    def row(self) -> tuple[str, ...]:
        """One row of the table, see `HEADER`."""
        steady = f"{median_of(self.steady):,.0f}" if self.steady else "-"
        return self.name, *self.rate_cells, steady, *self.cpu_cells


def pair(where: str) -> tuple[Arm, Arm]:
    """The server's own copying and ours, in the same place."""
    return Arm(f"{where}: native", native_copy), Arm(f"{where}: nats-bridge", own_copy)


def measure(arm: Arm, place: Scene, messages: int, *, live: bool = False) -> float:
    """Add a round to the arm.

    Args:
        arm: what is measured.
        place: where; its source holds so many messages, or none.
        messages: how many.
        live: whether they are published now, as fast as the source takes them.

    Returns:
        The part of the time that publishing took; 0 where nothing is published.
    """
    server_used = place.cpu_seconds()
    with arm.copy(place) as copying:
        program, began, before = copying.program, copying.began, 0
        if live:
            # A message has arrived: everything that the first one sets up exists.
            publish_all(place.source.port, 1)
            before = watch_growth(place.target.port, copying.stream, 1).messages
            server_used = place.cpu_seconds()
        used = cpu_seconds(program.pid) if program else 0.0
        if live:
            began = time.time()  # the clock of the servers' stamps
            publish_all(place.source.port, messages, window=FILLING)
        published = time.time()
        subjects = min(messages, SUBJECTS)
        growth = watch_growth(place.target.port, copying.stream, messages + before, subjects=subjects)
        took = growth.last - began
        arm.rates.append(messages / took)
        arm.server_cpu.append((place.cpu_seconds() - server_used) / messages * 1e6)
        if program:
            arm.cpu.append((cpu_seconds(program.pid) - used) / messages * 1e6)
            arm.peak.append(memory_of(program.pid).peak)
            arm.launch.append(program.ready - program.launched)
        if live:
            return (published - began) / took
        arm.steady.append(growth.rate)
        return 0.0
