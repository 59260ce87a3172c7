"""Writes the pages of the reference."""

from __future__ import annotations

import click

from docs.reference.pages import FOLDER, PAGES


@click.command()
@click.option("--write", is_flag=True, help="Write the pages that changed.")
def main(write: bool) -> None:
    """Say which pages of the reference are not what the code says, and write them."""
    for name, page in PAGES.items():
        path = FOLDER / name
        text = page()
        if path.exists() and path.read_text("utf-8") == text:
            continue
        if write:
            path.write_text(text, "utf-8")
        click.echo(f"{path}: {'written' if write else 'differs'}")


if __name__ == "__main__":
    main()
