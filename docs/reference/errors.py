"""The page on errors: exit codes, the sidecar's own errors, and the server's codes that make a rule fail."""

from __future__ import annotations

import inspect
from typing import Final

from docs.reference.markdown import code, table
from nats_bridge import errors as bridge_errors
from nats_bridge.api_error_codes import CLASSES
from nats_bridge.errors import BridgeError

_HEAD: Final = """\
# Error codes

This page is generated: `python -m docs.reference --write`.

## Exit codes

| code | meaning |
|---|---|
| 0 | good |
| 1 | the answer is no: a configuration that a server refuses, a failed case, a sidecar that is not ready |
| 2 | usage or configuration, refused credentials and permissions included; waiting does not help |
| 3 | no server can be reached; trying again can help |
| 130, 143 | ended by Ctrl-C or by a signal, where a command says so; `run` ends with 0 after SIGTERM |

## The sidecar's own errors

`nats-bridge check --json` and the log event `sidecar.refused` name the kind of error in `code`. `check --json` lists
what it finds in `findings`: each entry has the name of the `rule`, `ok`, `code` and `text`. It also has `err_code`, the
number of the server's own error, if a server refuses the same.
"""
_API: Final = """\
## What a rule does after an error of the JetStream API

The log and `/status` quote the server's error with its `err_code`. Your rule fails at these codes, and starts again
after pauses of up to a minute:
"""
_MEANINGS: Final = {
    "fatal": "a stream, consumer or message is another one",
    "misconfiguration": "only another rule, stream, limit or message helps",
}
_REST: Final = """\
After every other code, also one that is new, the rule waits and tries again. Kinds of rules handle some codes first:
they wait for a missing stream, and create a missing consumer.

`nats-bridge check FILE` answers a stream configuration with the code and the words of the server of the chosen
[dialect](dialects.md). Servers check in a fixed order, and report the first mistake.
"""


def page() -> str:
    """The page's text."""
    classes = [found for _, found in inspect.getmembers(bridge_errors, inspect.isclass)]
    kinds = [kind for kind in classes if issubclass(kind, BridgeError) and kind is not BridgeError]
    errors = table(
        ("code", "exit code", "when"),
        (
            (code(kind.code), str(kind.exit_code), _first(kind) + (" Trying again can help." if kind.retriable else ""))
            for kind in kinds
        ),
    )
    codes = "\n".join(f"- **{name}** ({meaning}): {_ranges(name)}" for name, meaning in _MEANINGS.items())
    return "\n".join((_HEAD, errors, _API, codes + "\n", _REST))


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
