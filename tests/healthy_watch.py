"""`python -m tests.healthy_watch`: native copies under random load that are well, and a watch rule; 1 if it alarms.

Each version has a server of its own with mirrors and sources of all shapes. Bursts, idle times, removals, purges, small
limits, subjects without messages and changed sources follow each other at random. The rule has its defaults.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from dataclasses import dataclass, field
from typing import Any

import click
import structlog

from nats_bridge.app.sidecar import Sidecar
from nats_conformance.native_servers import NativeServer
from nats_transforms.tested_versions import LIVE_VERSIONS
from tests.live.raw_messages import RawPeer
from tests.live.sidecars import running, settings_for

VERSIONS = f"{LIVE_VERSIONS[0]},{LIVE_VERSIONS[-1]}"
_TRANSFORMS_SINCE = (2, 10)


@dataclass(slots=True)
class _Load:
    """Random load on one server.

    Attributes:
        peer: a connection to it.
        drawn: the random numbers.
        transforms: whether its sources take transforms.
        stored: messages that were stored.
        done: what else was done, and how often.
    """

    peer: RawPeer
    drawn: random.Random
    transforms: bool
    stored: int = 0
    done: dict[str, int] = field(default_factory=dict)

    async def create(self) -> None:
        """Create the streams."""
        create = self.peer.create_stream
        await create(name="A", subjects=["A.>"], storage="memory", max_msgs=2000)
        await create(name="B", subjects=["B.>"], storage="memory", max_msgs_per_subject=5)
        await create(name="C", subjects=["C.>"], storage="memory", max_age=20_000_000_000)
        renamed: dict[str, Any] = {"filter_subject": "A.*"}
        if self.transforms:
            renamed = {"subject_transforms": [{"src": "A.*", "dest": "renamed.{{wildcard(1)}}"}]}
        for name, config in (
            ("MA", {"mirror": {"name": "A"}}),
            ("MB", {"mirror": {"name": "B", "filter_subject": "B.1"}}),
            ("MM", {"mirror": {"name": "MA"}}),
            ("MC", {"mirror": {"name": "C"}, "max_msgs": 500}),
            ("ALL", {"sources": [{"name": "A", **renamed}, {"name": "B"}, {"name": "C"}], "max_msgs": 5000}),
            ("LATEST", {"sources": [{"name": "B", "filter_subject": "B.2"}], "max_msgs": 20}),
            ("AGED", {"sources": [{"name": "C"}], "max_age": 5_000_000_000}),
            ("QUEUE", {"sources": [{"name": "B", "filter_subject": "B.3"}], "retention": "workqueue"}),
            ("NONE", {"sources": [{"name": "A", "filter_subject": "A.never"}]}),
        ):
            await create(name=name, storage="memory", **config)

    async def run(self) -> None:
        """Do something at random, again and again."""
        while True:
            stream = self.drawn.choice("ABC")
            for _ in range(self.drawn.randrange(300)):
                subject = f"{stream}.{self.drawn.randrange(5)}".encode()
                answer = await self.peer.store(subject, b"x" * self.drawn.randrange(500))
                self.stored += "error" not in answer
            what = self.drawn.choice((self._delete, self._purge, self._work, self._rest, self._rest, self._change))
            self.done[what.__name__.strip("_")] = self.done.get(what.__name__.strip("_"), 0) + 1
            await what(stream)

    async def _delete(self, stream: str) -> None:
        last = (await self.peer.api(f"STREAM.INFO.{stream}"))["state"]["last_seq"]
        await self.peer.api(f"STREAM.MSG.DELETE.{stream}", {"seq": max(last - self.drawn.randrange(20), 1)})

    async def _purge(self, stream: str) -> None:
        only = {"filter": f"{stream}.{self.drawn.randrange(5)}"} if self.drawn.random() < 0.8 else {}
        await self.peer.api(f"STREAM.PURGE.{stream}", only)

    async def _work(self, stream: str) -> None:
        last = (await self.peer.api("STREAM.INFO.QUEUE"))["state"]["last_seq"]
        for sequence in range(max(last - self.drawn.randrange(50), 1), last + 1):
            await self.peer.api("STREAM.MSG.DELETE.QUEUE", {"seq": sequence})

    async def _rest(self, stream: str) -> None:
        await asyncio.sleep(self.drawn.expovariate(1 / 2))

    async def _change(self, stream: str) -> None:
        """Add or remove a source, which is copied from its beginning then."""
        config = (await self.peer.api("STREAM.INFO.LATEST"))["config"]
        own, *others = config["sources"]
        several = [own] if others else [own, {"name": "C", "filter_subject": "C.4"}]
        await self.peer.api("STREAM.UPDATE.LATEST", config | {"sources": several})


@click.command()
@click.option(
    "--versions", default=f"{LIVE_VERSIONS[0]},{LIVE_VERSIONS[-1]}", show_default=True, help="Server versions."
)
@click.option("--minutes", default=30.0, show_default=True, help="For so long, all versions at the same time.")
@click.option("--seed", type=int, help="Of the load. Drawn if left out.")
def main(versions: str, minutes: float, seed: int | None) -> None:
    """Watch native copies under random load that are well; name every alarm."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    click.echo(f"--seed {seed}")
    alarms = asyncio.run(_all(versions.split(","), minutes, seed))
    sys.exit(1 if alarms else 0)


async def _all(versions: list[str], minutes: float, seed: int) -> int:
    return sum(await asyncio.gather(*(_one(version, minutes, seed) for version in versions)))


async def _one(version: str, minutes: float, seed: int) -> int:
    """Watch one version; the number of alarms."""
    async with NativeServer(version) as server:
        peer = await RawPeer.connect(server.url)
        transforms = tuple(map(int, version.split(".")[:2])) >= _TRANSFORMS_SINCE
        load = _Load(peer, random.Random(seed), transforms)
        await load.create()
        settings = settings_for(server.url, {"name": "copies", "kind": "watch"})
        async with running(settings) as sidecar:
            loading = asyncio.create_task(load.run())
            clock = asyncio.get_running_loop().time
            end, due, named = clock() + 60 * minutes, clock() + 60, set[str]()
            most = 0
            while clock() < end and not loading.done():
                await asyncio.sleep(0.5)
                for copy in sidecar.supervisors[0].status()["copies"]:
                    most = max(most, copy["missing"] or 0)
                    if copy["condition"] == "stalled":
                        named.add(f"{copy['target']} <- {copy['source']}: {copy['reason']}")
                if clock() >= due:
                    due += 60
                    click.echo(_figures(version, sidecar, load, most))
            loading.cancel()
            [failure] = await asyncio.gather(loading, return_exceptions=True)
            if failure is not None and not isinstance(failure, asyncio.CancelledError):
                raise failure
            click.echo(_figures(version, sidecar, load, most))
            for text in named:
                click.echo(f"{version}: ALARM {text}")
            stalls: int = sidecar.supervisors[0].counters()["stalls"]
        await peer.close()
        return stalls


def _figures(version: str, sidecar: Sidecar, load: _Load, most: int) -> str:
    counters = sidecar.supervisors[0].counters()
    done = ", ".join(f"{what} {count}" for what, count in sorted(load.done.items()))
    return (
        f"{version}: {load.stored:,} stored, {done}; {counters['looks']:,} looks ({counters['failed_looks']} failed),"
        f" {most:,} missing at most, {counters['stalls']} stalls"
    )


if __name__ == "__main__":
    main()
