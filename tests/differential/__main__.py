"""`python -m tests.differential`: random inputs on real servers and the engine; 1 if they disagree."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import click

from nats_conformance.command.progress import RunProgress
from nats_conformance.native_servers import fetch
from tests.differential import compare
from tests.differential.report import text


@click.command()
@click.option("--versions", required=True, metavar="V,…", help="Server versions.")
@click.option("--comparisons", default=10_000, show_default=True, help="How many to make of each version.")
@click.option("--seed", default=1, show_default=True, help="The same one draws the same inputs.")
@click.option("--json", "file", type=click.Path(path_type=Path), metavar="FILE", help="Write the results there, too.")
def main(versions: str, comparisons: int, seed: int, file: Path | None) -> None:
    """Draw transforms, subjects, header blocks and stream configurations; compare servers with the engine."""
    progress, results = RunProgress(), []
    for version in versions.split(","):
        with tempfile.TemporaryDirectory(prefix="nats-bridge-differential-") as directory:
            result = asyncio.run(
                compare(version, fetch(version), Path(directory), seed=seed, comparisons=comparisons, progress=progress)
            )
        click.echo(text(result))
        results.append(result)
    if file is not None:
        file.write_text(json.dumps([asdict(result) for result in results], indent=1), "utf-8", "backslashreplace")
    sys.exit(0 if all(result.is_good for result in results) else 1)


if __name__ == "__main__":
    main()
