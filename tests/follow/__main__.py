"""`python -m tests.follow [--from V] [--versions V,…]`: what newer server versions do differently.

Exit codes: 0 nothing differs, or no version is newer; 1 something differs; 2 usage; 3 the list of versions or a
server cannot be had; 130 interrupted.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from nats_conformance.catalogue.reading import read_catalogue
from nats_conformance.native_servers import InvalidVersionError, ServersError, fetch
from nats_conformance.native_servers.go_build import released_versions
from nats_conformance.native_servers.versions import canonical
from nats_transforms.tested_versions import TESTED_VERSIONS
from tests.follow.findings import Findings, findings
from tests.follow.newer import Step, newer, releases, table_until
from tests.follow.playing import Progress, parts, play
from tests.follow.report import markdown

_DIFFERS, _UNREACHABLE, _INTERRUPTED = 1, 3, 130


def _versions(ctx: click.Context, param: click.Parameter, text: str | None) -> list[str]:
    try:
        return [canonical(each) for each in (text or "").split(",") if each.strip()]
    except InvalidVersionError as error:
        raise click.BadParameter(str(error), ctx, param) from None


@click.command()
@click.option("--from", "start", callback=_versions, metavar="V", help="As if the table of versions ended here.")
@click.option(
    "--versions",
    "asked",
    callback=_versions,
    metavar="V,…",
    help="Choose from these versions, pre-releases included, instead of all releases that Go lists.",
)
@click.option(
    "--report",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default="build/follow",
    show_default=True,
    metavar="DIR",
    help="Where to write report.md, report.json, and the logs.",
)
def main(start: list[str], asked: list[str], folder: Path) -> None:
    """Compare server versions that are newer than the table with the versions before them, and with the engine."""
    if len(start) > 1:
        raise click.BadParameter("one version", param_hint="--from")
    table = table_until(TESTED_VERSIONS, start[0]) if start else list(TESTED_VERSIONS)
    (folder / "report.md").unlink(missing_ok=True)  # an older run must not be taken for this one
    try:
        steps = list(newer(asked or _released(), table))
        for version in dict.fromkeys(each for step in steps for each in (step.previous, step.version)):
            fetch(version, report=_say)
            shutil.rmtree(folder / version, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        found = _followed(steps, folder)
    except ServersError as error:
        _say(str(error))
        sys.exit(_UNREACHABLE)
    except KeyboardInterrupt:
        _say("interrupted")
        sys.exit(_INTERRUPTED)
    text = f"No version is newer than the table, which ends at {table[-1]}.\n" if not steps else markdown(found, folder)
    _write(text, found, folder)
    _say(f"written: {folder / 'report.md'}, {folder / 'report.json'}")
    click.echo(text)
    sys.exit(0 if all(each.is_same for each in found) else _DIFFERS)


def _released() -> list[str]:
    with tempfile.TemporaryDirectory(prefix="nats-bridge-list-") as directory:
        return releases(released_versions(Path(directory), _say))


def _followed(steps: Sequence[Step], folder: Path) -> list[Findings]:
    cases, found = read_catalogue(), []
    for step in steps:
        began = time.monotonic()
        waiting = parts(step, folder)
        _say(f"{step.version} after {step.previous}: {', '.join(part.name for part in waiting)}")
        reached = Progress(tuple(part.name for part in waiting))

        def shown(progress: Progress, step: Step = step, began: float = began) -> Findings:
            """What is known by now; the report is written again, so that a reader can begin before the end."""
            so_far = findings(step, folder, cases, progress, time.monotonic() - began)
            _write(markdown([*found, so_far], folder), [*found, so_far], folder)
            return so_far

        def ended(progress: Progress) -> None:
            nonlocal reached
            reached = progress
            if progress.waiting:
                shown(progress)

        asyncio.run(play(waiting, _say, ended))
        found.append(shown(reached))
    return found


def _write(text: str, found: Sequence[Findings], folder: Path) -> None:
    (folder / "report.md").write_text(text, "utf-8", "backslashreplace")
    (folder / "report.json").write_text(json.dumps([asdict(each) for each in found], indent=1), "utf-8")


def _say(text: str) -> None:
    click.echo(text, err=True)


if __name__ == "__main__":
    main()
