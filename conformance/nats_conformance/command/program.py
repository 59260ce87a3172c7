"""The console entry point `nats-conform`: turns errors into one or two lines and an exit code."""

import signal
import sys
from collections.abc import Sequence
from types import FrameType

import click

from nats_conformance.command.group import ConformGroup, conform
from nats_conformance.demo import demo_command
from nats_conformance.errors import ConformanceError
from nats_conformance.native_servers.command import servers
from nats_transforms.errors import EngineError

program = ConformGroup(
    name="nats-conform",
    help=conform.help,
    commands={**conform.commands, "servers": servers, "demo": demo_command},
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
click.version_option(package_name="nats-conformance", prog_name="nats-conform")(program)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code.

    Args:
        arguments: used instead of the process's own.
    """
    terminated: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        terminated.append(number)
        handler = signal.getsignal(signal.SIGINT)  # asyncio's, while it runs
        (handler if callable(handler) else signal.default_int_handler)(signal.SIGINT, frame)

    # SIGTERM acts like Ctrl-C, so that servers end and files are removed.
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        outcome = program.main(arguments, prog_name="nats-conform", standalone_mode=False)
        code = outcome if isinstance(outcome, int) else 0
    except (KeyboardInterrupt, click.Abort):
        code = 128 + (signal.SIGTERM if terminated else signal.SIGINT)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (ConformanceError, EngineError) as error:
        click.echo(str(error), err=True)
        code = int(getattr(error, "exit_code", 2))
    finally:
        signal.signal(signal.SIGTERM, before)
    sys.exit(code)
