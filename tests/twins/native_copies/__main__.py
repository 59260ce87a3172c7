"""`python -m tests.twins.native_copies`: copies by servers, natively and through the sidecar; 1 if they differ."""

from __future__ import annotations

import asyncio
import logging
import random
import statistics
import sys
import tempfile
from pathlib import Path

import click

from nats_bridge.transforms.tested_versions import LIVE_VERSIONS
from tests.twins.native_copies.playing import VICTIMS, Tally, play, servers


@click.command()
@click.option("--versions", default=",".join(LIVE_VERSIONS), show_default=True, help="Of the servers that copy.")
@click.option("--messages", default=6000, show_default=True, help="Messages to store, in all versions together.")
@click.option("--round", "size", default=1000, show_default=True, help="Messages of one stream.")
@click.option("--kills", default=6, show_default=True, help="Kills in each version.")
@click.option("--seed", type=int, help="Of the first round; each later round has the next one. Drawn if left out.")
def main(versions: str, messages: int, size: int, kills: int, seed: int | None) -> None:
    """Draw streams, copy them natively and through the sidecar, kill each part, and compare all that was stored."""
    logging.getLogger("nats").setLevel(logging.CRITICAL)  # it reports every server that is killed
    first = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    wanted = versions.split(",")
    rounds = max(1, round(messages / (size * len(wanted))))
    print(f"seed {first}, {rounds} rounds of each version, {size} messages each")
    print(
        "| version | rounds | published | kills | compared, equal | of these with another record | removed again"
        " | findings |\n|---|---:|---:|---:|---:|---:|---:|---:|",
        flush=True,
    )
    failed = False
    for version in wanted:
        total = asyncio.run(_play(version, first, rounds, size, kills))
        found = total.comparison
        print(
            f"| {version} | {rounds} | {total.published} | {total.kills.total()} | {found.equal} | {found.by_design} |"
            f" {found.removed_again} | {len(found.findings)} |"
        )
        for victim in VICTIMS:
            if seconds := total.resumed[victim]:
                print(
                    f"{version}: {total.kills[victim]} times the {victim}: copied on after"
                    f" {statistics.median(seconds):.1f} s, at most {max(seconds):.1f} s",
                    flush=True,
                )
        drawn = ", ".join(f"{name} {count}" for name, count in sorted(total.features.items()))
        print(f"{version}: rounds with {drawn}", flush=True)
        failed |= bool(found.findings)
    sys.exit(1 if failed else 0)


async def _play(version: str, first: int, rounds: int, size: int, kills: int) -> Tally:
    total = Tally()
    for number in range(rounds):
        # The kills that are left, over the rounds that are left.
        left = kills - total.kills.total()
        victims = random.Random(first + number).choices(VICTIMS, k=-(-left // (rounds - number)))
        with tempfile.TemporaryDirectory() as directory:
            async with servers(version, LIVE_VERSIONS[-1]) as made:
                played = await play(made, first + number, size, victims, Path(directory))
        for finding in played.comparison.findings[:5]:
            print(f"{version} --seed {first + number} --round {size}: {finding}", file=sys.stderr, flush=True)
        total.add(played)
        print(
            f"{version}: {number + 1} rounds, {total.published} messages, {total.kills.total()} kills,"
            f" {total.comparison.equal} equal copies, {len(total.comparison.findings)} findings",
            file=sys.stderr,
            flush=True,
        )
    return total


if __name__ == "__main__":
    main()
