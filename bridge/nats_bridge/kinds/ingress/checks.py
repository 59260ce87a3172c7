"""Finds the problems of a rule of kind subject_transform without a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nats_bridge.kinds.ingress.model import SubjectTransformRule
from nats_bridge.marked_yaml import Path
from nats_bridge.settings import Connection
from nats_bridge.settings.checks.patterns import (
    RESERVED,
    filter_problem,
    has_white_space,
    in_bytes,
    reserved_prefix,
    subjects_of,
)
from nats_bridge.settings.checks.rule_checks import RuleChecks
from nats_bridge.settings.checks.transforming import (
    between,
    candidates,
    crash,
    mapping_code,
    remedy,
    with_transforms,
)
from nats_bridge.settings.problems import Problem
from nats_transforms.dialect import Dialect
from nats_transforms.errors import StreamConfigError
from nats_transforms.stream_config import validate
from nats_transforms.transform import Transform, compile_mapping, compile_transform


class IngressChecks(RuleChecks[SubjectTransformRule]):
    """The checks of rules of kind subject_transform."""

    def problems(
        self, rule: SubjectTransformRule, at: Path, version: str, connections: Mapping[str, Connection]
    ) -> Iterator[Problem]:
        """Yield the problems of a rule."""
        inbox_prefix = connections.get(rule.source_connection, Connection()).inbox_prefix
        source, destination = rule.subject_transform.src, rule.subject_transform.dest
        at = (*at, "subject_transform")
        if reason := _source_problem(source, destination, version, (*RESERVED, f"{inbox_prefix}.>")):
            yield Problem((*at, "src"), reason)
            return
        built = _built(source, destination, version) if destination else "is empty; give the subject that is stored"
        if isinstance(built, str):
            yield Problem((*at, "dest"), built)
        elif has_white_space(destination):
            yield Problem((*at, "dest"), f"'{destination}' holds white space; no message can be published there")
        elif space := reserved_prefix(destination):
            yield Problem(
                (*at, "dest"),
                f"'{destination}' lies under '{space}', which belongs to servers and replies; use another subject",
            )
        elif (made := subjects_of(source).through(built)) and made.meet(subjects_of(source)):
            yield Problem(
                (*at, "dest"),
                f"'{destination}' may give subjects that '{source}' captures again: an endless loop; begin dest with a"
                " token that src does not have",
            )


def _source_problem(source: str, destination: str, version: str, reserved: tuple[str, ...]) -> str | None:
    if reason := filter_problem(source) if source else None:
        # Up to 2.10 white space is accepted, and the other errors are about the whole transform.
        error = _refusal(source, destination, [with_transforms(each) for each in candidates(version)][-1])
        return reason if error is None else f"{reason}; servers say: {error.description} ({error.err_code})"
    space = next((space for space in reserved if subjects_of(source or ">").meet(subjects_of(space))), None)
    if space is None:
        return None
    shown = f"'{source}'" if source else "is left out, means '>', and"
    first = source.split(".")[0]
    do = "select other subjects" if first not in ("", "*", ">") else "begin it with a word, such as 'events.>'"
    return f"{shown} would capture '{space}', which belongs to servers and replies; {do}"


def _built(source: str, destination: str, version: str) -> Transform | str:
    """Return the transform, or the reason why servers refuse it; with the native dialect only if all do."""
    reported = ""
    for candidate in dict.fromkeys(map(with_transforms, candidates(version))):
        built = _built_as(source, destination, candidate)
        if isinstance(built, Transform):
            return built
        reported = built
    return reported


def _built_as(source: str, destination: str, dialect: Dialect) -> Transform | str:
    error = _refusal(source, destination, dialect)
    if error is not None:
        reason = f"{between(source, destination, error.description)} ({error.err_code})"
        code = mapping_code(source, destination, dialect)
        return f"{reason}{remedy(code, source, destination, compile_mapping)}"
    transform = compile_transform(in_bytes(source), in_bytes(destination), dialect)
    return crash(transform, dialect) or transform


def _refusal(source: str, destination: str, dialect: Dialect) -> StreamConfigError | None:
    """Return the server's refusal of a stream with this transform, if it refuses it."""
    config = {"name": "S", "subjects": ["s"], "subject_transform": {"src": source, "dest": destination}}
    try:
        validate(config, dialect)
    except StreamConfigError as error:
        return error
    return None


CHECKS = IngressChecks()
