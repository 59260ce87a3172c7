"""Records the walk in docs/spark.md: runs its blocks in order, as a notebook would, and keeps what they print.

    python -m docs.record_spark            # prints the walk with its output
    python -m docs.record_spark --write    # and puts the output into docs/spark.md

A `python` block runs in one interpreter with those before it, an `sh` block as commands in one folder; the `text` block
behind either is what it printed. Only the port and the folder are replaced, by 4222 and nothing. Pictures that the walk
draws (`*.svg`) are put beside the page.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import click

from conformance.servers import NativeServer, fetch

__all__ = ["PAGE", "Block", "blocks", "comparable", "play"]

PAGE = Path(__file__).parent / "spark.md"
_ROOT = Path(__file__).parent.parent
_BEGIN, _END = "<!-- the walk -->\n", "<!-- the end of the walk -->\n"
_BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
_SERVER = "2.10.27"
_CHANGING = re.compile(
    r"\d+(?:\.\d+)? (?:s|ms|min|MB|GB|MiB|KiB|messages/s)\b|\d[\d,.]*/s|[0-9a-f]{16,}|\d{4}-\d\d-\d\d[T ][\d:.]+Z?"
)


@dataclass(frozen=True, slots=True)
class Block:
    """A block of the walk.

    Attributes:
        language: `sh` or `python`.
        code: what is run.
        output: what it prints on stdout.
        span: where it stands in the page, its output included.
    """

    language: str
    code: str
    output: str
    span: tuple[int, int]


def blocks(page: str) -> list[Block]:
    """The blocks of the walk in the page's text, in order."""
    begin, end = page.index(_BEGIN), page.index(_END)
    return [Block(found[1], found[2], found[3] or "", found.span()) for found in _BLOCK.finditer(page, begin, end)]


def comparable(output: str) -> str:
    """An output without what differs between runs: times, rates, sizes, identities."""
    return _CHANGING.sub("…", output)


def play(walk: list[Block], folder: Path) -> Iterator[Block]:
    """Run the blocks in a folder, on a server of their own; each comes back with what it printed.

    Raises:
        click.ClickException: a block failed.
    """
    programs = folder / "bin"
    programs.mkdir()
    command = programs / "nats-bridge"
    command.write_text(f"#!{sys.executable}\nfrom bridge.cli import main\n\nmain()\n", "utf-8")
    command.chmod(0o755)
    work = folder / "work"
    work.mkdir()
    known: dict[str, object] = {"__name__": "__main__"}
    paths = f"{programs}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": paths, "PYTHONPATH": str(_ROOT), "COLUMNS": "110"}
    with NativeServer(binary=fetch(_SERVER)) as server, contextlib.chdir(work):
        for block in walk:
            code = block.code.replace("127.0.0.1:4222", f"127.0.0.1:{server.port}")
            if block.language == "python":
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed):
                    exec(compile(code, "docs/spark.md", "exec"), known)
                output = printed.getvalue()
            else:
                done = subprocess.run(["sh", "-c", code], env=environment, capture_output=True, text=True, check=False)
                output = done.stdout
                if done.returncode not in (0, 1):
                    raise click.ClickException(f"exit {done.returncode}:\n{block.code}\n{output}{done.stderr}")
            yield replace(block, output=_plain(output, server.port, work))


def _plain(output: str, port: int, folder: Path) -> str:
    text = output.replace(f":{port}", ":4222").replace(f"{folder.resolve()}/", "").replace(str(folder.resolve()), ".")
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


@click.command()
@click.option("--write", is_flag=True, help="Put the output into docs/spark.md.")
def main(write: bool) -> None:
    """Run the walk."""
    page = PAGE.read_text("utf-8")
    with tempfile.TemporaryDirectory() as folder:
        played = []
        for block in play(blocks(page), Path(folder)):
            click.echo(f"```{block.language}\n{block.code}```\n\n{block.output}")
            played.append(block)
        pictures = {picture.name: picture.read_bytes() for picture in Path(folder).rglob("*.svg")}
    if write:
        for block in reversed(played):
            output = f"\n```text\n{block.output}```\n" if block.output else ""
            text = f"```{block.language}\n{block.code}```\n{output}"
            page = page[: block.span[0]] + text + page[block.span[1] :]
        PAGE.write_text(page, "utf-8")
        for name, picture in pictures.items():
            (PAGE.parent / name).write_bytes(picture)


if __name__ == "__main__":
    main()
