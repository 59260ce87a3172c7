"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from nats_bridge.errors import EXIT_GOOD, ConfigError
from nats_transforms.dialect import NEWEST, Dialect, dialect
from nats_transforms.errors import UnknownDialectError

if TYPE_CHECKING:
    from nats_bridge.permissions import Need
    from nats_bridge.settings import Settings


_Command = TypeVar("_Command", bound=Callable[..., Any])

DEFAULT: Final = ".".join(map(str, NEWEST.version[:2]))


def config_option(command: _Command) -> _Command:
    """`-c FILE`, as `config`."""
    return _config(required=True)(command)


def optional_config_option(command: _Command) -> _Command:
    """Add the option `-c FILE` as the parameter `config`, which is None if the option is missing."""
    return _config(required=False)(command)


def _config(*, required: bool) -> Callable[[_Command], _Command]:
    return click.option(
        "-c",
        "--config",
        "config",
        type=click.Path(path_type=Path),
        required=required,
        metavar="FILE",
        help="The bridge's configuration (YAML). BRIDGE_ environment variables override it.",
    )


def dialect_option(command: _Command) -> _Command:
    """`--dialect V`, as `version`, already a `Dialect`."""
    return click.option(
        "--dialect",
        "version",
        default=DEFAULT,
        show_default=True,
        metavar="V",
        callback=to_dialect,
        help="Server version to reproduce, such as 2.10 or 2.10.27.",
    )(command)


def only_permissions() -> bool:
    """Return whether `nats-bridge --permissions COMMAND` was called; the command then does nothing else."""
    return bool(click.get_current_context().find_root().params.get("permissions"))


def print_permissions(settings: Settings, connections: Iterable[str], needs: Iterable[Need]) -> int:
    """Print the permissions that the connections' users need, for `--permissions`. Return the exit code."""
    from nats_bridge.permissions import permissions_of

    click.echo(permissions_of({name: settings.connections[name] for name in connections}, needs))
    return EXIT_GOOD


def to_dialect(_: click.Context | None, __: click.Parameter | None, value: str) -> Dialect:
    """Return the dialect of an option, as its callback."""
    try:
        return dialect(value)
    except UnknownDialectError as error:
        raise ConfigError(f"--dialect: {error}") from None
