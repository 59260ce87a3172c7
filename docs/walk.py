"""Walks: parts of pages whose blocks are run in order, as a reader would, so that what they show is what happens.

A walk stands between `<!-- the walk -->` and `<!-- the end of the walk -->`. Its blocks:

- `sh`: typed into one shell, which keeps its folder and variables. A `text` block behind it is what it printed.
- `python`: run in one interpreter with those before it, as a notebook does; printed output as above.
- Whatever begins with a comment that is a file's name (`# orders.yaml`) is saved under that name.

and, as comments that no reader sees, before a block:

- `<!-- terminal: NAME -->`: this `sh` block is typed into a terminal of its own, and its program keeps running.
- `<!-- terminal NAME shows -->`: this `text` block is what is new in that terminal, so many lines as the block has.
  `<!-- terminal NAME shows: WORD -->` leaves out the lines without this word.
- `<!-- terminal NAME: Ctrl-C -->`: no block; the reader presses it.
- `<!-- file: PATH -->`: no block; a file below this folder, which the reader copies.
- `<!-- when: COMMAND -->`: the next block waits until this command succeeds, as a reader waits by being slow.

Ports that the pages name are replaced by free ones, and the folder in outputs by `.`.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import click

from nats_conformance.native_servers import NativeServer, fetch

DOCS: Final = Path(__file__).parent
WALKS: Final[dict[str, str | None]] = {
    "tutorial.md": None,
    "spark.md": "2.15.3",
    "redrive.md": "2.15.3",
    "failover.md": "2.15.3",
    "init.md": "2.9.10",
    "spark-diff.md": "2.15.3",
    "spark-restore.md": "2.15.3",
    "watch.md": "2.15.3",
}
"""The pages with a walk, each with the version of the server that it expects to run; None where the walk starts one."""

_BEGIN, _END = "<!-- the walk -->\n", "<!-- the end of the walk -->\n"
_STEP: Final = re.compile(
    r"^<!-- (?:terminal: (?P<opened>[\w-]+)|terminal (?P<watched>[\w-]+) shows(?:: (?P<word>\S+))?"
    r"|terminal (?P<ended>[\w-]+): Ctrl-C"
    r"|file: (?P<file>\S+)|when: (?P<when>.+?)) -->\n"
    r"|^```(?P<language>sh|python|yaml)\n(?P<code>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```\n)?"
    r"|^```text\n(?P<shown>.*?)^```\n",
    re.MULTILINE | re.DOTALL,
)
_FILE: Final = re.compile(r"# ([\w.-]+\.(?:py|yaml))\n")
_CHANGING: Final = re.compile(
    r"\d+(?:\.\d+)? (?:s|ms|min|MB|GB|MiB|KiB|messages/s)\b|\d[\d,.]*/s|bytes_out=\d+|[0-9a-f]{16,}"
    r"|\d{4}-\d\d-\d\d[T ][\d:.]+Z?|\b\d\d:\d\d:\d\d\b|bridge-[0-9a-f]+-\d+-\d+"
)
_LATENCY: Final = re.compile(r"(?:…(?: / …)?|-)$", re.MULTILINE)
"""At the end of a rule's line in the status; absent when no message has come for a while."""
_SERVER_NAME: Final = re.compile(r"(nats-server \d+\.\d+\.\d+) native-nats-server-\S+ at ")
"""The name of a server that a test starts; a reader's server has none."""
_PORTS: Final = ("4222", "8322")
"""The ports that pages name."""
_PAUSE: Final = 0.05
"""Seconds between two checks of a condition."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that the reader does or sees.

    Attributes:
        kind: `sh`, `python`, `file`, `terminal` (something started in one), `shown` (what is new in one), `ctrl-c` or
            `when`.
        code: what is typed, run, saved or waited for.
        output: what it prints on stdout; for `shown`, what the terminal shows.
        name: the file, or the terminal.
        span: where it stands in the page, its output included.
        language: what the page calls the block's language.
        word: for `shown`, a word that each line has; other lines are not shown.
    """

    kind: str
    code: str = ""
    output: str = ""
    name: str = ""
    span: tuple[int, int] = (0, 0)
    language: str = ""
    word: str = ""


def steps(page: str) -> list[Step]:
    """The steps of the walk in a page's text, in order."""
    found: list[Step] = []
    opened = watched = word = ""
    for match in _STEP.finditer(page, page.index(_BEGIN), page.index(_END)):
        span, code, language = match.span(), match["code"] or "", match["language"] or ""
        if match["opened"]:
            opened = match["opened"]
        elif match["watched"]:
            watched, word = match["watched"], match["word"] or ""
        elif match["ended"]:
            found.append(Step("ctrl-c", name=match["ended"], span=span))
        elif match["file"]:
            copied = DOCS / match["file"]
            found.append(Step("file", copied.read_text("utf-8"), name=copied.name, span=span))
        elif match["when"]:
            found.append(Step("when", match["when"], span=span))
        elif match["shown"] is not None:
            if not watched:
                raise ValueError(f"a text block that no command printed: {match['shown']!r}")
            found.append(Step("shown", "", match["shown"], watched, span, "text", word))
            watched = ""
        elif file := _FILE.match(code):
            found.append(Step("file", code, name=file[1], span=span, language=language))
        else:
            kind = "terminal" if opened else language
            found.append(Step(kind, code, match["output"] or "", opened, span, language))
            opened = ""
    return found


def with_outputs(page: str, played: list[Step]) -> str:
    """The page with the outputs of steps that were played."""
    for step in reversed(played):
        if step.kind == "shown":
            text = f"```text\n{step.output}```\n"
        elif step.kind in {"sh", "python"}:
            output = f"\n```text\n{step.output}```\n" if step.output else ""
            text = f"```{step.language}\n{step.code}```\n{output}"
        else:
            continue
        page = page[: step.span[0]] + text + page[step.span[1] :]
    return page


def comparable(output: str) -> str:
    """An output without what differs between runs: times, rates, sizes, identities, and widths of columns."""
    masked = re.sub(r" {2,}", " ", _CHANGING.sub("…", _SERVER_NAME.sub(r"\1 at ", output)))
    return _LATENCY.sub("…", masked)


def play(walk: list[Step], folder: Path, version: str | None) -> Iterator[Step]:
    """Do the steps in a folder; each comes back with what it printed.

    Args:
        walk: the steps.
        folder: an empty folder.
        version: of the server that is there from the start; None if the walk starts its own.

    Raises:
        click.ClickException: a step failed.
    """
    programs, work = folder / "bin", folder / "work"
    programs.mkdir()
    work.mkdir()
    command = programs / "nats-bridge"
    command.write_text(f"#!{sys.executable}\nfrom nats_bridge.cli import main\n\nmain()\n", "utf-8")
    command.chmod(0o755)
    with contextlib.ExitStack() as open_things:
        server = open_things.enter_context(NativeServer(binary=fetch(version))) if version else None
        ports = {port: str(_free_port()) for port in _PORTS}
        reader = _Reader(work, programs, ports | ({"4222": str(server.port)} if server else {}))
        open_things.callback(reader.leave)
        open_things.enter_context(contextlib.chdir(work))
        for step in walk:
            yield replace(step, output=reader.does(step))


class _Reader:
    """Who does what the page says: one shell, one interpreter, terminals."""

    def __init__(self, folder: Path, programs: Path, ports: dict[str, str]) -> None:
        self._folder, self._ports = folder, ports
        paths = f"{programs}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = {
            **os.environ,
            "PATH": paths,
            "PYTHONUNBUFFERED": "1",
            "COLUMNS": "110",
            "BRIDGE_HTTP__LISTEN": f"127.0.0.1:{ports['8322']}",
        }
        self._python: dict[str, object] = {"__name__": "__main__"}
        self._shell = _Shell(self._environment, folder.parent, folder)
        self._terminals: dict[str, _Terminal] = {}

    def leave(self) -> None:
        """End every running program."""
        for terminal in reversed(self._terminals.values()):
            terminal.end(signal.SIGTERM)
        self._shell.end()

    def does(self, step: Step) -> str:
        """One step; what is seen."""
        code = self._here(step.code)
        match step.kind:
            case "file":
                written = self._folder.parent / step.name
                written.write_text(code, "utf-8")
                written.replace(self._folder / step.name)  # at once: a sidecar may be watching it
                return ""
            case "python":
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed):
                    exec(compile(code, step.name or "a walk", "exec"), self._python)
                return self._there(printed.getvalue())
            case "sh":
                output, status, errors = self._shell.types(code)
                if status not in (0, 1):
                    raise click.ClickException(f"exit {status}:\n{step.code}\n{output}{errors}")
                return self._there(output)
            case "terminal":
                shown = self._folder.parent / step.name
                self._terminals[step.name] = _Terminal(code, self._environment, self._folder, shown)
                return ""
            case "shown":
                return self._there(self._terminals[step.name].shows(step.output.count("\n"), step.word))
            case "ctrl-c":
                self._terminals[step.name].end(signal.SIGINT)
                return ""
        while subprocess.run(["bash", "-c", code], env=self._environment, capture_output=True, check=False).returncode:
            self._none_has_ended(step)
            time.sleep(_PAUSE)
        return ""

    def _none_has_ended(self, step: Step) -> None:
        for name, terminal in self._terminals.items():
            if terminal.is_over:
                raise click.ClickException(f"terminal {name} ended while waiting for {step.code}:\n{terminal.all}")

    def _here(self, code: str) -> str:
        return re.sub(rf"\b(?:{'|'.join(self._ports)})\b", lambda found: self._ports[found[0]], code)

    def _there(self, output: str) -> str:
        for shown, real in self._ports.items():
            output = re.sub(rf"\b{real}\b", shown, output)
        output = output.replace(f"{self._folder.resolve()}/", "").replace(str(self._folder.resolve()), ".")
        return "".join(f"{line.rstrip()}\n" for line in output.splitlines())


class _Shell:
    """A shell that is typed into."""

    _MARK: Final = "--- end of the block ---"

    def __init__(self, environment: dict[str, str], folder: Path, place: Path) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            ["bash", "--norc"], cwd=place, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )

    def types(self, code: str) -> tuple[str, int, str]:
        """What a block prints, its exit code, and what it says on stderr."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        block, errors = self._folder / "block.sh", self._folder / "errors"
        block.write_text(code, "utf-8")
        self._process.stdin.write(f". '{block}' < /dev/null 2> '{errors}'; printf '\\n%s %s\\n' '{self._MARK}' $?\n")
        self._process.stdin.flush()
        lines: list[str] = []
        for line in self._process.stdout:
            if line.startswith(self._MARK):
                # The mark has a line of its own, whatever the output ends with.
                return "".join(lines).removesuffix("\n"), int(line.split()[-1]), errors.read_text("utf-8")
            lines.append(line)
        raise click.ClickException(f"the shell ended within\n{code}")

    def end(self) -> None:
        """Leave it."""
        self._process.communicate("exit\n")


class _Terminal:
    """A terminal with a running program."""

    def __init__(self, code: str, environment: dict[str, str], work: Path, place: Path) -> None:
        self._place = place
        self._seen = 0
        with place.open("wb") as output:
            self._process = subprocess.Popen(
                ["bash", "-c", code], cwd=work, env=environment, stdout=output, stderr=output, start_new_session=True
            )

    @property
    def is_over(self) -> bool:
        """Whether what was started has ended."""
        return self._process.poll() is not None

    @property
    def all(self) -> str:
        """Everything that it shows."""
        return self._place.read_text("utf-8")

    def shows(self, lines: int, word: str) -> str:
        """Wait for a number of new lines with this word, and return them."""
        while True:
            was_over = self.is_over
            complete = [line for line in self.all.splitlines(keepends=True) if line.endswith("\n")]
            found = [at for at in range(self._seen, len(complete)) if word in complete[at]]
            if len(found) >= lines:
                break
            if was_over:
                raise click.ClickException(f"a terminal ended without {lines} more lines with '{word}':\n{self.all}")
            time.sleep(_PAUSE)
        self._seen = found[lines - 1] + 1
        return "".join(complete[at] for at in found[:lines])

    def end(self, how: signal.Signals) -> None:
        """End what was started, and wait for it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, how)
        self._process.wait()


def _free_port() -> int:
    """A free port outside the range that the system assigns."""
    while True:
        port = random.randrange(20_000, 30_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
