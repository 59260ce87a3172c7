"""Transforms: the dialects that decide about one, and a server's reason against it, with a remedy."""

import re
from collections.abc import Callable, Iterable
from typing import Final

from nats_bridge.settings.checks.patterns import has_white_space, in_bytes
from nats_bridge.settings.models import NATIVE_DIALECT
from nats_bridge.settings.problems import did_you_mean
from nats_transforms.destination import Kind
from nats_transforms.dialect import Dialect, dialect
from nats_transforms.errors import TransformError, UnknownDialectError
from nats_transforms.reserved import always_reserved
from nats_transforms.tested_versions import NEWEST_PATCHES
from nats_transforms.transform import Transform, compile_mapping, compile_transform

_FIRST_WITH_TRANSFORMS: Final = dialect("2.10.0")


def dialect_problem(text: str) -> str | None:
    """Return the reason why `text` is not a dialect, or None."""
    if text == NATIVE_DIALECT:
        return None
    try:
        dialect(text)
    except UnknownDialectError:
        lines = ", ".join(f"{major}.{minor}" for major, minor in NEWEST_PATCHES)
        return f"unknown dialect '{text}'; allowed: {lines}, a full version such as 2.10.27, or native"
    return None


def candidates(version: str) -> tuple[Dialect, ...]:
    """Return the dialects that a rule may run with, oldest first: one, or with `native` all that are known."""
    if version == NATIVE_DIALECT:
        return tuple(dialect(f"{major}.{minor}") for major, minor in NEWEST_PATCHES)
    return (dialect(version),)


def with_transforms(version: Dialect) -> Dialect:
    """Return the dialect itself, or the oldest one whose servers have subject transforms in streams.

    The sidecar adds these transforms to older servers, which cannot validate them.
    """
    return version if version.stream_fields_of_2_10 else _FIRST_WITH_TRANSFORMS


_FUNCTION = re.compile(r"\{\{\s*(\w+)\s*(\(?)")
_FUNCTIONS = tuple(kind.value for kind in Kind if kind not in (Kind.LITERAL, Kind.REST))


def refusal(source: str, destination: str, versions: Iterable[Dialect]) -> str | None:
    """Return the server's error for a republish transform with a remedy; for several versions only if all refuse."""
    reported = None
    for version in versions:
        try:
            transform = compile_transform(in_bytes(source), in_bytes(destination), version)
        except TransformError as error:
            reported = f"{between(source, destination, error.reason)}{remedy(error.code, source, destination)}"
        else:
            reported = crash(transform, version)
            if reported is None:
                return None
    return reported


def destination_problem(source: str, destination: str, version: str) -> str | None:
    """Return the reason why a valid source cannot be republished to a destination, or None."""
    if not destination:
        return "must not be empty, because nothing would be republished; set the subject to republish to"
    if reason := refusal(source, destination, candidates(version)):
        return reason
    if has_white_space(destination):
        return f"'{destination}' contains white space; no message can be published there"
    return None


def is_always_a_command(source: str, destination: str, versions: Iterable[Dialect]) -> bool:
    """Return whether every message would become a command to the server, such as a request to its API."""
    for version in versions:
        try:
            transform = compile_transform(in_bytes(source), in_bytes(destination), version)
        except TransformError:
            continue
        if always_reserved(transform):
            return True
    return False


def between(source: str, destination: str, reason: str) -> str:
    """Return a reason with the two texts that it is about, unless it names them itself."""
    return reason if "from '" in reason else f"from '{source}' to '{destination}': {reason}"


def crash(transform: Transform, version: Dialect) -> str | None:
    """Return how the transform crashes a server of its dialect, with a remedy; None if it does not."""
    if "crash-partition-zero" in transform.defects:
        return f"partition of 0 crashes servers of version {version.name}; use 1 or more"
    return None


def remedy(
    code: str, source: str, destination: str, build: Callable[[bytes, bytes], Transform] = compile_transform
) -> str:
    """Return the remedy for a refused transform, after a semicolon; empty if the reason is enough.

    Args:
        code: the code of the `TransformError`.
        source: as people wrote it.
        build: makes the transform as the newest server does.
    """
    reported = _remedy(code, source, destination, build)
    return f"; {reported}" if reported else ""


def mapping_code(source: str, destination: str, version: Dialect) -> str:
    """Return the engine's code for a refused mapping; empty if the server accepts it."""
    try:
        compile_mapping(in_bytes(source), in_bytes(destination), version)
    except TransformError as error:
        return error.code
    return ""


def _remedy(code: str, source: str, destination: str, build: Callable[[bytes, bytes], Transform]) -> str:
    wildcards = source.split(".").count("*")
    if code == "index_out_of_range":
        return f"the source has {wildcards} wildcard{'' if wildcards == 1 else 's'} (*)"
    if code == "invalid_subject" and "*" in destination.split("."):
        return "'*' is not allowed there; use $1 or {{wildcard(1)}}"
    if code == "invalid_subject" and (source.split(".")[-1] == ">") != (destination.split(".")[-1] == ">"):
        return "both must end in '>', or neither"
    if code == "invalid_transform":
        return "use tokens between dots, '>' only as the last one, and no white space"
    if code == "unused_wildcards":
        return "servers of 2.10 and newer do not require that"
    try:
        build(in_bytes(source), in_bytes(destination))
    except TransformError:
        return _other_function(destination) if code == "unknown_function" else ""
    return "newer servers support it"


def _other_function(destination: str) -> str:
    """Return a suggestion for the first unknown function."""
    for name, opening in _FUNCTION.findall(destination):
        if name not in _FUNCTIONS:
            return did_you_mean(name, _FUNCTIONS)
        if not opening:
            return f"its arguments are missing: {{{{{name}(…)}}}}"
    return ""
