"""The file that `nats-bridge init` writes, and those beside it: whole or not at all, and over nobody's work."""

from __future__ import annotations

import os
from pathlib import Path

import click

from nats_bridge.bridge.errors import ConfigError

__all__ = ["InitFile", "write_whole"]


class InitFile:
    """Where the configuration goes.

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
        """What messages and comments call it."""
        return str(self.path)

    def must_be_free(self) -> None:
        """See that it may be written, before a server is asked.

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
            raise ConfigError(f"-o {self.path}: is there already; --force overwrites it, another -o leaves it")

    def write(self, text: str) -> None:
        """Write the configuration."""
        if self.is_stdout:
            click.echo(text, nl=False)
        else:
            write_whole(self.path, text, force=self._force)


def write_whole(path: Path, text: str, *, force: bool) -> None:
    """Write a file atomically: readers find the old one or all of the new one.

    Raises:
        ConfigError: it is there already and must stay, or it cannot be written.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if path.exists() and not force:
            raise ConfigError(f"{path}: is there already; --force overwrites it")
        draft.replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror})") from None
    finally:
        draft.unlink(missing_ok=True)
