"""Records walks: does what a page says, and keeps what that prints.

    python -m docs.record tutorial.md            # does it, and shows it
    python -m docs.record tutorial.md --write    # and puts the outputs into the page

`docs.walk` says how a walk is written. Pictures that a walk draws (`*.svg`) are put next to the page.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from docs.walk import DOCS, WALKS, play, steps, with_outputs


@click.command()
@click.argument("page", type=click.Choice(list(WALKS)))
@click.option("--write", is_flag=True, help="Put the outputs into the page.")
def main(page: str, write: bool) -> None:
    """Do the walk of a page."""
    path = DOCS / page
    text = path.read_text("utf-8")
    with tempfile.TemporaryDirectory() as folder:
        played = []
        for step in play(steps(text), Path(folder), WALKS[page]):
            click.echo(f"--- {step.kind} {step.name}\n{step.code}{step.output}")
            played.append(step)
        pictures = {picture.name: picture.read_bytes() for picture in Path(folder).rglob("*.svg")}
    if write:
        path.write_text(with_outputs(text, played), "utf-8")
        for name, picture in pictures.items():
            (DOCS / name).write_bytes(picture)


if __name__ == "__main__":
    main()
