"""One way to republish, what each round measured of it, and how a round goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from benchmarks.load import Arrivals, arrivals, publish_chunks
from benchmarks.processes import (
    REPUBLISH,
    Program,
    bench_stream,
    configuration,
    cpu_seconds,
    memory_of,
    running_bridge,
    running_copier,
    running_go_copier,
)
from benchmarks.rounds import Rounds
from nats_conformance.native_servers import NativeServer

_Launch = Callable[[str], AbstractContextManager[Program | None]]


@dataclass(slots=True)
class Arm(Rounds):
    """One way to republish.

    Attributes:
        launch: starts the program for a server, given its URL; None where the server itself republishes.
        stored_first: whether the messages are stored before the program starts.
    """

    launch: _Launch
    is_native: bool = False
    stored_first: bool = False


def native(name: str = "native republish") -> Arm:
    """The server's own republish, and no other program."""
    return Arm(name, lambda _: nullcontext(None), is_native=True)


def sidecar(name: str, *, stored_first: bool = False, **more: str) -> Arm:
    """`nats-bridge run` with one rule.

    Args:
        name: for the table.
        stored_first: whether it finds all messages stored.
        more: of the rule, such as its `delivery`.
    """
    rule = {**REPUBLISH, **more, **({"start": "first"} if stored_first else {})}
    return Arm(
        name,
        lambda url: running_bridge(configuration(url, rule)),
        stored_first=stored_first,
    )


def copier(name: str, way: str, share: float) -> Arm:
    """nats-py.

    Args:
        name: for the table.
        way: of `benchmarks.nats_py_copier`.
        share: of the messages.
    """
    return Arm(name, lambda url: running_copier(url, way), share=share)


def go_copier(name: str, way: str) -> Arm:
    """nats.go.

    Args:
        name: for the table.
        way: of `benchmarks/go_copier`.
    """
    return Arm(name, lambda url: running_go_copier(url, way))


def measure(
    arm: Arm,
    messages: int,
    made: Iterable[bytes],
    *,
    version: str = "",
    place: AbstractContextManager[NativeServer] | None = None,
) -> None:
    """Add a round to the arm, on a server of its own.

    Args:
        arm: what is measured.
        messages: how many.
        made: what `publish_chunks` writes for so many.
        version: of the server, with the stream BENCH.
        place: another server than that.
    """
    with place or bench_stream(version, native=arm.is_native) as server:
        subject = "native.bench.>" if arm.is_native else "bridge.bench.>"
        if arm.stored_first:
            publish_chunks(server.port, made)
        with arrivals(server.port, subject, messages) as subscriber, arm.launch(server.url) as program:
            began = time.monotonic()
            used, server_used = cpu_seconds(program.pid) if program else 0.0, cpu_seconds(server.pid)
            if not arm.stored_first:
                publish_chunks(server.port, made)
            came: Arrivals = subscriber.receive()
            arm.rates.append(messages / (came.last - (came.first if arm.stored_first else began)))
            if program:
                arm.peak.append(memory_of(program.pid).peak)
            if arm.stored_first:
                return  # part of the work was done before the sidecar was ready
            arm.server_cpu.append((cpu_seconds(server.pid) - server_used) / messages * 1e6)
            if program:
                arm.cpu.append((cpu_seconds(program.pid) - used) / messages * 1e6)
