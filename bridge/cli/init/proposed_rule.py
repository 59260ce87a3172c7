"""Proposed rules, and their configuration as commented YAML."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from nats_bridge.bridge.observability.printable import printable
from nats_bridge.bridge.settings.base import MAX_NAME_LENGTH


@dataclass(frozen=True, slots=True)
class ProposedRule:
    """One rule.

    Attributes:
        data: the rule as a configuration holds it, with its keys in the order in which they are written.
        why: what it is there for, and what should be known; one line each, for the comment above it.
    """

    data: dict[str, Any]
    why: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The rule's name."""
        return str(self.data["name"])

    @property
    def kind(self) -> str:
        """The rule's kind."""
        return str(self.data["kind"])


def named(rule: ProposedRule, taken: Iterable[str]) -> ProposedRule:
    """The same rule, with a name that is none of those taken already, and that can be one at all."""
    used = set(taken)
    plain = re.sub(r"[^a-z0-9]+", "-", rule.name.lower()).strip("-") or rule.kind
    name, number = plain[:MAX_NAME_LENGTH], 1
    while name in used:
        number += 1
        ending = f"-{number}"
        name = plain[: MAX_NAME_LENGTH - len(ending)] + ending
    return replace(rule, data={**rule.data, "name": name})


_WIDTH = 118
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")

_DEST = "what it becomes; nats-bridge explain SRC DEST SUBJECT shows it"
_REMARKS: Final[Mapping[str, str]] = {
    "name": "in logs, metrics and /status",
    "republish.stream": "whose messages",
    "republish.republish": "as in a native stream configuration",
    "republish.republish.src": "which subjects",
    "republish.republish.dest": _DEST,
    "republish.republish.headers_only": "no bodies, Nats-Msg-Size says how large they are; false sends them",
    "republish.start": 'with no position yet; or first, {sequence: 17}, {time: "2026-01-01T00:00:00Z"}',
    "republish.delivery at_most_once": "never twice, a crash may lose messages in flight; at_least_once: never lost",
    "republish.durable": "no position is kept on the server; true keeps one, for restarts without a gap",
    "sources.stream": "the stream that receives, an ordinary one",
    "sources.sources": "as in a native stream configuration; the first transform that matches counts",
    "mirror.stream": "the stream that receives, an ordinary one",
    "mirror.mirror": "as in a native stream configuration",
    "subject_transform.stream": "stores them, and answers the publishers itself",
    "subject_transform.subject_transform": "as in a native stream configuration",
    "subject_transform.subject_transform.src": "what publishers use; no stream may have it",
    "subject_transform.subject_transform.dest": _DEST,
    "advisories.republish": "the server's advisories",
    "advisories.republish.src": "the advisory; MSG_TERMINATED: given up by the worker",
    "advisories.republish.dest": _DEST,
    "advisories.attach_message": "the message itself, the advisory in its headers; false: the advisory alone",
}
_ELSE: Final[Mapping[str, tuple[str, ...]]] = {
    "republish": (
        'exclude: ["orders.test.>"] # subjects to leave out',
        "to: west # another connection to publish to, in another account or cluster",
    ),
    "sources": (
        'on_rejected: {skip: "rejected.copies"} # what the stream rejects permanently; the default stop waits for you',
    ),
    "mirror": (
        "keep_sequence: true # the source's sequence numbers; then no other client may publish into the stream",
        'on_rejected: {skip: "rejected.copies"} # what the stream rejects permanently; the default stop waits for you',
    ),
    "subject_transform": (),
    "advisories": ("to: west # another connection to publish to",),
}


def configuration_text(
    connection: Mapping[str, Any], rules: Sequence[ProposedRule], *, about: Sequence[str], file: str
) -> str:
    """The text of a configuration file.

    Args:
        connection: the one connection, as a configuration holds it.
        rules: at least one.
        about: what it was written from, a line each.
        file: what the file will be called, for the commands in its comments.
    """
    return "\n".join((*_head(about, file), *_sections(connection), *_rules(rules))) + "\n"


def _head(about: Sequence[str], file: str) -> Iterator[str]:
    for line in about:
        yield from _comment(line)
    yield "#"
    yield f"#   nats-bridge check -c {file} --server config   # may it run, on these servers?"
    yield f"#   nats-bridge run -c {file}"
    yield ""


def _sections(connection: Mapping[str, Any]) -> Iterator[str]:
    yield "connections:"
    yield "  default: # what rules use that do not say from: or to: another one"
    for key, value in connection.items():
        yield f"    {key}: {_flow(value)}"
    if "context" not in connection:
        if "creds" not in connection:
            yield "    # creds: bridge.creds # or nkey_seed_file, token_file, user and password_file: never secrets"
        yield "    # tls: {ca: ca.pem} # and cert, key; or context: NAME of the nats command line, instead of all this"
    yield ""
    yield 'http: {listen: "127.0.0.1:8322"} # health, metrics and a status page, for this machine only; "" turns it off'
    yield 'dialect: "2.15" # the server version whose behaviour is reproduced; native: that of the connected server'
    yield "# leadership: {} # for several replicas: one of them works on each rule, by a lease in a key-value bucket"
    yield ""


def _rules(rules: Sequence[ProposedRule]) -> Iterator[str]:
    yield "rules:"
    for number, rule in enumerate(rules):
        if number:
            yield ""
        for line in rule.why:
            yield from ("  " + each for each in _comment(line, _WIDTH - 2))
        begin = "  - "
        for key, value in rule.data.items():
            yield from _member(key, value, rule, begin)
            begin = "    "
        for line in _ELSE[rule.kind]:
            yield f"    # {line}"


def _member(key: str, value: Any, rule: ProposedRule, begin: str) -> Iterator[str]:
    where = f"{rule.kind}.{key}"
    remark = _REMARKS.get(f"{where} {value}") or _REMARKS.get(where) or (_REMARKS.get(key) if key == "name" else "")
    if isinstance(value, dict):
        yield f"{begin}{key}:{_remark(remark)}"
        for inner, each in value.items():
            yield f"      {inner}: {_flow(each)}{_remark(_REMARKS.get(f'{where}.{inner}'))}"
    elif isinstance(value, list):
        yield f"{begin}{key}:{_remark(remark)}"
        yield from (f"      - {_flow(entry)}" for entry in value)
    else:
        yield f"{begin}{key}: {_flow(value)}{_remark(remark)}"


def _flow(value: Any) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{key}: {_flow(each)}" for key, each in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(_flow, value)) + "]"
        case str() if _PLAIN.fullmatch(value) and value.lower() not in ("true", "false", "null"):
            return value
        case _:
            # What JSON writes, YAML reads, save for characters that it does not take as they are.
            return "".join(map(_escaped, json.dumps(value, ensure_ascii=False)))


def _escaped(character: str) -> str:
    return character if character.isprintable() else f"\\U{ord(character):08x}"


def _remark(text: str | None) -> str:
    return f" # {text}" if text else ""


def _comment(text: str, width: int = _WIDTH) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(printable(text), width, break_long_words=False)]
