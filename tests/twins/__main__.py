"""`python -m tests.twins`: random streams on real servers, native features next to the bridge; 1 if they differ."""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from collections import Counter

import click
import structlog

from tests.twins.comparing import Comparison
from tests.twins.playing import Round, pair

VERSIONS = "2.10.27,2.12.15,2.14.10,2.15.3"


@click.command()
@click.option("--versions", default=VERSIONS, show_default=True, help="Server versions.")
@click.option("--messages", default=200_000, show_default=True, help="Messages to store, in all versions together.")
@click.option("--round", "size", default=1000, show_default=True, help="Messages of one stream.")
@click.option("--seed", type=int, help="Of the first round; each later round has the next one. Drawn if left out.")
def main(versions: str, messages: int, size: int, seed: int | None) -> None:
    """Draw streams with what servers of 2.10 to 2.15 store; compare native features with the bridge's."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    first = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    wanted = versions.split(",")
    rounds = -(-messages // (size * len(wanted)))
    failed = False
    print(
        "| version | rounds | stored | equal | differences with a counter | findings |\n|---|---:|---:|---:|---|---:|"
    )
    for version in wanted:
        total, features = asyncio.run(_play(version, rounds, size, first))
        known = ", ".join(f"{name} {count}" for name, count in sorted(total.known.items())) or "none"
        print(
            f"| {version} | {rounds} | {rounds * size} | {total.equal} | {known} | {len(total.findings)} |", flush=True
        )
        print(
            f"{version}: rounds with " + ", ".join(f"{name} {n}" for name, n in sorted(features.items())),
            file=sys.stderr,
        )
        failed |= bool(total.findings)
    sys.exit(1 if failed else 0)


async def _play(version: str, rounds: int, size: int, first: int) -> tuple[Comparison, Counter[str]]:
    total, features = Comparison(), Counter[str]()
    async with pair(version) as servers:
        for seed in range(first, first + rounds):
            played = Round(servers, seed)
            features.update(played.shape.features or ["nothing more"])
            found = await played.play(size)
            for finding in found.findings[:5]:
                print(f"{version} --seed {seed} --round {size}: {finding}\n  {played.shape}", file=sys.stderr)
            total.add(found)
    return total, features


if __name__ == "__main__":
    main()
