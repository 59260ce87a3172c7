"""The page on errors: exit codes, the sidecar's own errors, and the server's answers that the engine gives."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Final

from docs.reference.markdown import code, table
from nats_bridge import errors as bridge_errors
from nats_bridge.api_error_codes import CLASSES
from nats_bridge.errors import BridgeError
from nats_transforms.stream_config.refusals import REFUSALS

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

`nats-bridge check --json` and the log event `sidecar.refused` name the kind of error in `code`.
"""
_SERVERS: Final = Path(__file__).parents[2] / "tests" / "data" / "api_error_codes.json"
_API: Final = """\
## What a rule does after an error of the JetStream API

`passing`: the rule waits and tries again. `fatal` (a stream, consumer or message is another one) and `misconfiguration`
(only another rule, stream, limit or message helps): the rule fails. Unknown codes are passing. Kinds of rules
handle some codes first: they wait for a missing stream, and create a missing consumer.
"""
_REFUSED: Final = """\
## What a server answers to a stream configuration

`nats-bridge check` and `nats_transforms.stream_config` answer a configuration as the server of the
chosen [dialect](dialects.md) does: with its HTTP code, its `err_code` and its words. Which of them are given depends on
the dialect; servers check in a fixed order, and the first mistake is the one that is reported. `case`
is the name in `transforms/nats_transforms/stream_config/refusals.py`; texts in braces are filled in.
"""


def page() -> str:
    """The page's text."""
    classes = [found for _, found in inspect.getmembers(bridge_errors, inspect.isclass)]
    kinds = [kind for kind in classes if issubclass(kind, BridgeError) and kind is not BridgeError]
    errors = table(
        ("code", "exit code", "trying again", "when"),
        ((code(kind.code), str(kind.exit_code), "can help" if kind.retriable else "-", _first(kind)) for kind in kinds),
    )
    servers = json.loads(_SERVERS.read_text("utf-8"))["codes"]
    answers = table(
        ("err_code", "code", "class", "since", "description"),
        (
            (number, str(error["code"]), CLASSES[int(number)], error["since"], code(error["description"]))
            for number, error in servers.items()
        ),
    )
    refusals = table(
        ("err_code", "code", "case", "description"),
        (
            (str(err_code), str(http_code), code(case), code(text))
            for case, (http_code, err_code, text) in sorted(REFUSALS.items(), key=lambda refusal: refusal[1][1:])
        ),
    )
    return "\n".join((_HEAD, errors, _API, answers, _REFUSED, refusals))


def _first(kind: type) -> str:
    return " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())
