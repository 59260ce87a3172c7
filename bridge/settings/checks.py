"""What a configuration must satisfy beyond the shape of its parts: references, combinations, transforms."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from bridge.settings.connect_options import options_of
from bridge.settings.connections import Connection
from bridge.settings.models import NATIVE_DIALECT
from bridge.settings.problems import Problem, did_you_mean
from bridge.settings.rules import Delivery, RepublishRule, Rule
from bridge.settings.secrets import FieldError
from transforms.dialect import KNOWN_LINES, Dialect, dialect
from transforms.errors import TransformError, UnknownDialectError
from transforms.subject import is_valid_filter, is_valid_pattern
from transforms.transform import compile_transform

__all__ = ["connection_problems", "dialect_problem", "reference_problems", "rule_problems"]

_CREDENTIALS: Final = ("creds", "nkey_seed_file", "token_file", "user")
_FROM_CONTEXT: Final = ("servers", "creds", "nkey_seed_file", "token_file", "user", "password_file", "tls")
_WHITE_SPACE: Final = re.compile(r"[ \t\r\n\f]")


def dialect_problem(text: str) -> str | None:
    """Why `text` is no dialect, or None."""
    if text == NATIVE_DIALECT:
        return None
    try:
        dialect(text)
    except UnknownDialectError:
        lines = ", ".join(f"{major}.{minor}" for major, minor in KNOWN_LINES)
        return f"unknown dialect '{text}'; takes one of {lines}, a full version such as 2.10.27, or native"
    return None


def connection_problems(connections: Iterable[tuple[str, Connection]], environ: Mapping[str, str]) -> Iterator[Problem]:
    """What is wrong with single connections, the files they name included."""
    for name, connection in connections:
        found = list(_combination_problems(connection))
        if not found:
            try:
                options_of(connection, environ)
            except FieldError as error:
                found.append(((*error.field.split("."),), error.reason))
        for field, message in found:
            yield Problem(("connections", name, *field), message)


def _combination_problems(connection: Connection) -> Iterator[tuple[tuple[str, ...], str]]:
    given = [field for field in _FROM_CONTEXT if getattr(connection, field)]
    if connection.context:
        for field in given:
            yield (
                (field,),
                f"'{field}' cannot stand beside 'context', which says it already; remove one of them",
            )
        return
    if not connection.servers:
        yield (), 'needs servers, or a context; such as servers: ["nats://127.0.0.1:4222"]'
    credentials = [field for field in _CREDENTIALS if getattr(connection, field)]
    for field in credentials[1:]:
        yield (
            (field,),
            f"'{field}' cannot stand beside '{credentials[0]}'; a connection is one user, keep one of them",
        )
    if connection.user and not connection.password_file:
        yield ("user",), "needs 'password_file' beside it, the path of a file with the password"
    if connection.password_file and not connection.user:
        yield ("password_file",), "needs 'user' beside it"


def reference_problems(rules: Any, connections: Iterable[str]) -> Iterator[Problem]:
    """Names of rules that are there twice, and names of connections that are not there.

    Args:
        rules: as they stand in the configuration, so that a rule with another mistake is looked at, too.
        connections: the names there are.
    """
    names = list(connections)
    first_of: dict[str, int] = {}
    for position, rule in enumerate(rules if isinstance(rules, list | tuple) else ()):
        if not isinstance(rule, dict):
            continue
        name = rule.get("name")
        if isinstance(name, str) and first_of.setdefault(name, position) != position:
            message = f"'{name}' is the name of rules[{first_of[name]}] already; names must differ"
            yield Problem(("rules", position, "name"), message)
        for key in ("from", "to"):
            wanted = rule.get(key, "default")
            if names and isinstance(wanted, str) and wanted not in names:
                here = f"no connection '{wanted}'" if key in rule else f"'{key}' is left out and means 'default'"
                yield Problem(("rules", position, key), f"{here}; {_choice(wanted, names)}")


def _choice(wanted: str, names: list[str]) -> str:
    return did_you_mean(wanted, names).replace("known:", "there is:")


def rule_problems(rules: Iterable[tuple[int, Rule]], default_dialect: str) -> Iterator[Problem]:
    """What is wrong with rules that are well formed each.

    Args:
        rules: with their positions in the configuration.
        default_dialect: the dialect of rules that name none.
    """
    for position, rule in rules:
        at = ("rules", position)
        if isinstance(rule, RepublishRule) and rule.delivery is Delivery.AT_LEAST_ONCE and not rule.durable:
            yield Problem(
                (*at, "durable"),
                "at_least_once needs a position that outlives a crash; remove durable: false or use at_most_once",
            )
        if rule.dialect and (problem := dialect_problem(rule.dialect)):
            yield Problem((*at, "dialect"), problem)
        elif problem := dialect_problem(rule.dialect or default_dialect):
            continue  # told once, where the configuration's dialect stands
        elif isinstance(rule, RepublishRule):
            yield from _republish_problems(rule, (*at, "republish"), rule.dialect or default_dialect)


def _republish_problems(rule: RepublishRule, at: tuple[str | int, ...], version: str) -> Iterator[Problem]:
    source, destination = rule.republish.src or ">", rule.republish.dest
    if not is_valid_pattern(_bytes(source)):
        yield Problem((*at, "src"), f"'{source}' is not a subject: tokens between dots, '>' only as the last")
        return
    if not is_valid_filter(_bytes(source)):
        yield Problem((*at, "src"), f"'{source}' holds white space; no subject of a message can match it")
        return
    if not destination:
        yield Problem((*at, "dest"), "is empty; nothing would be republished; give the subject to republish to")
        return
    refusal = _refusal(source, destination, version)
    if refusal:
        yield Problem((*at, "dest"), refusal)
        return
    if any(_WHITE_SPACE.search(token) for token in destination.split(".") if not _is_function(token)):
        yield Problem((*at, "dest"), f"'{destination}' holds white space; no message can be published there")
    elif source == destination and "*" not in source and rule.source_connection == rule.target_connection:
        yield Problem(
            (*at, "dest"),
            f"'{destination}' is where the messages come from: an endless loop; use another subject",
        )


def _refusal(source: str, destination: str, version: str) -> str | None:
    """The server's reason against the transform and a remedy; with the native dialect only if all refuse."""
    told = None
    for candidate in _candidates(version):
        try:
            transform = compile_transform(_bytes(source), _bytes(destination), candidate)
        except TransformError as error:
            remedy = _remedy(error.code, source, destination)
            told = f"from '{source}' to '{destination}': {error.reason}{'; ' if remedy else ''}{remedy}"
        else:
            if "crash-partition-zero" not in transform.defects:
                return None
            told = f"partition of 0 ends servers of version {candidate.name}; use 1 or more"
    return told


def _remedy(code: str, source: str, destination: str) -> str:
    wildcards = source.split(".").count("*")
    if code == "index_out_of_range":
        return f"the source has {wildcards} wildcard{'' if wildcards == 1 else 's'} (*)"
    if code == "invalid_subject" and "*" in destination.split("."):
        return "no '*' can stand there, write $1 or {{wildcard(1)}}"
    if code == "invalid_subject" and (source.split(".")[-1] == ">") != (destination.split(".")[-1] == ">"):
        return "both must end in '>', or neither"
    if code == "unused_wildcards":
        return "servers from 2.10 on do not ask for that"
    try:
        compile_transform(_bytes(source), _bytes(destination))
    except TransformError:
        return ""
    return "newer servers take it"


def _candidates(version: str) -> list[Dialect]:
    if version == NATIVE_DIALECT:
        return [dialect(f"{major}.{minor}") for major, minor in KNOWN_LINES]
    return [dialect(version)]


def _is_function(token: str) -> bool:
    return token.startswith("{{") and token.endswith("}}") and len(token) > 4


def _bytes(subject: str) -> bytes:
    return subject.encode()
