"""Finds and runs the command, and turns errors into two lines and an exit code."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import click

from nats_bridge.errors import EXIT_GOOD, EXIT_NO, EXIT_USAGE, ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

# Names of the commands, their places in this package, and their lines in the help. They are kept here as text because
# listing the commands must not import them all.
_COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "init": ("cli.init.command:init_command", "Print the rules for a native configuration."),
    "run": ("cli.sidecar:run_command", "Run the rules of a configuration until SIGTERM."),
    "status": (
        "cli.status.command:status_command",
        "Show the state of a running sidecar.",
    ),
    "check": ("cli.check:check_command", "Check a configuration and its cluster, or a stream configuration."),
    "explain": ("cli.explain:explain_command", "Show how a transform produces a subject, token by token."),
    "handoff": ("cli.handoff:handoff_command", "Print the native configuration that replaces a rule."),
    "failover": ("cli.failover:failover_command", "Plan how to move consumers to the copies of their streams."),
    "clean": ("cli.clean:clean_command", "Remove the sidecar's consumers and leases from servers."),
    "watch": ("cli.watch:watch_command", "Check whether native mirrors and sources make progress."),
    "redrive": ("cli.redrive:redrive_command", "Publish dead letters again on their original subjects."),
}
# The commands of other distributions, which register them as entry points: which one has it, and the list's words.
_ELSEWHERE: Final[dict[str, tuple[str, str]]] = {
    "conform": ("nats-conformance", "Compare servers, engine and bridge with the catalogue of cases."),
    "servers": ("nats-conformance", "List and fetch native NATS servers."),
    "demo": ("nats-conformance", "Compare native republish and the bridge."),
    "capture": ("nats-bridge-spark", "Capture streams as Parquet, in one process or on Spark."),
    "restore": ("nats-bridge-spark", "Recreate streams from captures."),
    "backfill": ("nats-bridge-spark", "Copy a stream's history through a rule."),
    "diff": ("nats-bridge-spark", "Compare two streams or captures, in one process or on Spark."),
}
_NAMES: Final = (*_COMMANDS, *_ELSEWHERE)
_WITH_PERMISSIONS: Final = ("failover", "watch", "redrive", "capture", "restore")


class _Commands(click.Group):
    """A group whose commands are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_NAMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _COMMANDS:
            module, _, attribute = _COMMANDS[cmd_name][0].partition(":")
            command: click.Command = getattr(import_module(f"nats_bridge.{module}"), attribute)
            return command
        if cmd_name not in _ELSEWHERE:
            return None
        found = _installed_elsewhere()
        if cmd_name not in found:
            package = _ELSEWHERE[cmd_name][0]
            raise click.UsageError(
                f"the command '{cmd_name}' is in a package that is not installed: pip install {package}=={_version()}",
                ctx,
            )
        elsewhere: click.Command = found[cmd_name].load()
        return elsewhere

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in _NAMES and not name.startswith("-"):
            from difflib import get_close_matches

            close = get_close_matches(name, _NAMES, n=1)
            hint = f"did you mean '{close[0]}'?" if close else "commands: " + ", ".join(_NAMES)
            raise click.UsageError(f"unknown command '{name}'; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])
        found = _installed_elsewhere()
        for package in dict.fromkeys(package for package, _ in _ELSEWHERE.values()):
            theirs = [(name, text) for name, (where, text) in _ELSEWHERE.items() if where == package]
            missing = "" if theirs[0][0] in found else ", which is not installed"
            with formatter.section(f"Commands of {package}{missing}"):
                formatter.write_dl(theirs)


def _installed_elsewhere() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points

    return {each.name: each for each in entry_points(group="nats_bridge.commands") if each.name in _ELSEWHERE}


def _version() -> str:
    from importlib.metadata import version

    return version("nats-bridge")


@click.group(
    cls=_Commands,
    name="nats-bridge",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    invoke_without_command=False,
    no_args_is_help=True,
)
@click.option("--debug", is_flag=True, help="Show a traceback if the command fails.")
@click.option(
    "--permissions",
    is_flag=True,
    help=f"Print the permissions that the command needs, and do nothing else. For {', '.join(_WITH_PERMISSIONS)}.",
)
@click.version_option(package_name="nats-bridge", prog_name="nats-bridge")
@click.pass_context
def program(ctx: click.Context, debug: bool, permissions: bool) -> None:
    """Republish and subject transforms for NATS JetStream, from outside the server, exactly as the server does them.

    `nats-bridge COMMAND --help` has the options and examples of a command.

    Exit codes: 0 success, 1 check failed, 2 usage or configuration error, 3 server unreachable, 130 and 143 ended by a
    signal.

    \b
    Example:
      nats-bridge demo
      nats-bridge run -c config/republish-monitor.yaml
    """
    if permissions and ctx.invoked_subcommand not in _WITH_PERMISSIONS:
        raise click.UsageError(
            f"--permissions is for {', '.join(_WITH_PERMISSIONS)}; for run, use check -c FILE --permissions", ctx
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code.

    Args:
        arguments: used instead of the process's own.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = given[:1] == ["--debug"]
    terminated: list[int] = []
    try:
        with _interruptible(terminated):
            outcome: Any = program.main(given, prog_name="nats-bridge", standalone_mode=False)
        code = outcome if isinstance(outcome, int) else EXIT_GOOD
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the output has ended (`… | head`). Nothing more can be written, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = EXIT_NO
    except (KeyboardInterrupt, click.Abort):
        code = 128 + (signal.SIGTERM if terminated else signal.SIGINT)
    except Exception as error:
        if debug:
            traceback.print_exc()
        else:
            click.echo(_reported(error, given), err=True)
        code = _exit_code(error)
    sys.exit(code)


@contextmanager
def _interruptible(terminated: list[int]) -> Iterator[None]:
    """Let SIGTERM act like Ctrl-C, so that a command ends its servers and removes its files.

    SIGINT is handled even if it was ignored, as in a script's background job; `asyncio.run` would not handle it there.

    Args:
        terminated: gets the number of a SIGTERM, unless the command handles it itself.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        terminated.append(number)
        handler = signal.getsignal(signal.SIGINT)  # asyncio's, while it runs
        (handler if callable(handler) else signal.default_int_handler)(signal.SIGINT, frame)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[int, Any] = {}
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        before[signal.SIGTERM] = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit_code(error: Exception) -> int:
    if isinstance(error, click.ClickException):
        return EXIT_USAGE
    return int(getattr(error, "exit_code", EXIT_NO))  # the errors of all packages of this project have one


def _reported(error: Exception, given: Sequence[str]) -> str:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return error.format_message()
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx else "nats-bridge"
        text = error.format_message()
        text = f"{text[:1].lower()}{text[1:].rstrip('.')}"
        if isinstance(error, click.MissingParameter) and error.param is not None and error.param.name == "config":
            text += f": -c {next((word for word in given if word.endswith(('.yaml', '.yml'))), 'FILE')}"
        return f"{command}: {text}\nSee: {command} --help"
    if isinstance(error, click.ClickException):
        return f"nats-bridge: {error.format_message()}"
    if isinstance(error, ConfigError):
        return error.with_quotes
    if hasattr(error, "exit_code"):
        return str(error)
    text = " ".join(str(error).split()) or "no further text"
    return f"nats-bridge: unexpected {type(error).__name__}: {text}\nFor details: nats-bridge --debug …"
