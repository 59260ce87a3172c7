"""Asks the engine for a server's decision about a rule's sources, as native `sources` or `mirror`.

Theory of operation. The server's answer does not show which part it refuses. So the sources are tried one by one, and
then the first of them, the first two, and so on; the one that makes the server refuse is at fault. The transforms
within a source are found in the same way, and the number of the answer shows the field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, Final

from nats_bridge.kinds.copying.checks.written_sources import WrittenSource
from nats_bridge.kinds.copying.model import CopyingRule, MirrorRule
from nats_bridge.marked_yaml import Path
from nats_bridge.settings.checks.patterns import in_bytes, subjects_of
from nats_bridge.settings.checks.transforming import (
    between,
    candidates,
    crash,
    mapping_code,
    remedy,
    with_transforms,
)
from nats_bridge.settings.problems import Problem
from nats_bridge.settings.rule_parts import SubjectTransform
from nats_transforms.dialect import Dialect
from nats_transforms.errors import StreamConfigError, TransformError
from nats_transforms.stream_config import validate
from nats_transforms.subject import is_valid_filter
from nats_transforms.transform import compile_mapping, compile_transform

_SUBJECT: Final = "use tokens between dots, '>' only as the last one, and no white space"
_OVERLAPS: Final = frozenset({10147, 10152})


def decision_problems(rule: CopyingRule, sources: Sequence[WrittenSource], version: str) -> Iterator[Problem]:
    """Yield the reasons why no server of the dialect would accept these sources.

    Args:
        rule: well formed.
        sources: the rule's sources, without any that has the name of the rule's stream.
        version: the rule's dialect.
    """
    deciders = [_Decider(candidate, mirrors=isinstance(rule, MirrorRule)) for candidate in candidates(version)]
    single = [problem for written in sources if (problem := _of_all(deciders, (written,))) is not None]
    if single:
        yield from single
    elif (problem := _of_all(deciders, sources)) is not None:
        yield problem


def _of_all(deciders: Sequence[_Decider], sources: Sequence[WrittenSource]) -> Problem | None:
    """Return the newest server's refusal, if every server refuses."""
    problem = None
    for decider in deciders:
        problem = decider.problem(sources)
        if problem is None:
            return None
    return problem


class _Decider:
    """A server of one version.

    Args:
        dialect: the version; if it does not support transforms in streams, the oldest version that does.
        mirrors: whether the entry is a mirror.
    """

    def __init__(self, dialect: Dialect, *, mirrors: bool) -> None:
        self._own = dialect
        self._dialect = with_transforms(dialect)
        self._mirrors = mirrors

    def problem(self, sources: Sequence[WrittenSource]) -> Problem | None:
        """Return the reason why it refuses a stream with these sources, or None."""
        entries = [written.source.native() for written in sources]
        for number, written in enumerate(sources):
            error = self._refusal(entries[: number + 1])
            if error is not None:
                reported = self._reported(error, written, entries[number], sources[:number])
                return replace(reported, err_code=error.err_code)
            for position, transform in enumerate(written.source.subject_transforms):
                reason = self._unusable(transform, _written(written, position))
                if reason is not None:
                    return Problem((*written.at, written.transforms_key, position, "dest"), reason)
        return None

    def _refusal(self, entries: Sequence[Mapping[str, Any]]) -> StreamConfigError | None:
        # A name that differs from the sources' names. One of them may be named like the rule's stream on another
        # connection.
        name = next(name for name in map(str, count()) if all(name != entry["name"] for entry in entries))
        sources = {"mirror": entries[0]} if self._mirrors else {"sources": list(entries)}
        try:
            validate({"name": name, **sources}, self._dialect)
        except StreamConfigError as error:
            return error
        return None

    def _unusable(self, transform: SubjectTransform, written: tuple[str, str]) -> str | None:
        """Return the problems of a transform that a server accepts, or that a server without transforms gets."""
        try:
            compiled = compile_transform(in_bytes(transform.src), in_bytes(transform.dest), self._own)
        except TransformError as error:
            if transform.src and transform.dest:
                reason = error.reason.replace(transform.dest, written[1])
                return f"{between(*written, reason)}{remedy(error.code, *written)}"
            return "a dialect before 2.10 needs both src and dest; write the same into both for subjects that stay"
        return crash(compiled, self._own)

    def _reported(
        self,
        error: StreamConfigError,
        written: WrittenSource,
        entry: Mapping[str, Any],
        before: Sequence[WrittenSource],
    ) -> Problem:
        """Return the refusal at the field that it is about, with what to do."""
        answer = f"{error.description} ({error.err_code})"
        whole = _about_the_entry(error, answer, written, before)
        if whole is not None:
            return whole
        position = self._culprit(entry)
        if position is None:
            return Problem(written.at, answer)
        place: Path = (*written.at, written.transforms_key, position)
        source, destination = _written(written, position)
        noun = "key" if written.holds_keys else "subject"
        if error.err_code in _OVERLAPS:
            before_it = [_written(written, other)[0] for other in range(position)]
            others = [other for other in before_it if subjects_of(other).meet(subjects_of(source))] or before_it
            shown = ", ".join(f"'{other}'" for other in others)
            return Problem(
                (*place, "src"), f"'{source}' next to {shown}: {answer}; let no {noun} fit two of them, or keep one"
            )
        native: Mapping[str, str] = entry["subject_transforms"][position]
        if not is_valid_filter(in_bytes(native["src"] or ">")):
            return Problem((*place, "src"), f"'{source}': {answer}; {_SUBJECT}")
        reason = f"{between(source, destination, error.description)} ({error.err_code})"
        code = mapping_code(native["src"], native["dest"], self._dialect)
        return Problem((*place, "dest"), f"{reason}{remedy(code, source, destination, compile_mapping)}")

    def _culprit(self, entry: Mapping[str, Any]) -> int | None:
        """Return the first transform that makes the server refuse the entry; None if no transform does."""
        transforms = entry.get("subject_transforms", [])
        for position in range(len(transforms)):
            if self._refusal([{"name": entry["name"], "subject_transforms": transforms[: position + 1]}]) is not None:
                return position
        return None


def _about_the_entry(
    error: StreamConfigError, answer: str, written: WrittenSource, before: Sequence[WrittenSource]
) -> Problem | None:
    """Return the problem for a refusal that is not about the entry's transforms."""
    wanted = written.source.filter_subject
    match error.err_code:
        case 10144 | 10150:
            return Problem(
                (*written.at, "filter_subject"),
                f"'{wanted}' next to subject_transforms: {answer}; make it the src of a transform",
            )
        case 10140:
            twin = next(other.shown for other in before if other.identity == written.identity)
            return Problem(
                written.at,
                f"the same {written.name_key} and filters as in {twin}: {answer}; keep one, or let filters or"
                " destinations differ",
            )
        case 10021:
            return Problem(
                (*written.at, "external", "api"),
                f"{answer}; write the prefix under which the other account's API is imported, or leave external out",
            )
        case 10024:
            return Problem((*written.at, "external", "deliver"), f"{answer}; write a subject such as 'deliver.west'")
        case 10052 if written.source.external is not None:
            return Problem((*written.at, "external", "api"), f"{answer}; write it like $JS.west.API")
        case 10049 if wanted and not written.source.subject_transforms:
            return Problem((*written.at, "filter_subject"), f"'{wanted}': {answer}; {_SUBJECT}")
        case _:
            return None


def _written(written: WrittenSource, position: int) -> tuple[str, str]:
    """Return the source and destination of a transform as written, with the meaning of empty ones."""
    if not written.transforms:
        return ">", ">"
    transform = written.transforms[position]
    return transform.src or ">", transform.dest or transform.src or ">"
