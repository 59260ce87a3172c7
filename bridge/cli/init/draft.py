"""The configuration that `nats-bridge init` writes: rules, the changes that they need, and files."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from nats_bridge.bridge.app.preflight import check_server
from nats_bridge.bridge.cli.asking import ask
from nats_bridge.bridge.cli.init.landscape import Landscape
from nats_bridge.bridge.cli.init.proposed_rule import ProposedRule, configuration_text, named
from nats_bridge.bridge.cli.init.stream_change import StreamChange
from nats_bridge.bridge.errors import ConfigError
from nats_bridge.bridge.rules.finding import Finding
from nats_bridge.bridge.rules.loops.moves import Reach
from nats_bridge.bridge.rules.loops.search import find_loops
from nats_bridge.bridge.settings import Settings, loads
from nats_bridge.bridge.settings.checks import rule_problems
from nats_bridge.bridge.settings.problems import path_text


class Draft:
    """Rules, one after the other.

    Args:
        seen: the cluster.
        connection: as a configuration holds it; paths are those of the process.
        changes: what must become of streams before their rules can run.
        file: where the configuration goes.
        about: what it is written from, a line each.
    """

    def __init__(
        self,
        seen: Landscape,
        connection: dict[str, Any],
        changes: Sequence[StreamChange],
        file: InitFile,
        about: Sequence[str],
    ) -> None:
        self.file = file
        self.rules: list[ProposedRule] = []
        self.findings: list[Finding] = []
        self._connection = connection
        self._changes = list(changes)
        self._about = about
        self._later = seen
        for change in changes:
            self._later = self._later.with_config(change.body)

    def add(self, rule: ProposedRule) -> str | None:
        """Add a rule, unless it cannot run on this cluster, even after the changes that it needs.

        Returns:
            Why it is not taken, in the words of `nats-bridge check`; None if it is.
        """
        rule = named(rule, [known.name for known in self.rules])
        if reason := obstacle(rule, self.rules, self._later):
            return reason
        findings = self._look((*self.rules, rule))
        mine = next(finding for finding in findings if finding.rule == rule.name)
        if not mine.ok and not self._waits(rule):
            return mine.text
        self.rules.append(rule)
        self.findings = findings
        return None

    def write(self, *, stream_files: Path | None, force: bool) -> list[str]:
        """Write the files.

        Args:
            stream_files: folder for the bodies of requests that change streams; None for none.
            force: whether files may be overwritten.

        Returns:
            The files' names; not what went to stdout.

        Raises:
            ConfigError: one cannot be written.
        """
        names = []
        if stream_files is not None:
            for change in self._needed():
                place = stream_files / change.file_name
                write_whole(place, json.dumps(change.body, indent=2, ensure_ascii=False) + "\n", force=force)
                names.append(str(place))
        self.file.write(self._text(self.rules))
        return names if self.file.is_stdout else [self.file.shown, *names]

    def steps(self, stream_files: Path | None) -> list[str]:
        """The changes of the cluster that are needed first, as commands; empty for none."""
        needed = self._needed()
        if not needed:
            return []
        lines = ["", "before it can run, for you to do, since init changes nothing on the cluster:"]
        lines += [f"  {step}" for change in needed for step in change.steps(stream_files or Path())]
        if stream_files is None:
            force = "" if self.file.is_stdout else " --force"
            lines.append(f"  # the same command with --stream-files .{force} writes these files")
        return lines

    def _needed(self) -> list[StreamChange]:
        used = {rule.data.get("stream") for rule in self.rules}
        return [change for change in self._changes if change.stream in used]

    def _waits(self, rule: ProposedRule) -> bool:
        return any(change.stream == rule.data.get("stream") for change in self._changes)

    def _look(self, rules: Sequence[ProposedRule]) -> list[Finding]:
        """The findings of `check` for some rules."""
        settings = loads(self._text(rules), self.file.path.parent, self.file.shown)
        return ask(check_server(settings, None))

    def _text(self, rules: Sequence[ProposedRule]) -> str:
        return configuration_text(self._connection_there(), rules, about=self._about, file=self.file.shown)

    def _connection_there(self) -> dict[str, Any]:
        """The connection with paths as the file needs them: relative to its folder."""
        creds = self._connection.get("creds")
        if creds is None or Path(creds).is_absolute():
            return self._connection
        try:
            return {**self._connection, "creds": os.path.relpath(creds, self.file.path.parent)}
        except ValueError:
            raise ConfigError(f"--creds {creds}: give its whole path") from None


def obstacle(rule: ProposedRule, others: Sequence[ProposedRule], seen: Landscape) -> str | None:
    """The reason against proposing a rule with the others, by what was read; None without one.

    Args:
        rule: the rule.
        others: those that are proposed already.
        seen: the cluster as it will be when they run.
    """
    try:
        settings = Settings.model_validate({"rules": [each.data for each in (*others, rule)]})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(str(part) for part in first['loc'][3:])}: {first['msg']}"
    mine = settings.rules[-1]
    for problem in rule_problems([(0, mine)], settings.dialect, settings.connections):
        return f"{path_text(problem.path[2:])}: {problem.message}"
    reach = Reach("default", list(seen.streams.values()), seen.server)
    loop = next((loop for loop in find_loops(settings, {"default": reach}) if loop.rule == rule.name), None)
    return None if loop is None else f"loop: {loop.path}: choose a destination outside"


class InitFile:
    """The file of the configuration.

    Args:
        output: a path, or `-` for stdout.
        force: whether a file that is there may be overwritten.
    """

    def __init__(self, output: str, *, force: bool) -> None:
        self.is_stdout = output == "-"
        self.path = Path("bridge.yaml" if self.is_stdout else output)
        self._force = force

    @property
    def shown(self) -> str:
        """The name in messages and comments."""
        return str(self.path)

    def must_be_free(self) -> None:
        """Refuse to overwrite a file, before a server is asked.

        Raises:
            ConfigError: a file is there, or its folder is not.
        """
        if self.is_stdout:
            return
        if self.path.is_dir():
            raise ConfigError(f"-o {self.path}: is a folder; name a file in it")
        if not self.path.parent.is_dir():
            raise ConfigError(f"-o {self.path}: there is no folder {self.path.parent}; make it first")
        if self.path.exists() and not self._force:
            raise ConfigError(f"-o {self.path}: exists; --force overwrites it, another -o leaves it")

    def write(self, text: str) -> None:
        """Write the configuration."""
        if self.is_stdout:
            click.echo(text, nl=False)
        else:
            write_whole(self.path, text, force=self._force)


def write_whole(path: Path, text: str, *, force: bool) -> None:
    """Write a file atomically: readers find the old one or all of the new one.

    Raises:
        ConfigError: it exists and must stay, or it cannot be written.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if path.exists() and not force:
            raise ConfigError(f"{path}: exists; --force overwrites it")
        draft.replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror})") from None
    finally:
        draft.unlink(missing_ok=True)
