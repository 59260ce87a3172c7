"""The page on errors: exit codes, the sidecar's own errors, and the server's codes that make a rule fail."""

from __future__ import annotations

import inspect
from typing import Final

from docs.reference.markdown import code, items
from nats_bridge import errors as bridge_errors
from nats_bridge.api_error_codes import CLASSES
from nats_bridge.errors import BridgeError

_HEAD: Final = """\
# Error codes

## Exit codes

- **0**: The command succeeded. `run` also ends with 0 after SIGTERM.
- **1**: The command ran, but its result is negative. For example, a sidecar is not ready.
- **2**: The usage or configuration is wrong, or credentials or permissions are refused. Waiting does not help.
- **3**: No server can be reached. Trying again can help.
- **130, 143**: Ctrl-C (130) or SIGTERM (143) ended the command.

## The sidecar's own errors

These are the values of `code` in the log event `sidecar.refused`, and in each entry of `findings` in the output of
`nats-bridge check --json`. If a server would refuse the rule for the same reason, an entry also has the server's
`err_code`.
"""
_API: Final = """\
## What a rule does after an error of the JetStream API

The log and `/status` quote the server's error with its `err_code`. If the `err_code` is in this list, or newer than
this release, the rule waits and tries again:
"""
_REST: Final = """\
On any other `err_code`, the rule fails, and the sidecar restarts it within a minute. Some errors are exceptions: for
example, a rule waits for a missing stream, and creates a missing consumer.
"""


def page() -> str:
    """The page's text."""
    classes = [found for _, found in inspect.getmembers(bridge_errors, inspect.isclass)]
    kinds = [kind for kind in classes if issubclass(kind, BridgeError) and kind is not BridgeError]
    errors = items((f"{code(kind.code)} (exit {kind.exit_code})", _first(kind)) for kind in kinds)
    return "\n".join((_HEAD, errors, _API, _ranges("passing") + ".\n", _REST))


def _ranges(name: str) -> str:
    """The codes of a class; codes of the table that follow each other are one range."""
    runs: list[list[int]] = [[]]
    for number, found in sorted(CLASSES.items()):
        if found == name:
            runs[-1].append(number)
        elif runs[-1]:
            runs.append([])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs if run)


def _first(kind: type) -> str:
    return " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())
