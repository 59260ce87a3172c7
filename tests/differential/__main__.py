"""`python -m tests.differential`: random inputs on real servers and the engine; 1 if they disagree."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import click

from nats_bridge.conformance.command.progress import Progress
from nats_bridge.native_servers import fetch
from tests.differential import compare
from tests.differential.report import text


@click.command()
@click.option("--versions", required=True, metavar="V,…", help="Server versions.")
@click.option("--comparisons", default=10_000, show_default=True, help="How many to make of each version.")
@click.option("--seed", default=1, show_default=True, help="The same one draws the same inputs.")
def main(versions: str, comparisons: int, seed: int) -> None:
    """Draw transforms, subjects, header blocks and stream configurations; compare servers with the engine."""
    progress, failed = Progress(), False
    for version in versions.split(","):
        with tempfile.TemporaryDirectory(prefix="nats-bridge-differential-") as directory:
            result = asyncio.run(
                compare(version, fetch(version), Path(directory), seed=seed, comparisons=comparisons, progress=progress)
            )
        click.echo(text(result))
        failed |= not result.is_good
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
