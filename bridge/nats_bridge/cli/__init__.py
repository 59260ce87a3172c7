"""The command `nats-bridge`.

`main` is the console entry point. Each command is a module that is imported only when it is used, so `explain` does not
import the packages that `run` needs.
"""

import gc
import sys
from collections.abc import Sequence

from nats_bridge.app.startup_signals import listen_early

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code.

    Args:
        arguments: used instead of the process's own.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    # Imports make many objects and hardly any garbage, so it is looked for less often.
    gc.set_threshold(50_000, 20, 50)
    if next((word for word in given if not word.startswith("-")), "") == "run":
        listen_early()  # before anything that takes time to import
    from nats_bridge.cli.entry import main as command_line

    command_line(given)
