"""The configuration that `nats-bridge init` writes: rules, and the changes that they need."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

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


class Draft:
    """Rules, one after the other.

    Args:
        later: the cluster as it will be when they run.
        connection: as a configuration holds it.
        changes: what must become of streams before their rules can run.
        file: where the configuration goes.
        about: what it is written from, a line each.
    """

    def __init__(
        self,
        later: Landscape,
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
        self._later = later

    def add(self, rule: ProposedRule) -> str | None:
        """Add a rule, unless it cannot run on this cluster, even after the changes that it needs.

        Returns:
            Why it is not taken, in the words of `nats-bridge check`; None if it is.
        """
        rule = named(rule, [known.name for known in self.rules])
        try:
            settings = loads(self._text((*self.rules, rule)), self.file.path.parent, str(self.file.path))
        except ConfigError as error:
            # Without its place: the file is not written, or another one is there.
            return re.sub(
                rf"{re.escape(str(self.file.path))}:\d+:\d+: (rules\[\d+]\.)?", "", error.problems[0], count=1
            )
        if path := self._loop(settings, rule):
            return f"loop: {path}: choose a destination outside"
        findings = ask(check_server(settings, None))
        mine = next(finding for finding in findings if finding.rule == rule.name)
        if not mine.ok and not self._waits(rule):
            return mine.text
        self.rules.append(rule)
        self.findings = findings
        return None

    def write(self) -> None:
        """Write the configuration.

        Raises:
            ConfigError: it cannot be written.
        """
        self.file.write(self._text(self.rules))

    @property
    def steps(self) -> list[str]:
        """The changes of the cluster that are needed first, as commands; empty for none."""
        needed = self._needed()
        if not needed:
            return []
        lines = ["", "before it can run, for you to do, since init changes nothing on the cluster:"]
        return [*lines, *(f"  {step}" for change in needed for step in change.steps)]

    def _needed(self) -> list[StreamChange]:
        used = {rule.data.get("stream") for rule in self.rules}
        return [change for change in self._changes if change.stream in used]

    def _waits(self, rule: ProposedRule) -> bool:
        return any(change.stream == rule.data.get("stream") for change in self._changes)

    def _loop(self, settings: Settings, rule: ProposedRule) -> str:
        """The path of a loop through a rule, once the streams are changed; empty without one."""
        reach = Reach("default", list(self._later.streams.values()), self._later.server)
        return next((loop.path for loop in find_loops(settings, {"default": reach}) if loop.rule == rule.name), "")

    def _text(self, rules: Sequence[ProposedRule]) -> str:
        return configuration_text(self._connection, rules, about=self._about, file=str(self.file.path))


class InitFile:
    """The file of the configuration.

    Args:
        output: a path, or `-` for stdout.
        force: whether a file that is there may be overwritten.

    Attributes:
        path: the path; for stdout, what messages and comments call it.

    Raises:
        ConfigError: a file is there, or its folder is not.
    """

    def __init__(self, output: str, *, force: bool) -> None:
        self.is_stdout = output == "-"
        self.path = Path("bridge.yaml" if self.is_stdout else output)
        self._force = force
        if self.is_stdout:
            return
        if self.path.is_dir():
            raise ConfigError(f"-o {self.path}: is a folder; name a file in it")
        if not self.path.parent.is_dir():
            raise ConfigError(f"-o {self.path}: there is no folder {self.path.parent}; make it first")
        if self.path.exists() and not force:
            raise ConfigError(f"-o {self.path}: exists; --force overwrites it, another -o leaves it")

    def write(self, text: str) -> None:
        """Write the configuration; a file that is there stays until the new one is whole.

        Raises:
            ConfigError: it cannot be written.
        """
        if self.is_stdout:
            click.echo(text, nl=False)
            return
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}") if self._force else self.path
        try:
            with draft.open("x", encoding="utf-8") as file:  # never over a file that has come since
                file.write(text)
            draft.replace(self.path)
        except OSError as error:
            raise ConfigError(f"-o {self.path}: cannot be written ({error.strerror})") from None
        finally:
            if self._force:
                draft.unlink(missing_ok=True)
