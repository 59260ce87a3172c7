"""Finds the problems of a rule of kind subject_transform without a server."""

from collections.abc import Iterator, Mapping

from nats_bridge.kinds.ingress.model import SubjectTransformRule
from nats_bridge.marked_yaml import Path
from nats_bridge.settings import Connection
from nats_bridge.settings.checks.patterns import (
    RESERVED,
    filter_problem,
    has_white_space,
    in_bytes,
    reserved_problem,
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
        if problem := _source_problem(at, source, destination, version, (*RESERVED, f"{inbox_prefix}.>")):
            yield problem
            return
        if not destination:
            yield Problem((*at, "dest"), "is empty; give the subject that is stored")
            return
        built = _built(at, source, destination, version)
        if isinstance(built, Problem):
            yield built
        elif has_white_space(destination):
            yield Problem((*at, "dest"), f"'{destination}' contains white space; no message can be published there")
        elif reason := reserved_problem(destination):
            yield Problem((*at, "dest"), reason)
        elif (made := subjects_of(source).through(built)) and made.meet(subjects_of(source)):
            yield Problem(
                (*at, "dest"),
                f"'{destination}' may give subjects that '{source}' captures again: an endless loop; begin dest with a"
                " token that src does not have",
            )


def _source_problem(at: Path, source: str, destination: str, version: str, reserved: tuple[str, ...]) -> Problem | None:
    if reason := filter_problem(source) if source else None:
        # Up to 2.10 white space is accepted, and the other errors are about the whole transform.
        error = _refusal(source, destination, [with_transforms(each) for each in candidates(version)][-1])
        if error is None:
            return Problem((*at, "src"), reason)
        reason = f"{reason}; servers say: {error.description} ({error.err_code})"
        return Problem((*at, "src"), reason, err_code=error.err_code)
    space = next((space for space in reserved if subjects_of(source or ">").meet(subjects_of(space))), None)
    if space is None:
        return None
    shown = f"'{source}'" if source else "is left out, means '>', and"
    first = source.split(".")[0]
    do = "select other subjects" if first not in ("", "*", ">") else "begin it with a word, such as 'events.>'"
    return Problem((*at, "src"), f"{shown} would capture '{space}', which belongs to servers and replies; {do}")


def _built(at: Path, source: str, destination: str, version: str) -> Transform | Problem:
    # With the native dialect, servers refuse it only if all versions do.
    dialects = dict.fromkeys(map(with_transforms, candidates(version)))
    built = [_built_as((*at, "dest"), source, destination, each) for each in dialects]
    return next((each for each in built if isinstance(each, Transform)), built[-1])


def _built_as(at: Path, source: str, destination: str, dialect: Dialect) -> Transform | Problem:
    error = _refusal(source, destination, dialect)
    if error is not None:
        reason = f"{between(source, destination, error.description)} ({error.err_code})"
        code = mapping_code(source, destination, dialect)
        reason = f"{reason}{remedy(code, source, destination, compile_mapping)}"
        return Problem(at, reason, err_code=error.err_code)
    transform = compile_transform(in_bytes(source), in_bytes(destination), dialect)
    crashes = crash(transform, dialect)
    return transform if crashes is None else Problem(at, crashes)


def _refusal(source: str, destination: str, dialect: Dialect) -> StreamConfigError | None:
    """Return the server's refusal of a stream with this transform, if it refuses it."""
    config = {"name": "S", "subjects": ["s"], "subject_transform": {"src": source, "dest": destination}}
    try:
        validate(config, dialect)
    except StreamConfigError as error:
        return error
    return None


CHECKS = IngressChecks()
