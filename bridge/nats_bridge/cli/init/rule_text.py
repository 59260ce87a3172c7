"""Writes rules as a configuration: commented YAML."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from nats_bridge.observability.printable import printable

if TYPE_CHECKING:
    from nats_bridge.cli.init.native_rules import NativeRule

_WIDTH: Final = 118
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def configuration_text(connection: Mapping[str, Any], rules: Sequence[NativeRule], about: Sequence[str] = ()) -> str:
    """Return the text of a configuration file.

    Args:
        connection: the members of the one connection.
        rules: at least one.
        about: comment lines for the head of the file.
    """
    lines = [*(line for text in about for line in _comment(text)), "connections:", f"  default: {_flow(connection)}"]
    lines.append("rules:")
    for rule in rules:
        lines += [f"  {line}" for text in rule.why for line in _comment(text)]
        members = [line for key, value in rule.data.items() for line in _member(key, value)]
        lines += [f"  {'- ' if not number else '  '}{line}" for number, line in enumerate(members)]
    return "\n".join(lines) + "\n"


def _member(key: str, value: Any) -> Iterator[str]:
    if isinstance(value, list):
        yield f"{key}:"
        yield from (f"  - {_flow(entry)}" for entry in value)
    else:
        yield f"{key}: {_flow(value)}"


def _flow(value: Any) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{key}: {_flow(each)}" for key, each in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_flow, value)) + "]"
        case str() if _PLAIN.fullmatch(value) and value.lower() not in ("true", "false", "null"):
            return value
        case _:
            # YAML accepts all JSON, except for some characters that must be escaped.
            return "".join(map(_escaped, json.dumps(value, ensure_ascii=False)))


def _escaped(character: str) -> str:
    return character if character.isprintable() else f"\\U{ord(character):08x}"


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(printable(text), _WIDTH, break_long_words=False)]
