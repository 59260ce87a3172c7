"""The sources of a copying rule: each in the server's form, and as written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from nats_bridge.kinds.copying.model import CopyingRule, KvSourcesRule, MirrorRule, SourcesRule
from nats_bridge.marked_yaml import Path
from nats_bridge.settings.checks.patterns import filter_problem
from nats_bridge.settings.checks.transforming import candidates
from nats_bridge.settings.problems import Problem
from nats_bridge.settings.rule_parts import Source, SubjectTransform


@dataclass(frozen=True, slots=True)
class WrittenSource:
    """A source as written.

    Attributes:
        at: the path in the configuration.
        shown: how others in the same rule name its place, such as `sources[0]`.
        source: the entry of `sources`, or `mirror`.
        name: its name as written: the stream's, or the bucket's.
        name_key: the key under which that stands.
        transforms: as written: of subjects, or of keys.
        transforms_key: the key under which they stand.
        exclude: as written.
    """

    at: Path
    shown: str
    source: Source
    name: str
    name_key: str
    transforms: tuple[SubjectTransform, ...]
    transforms_key: str
    exclude: tuple[str, ...]

    @property
    def holds_keys(self) -> bool:
        """Whether this is a bucket."""
        return self.name_key == "bucket"

    @property
    def selected(self) -> tuple[str, ...]:
        """The filters as written. A message must match one of them."""
        if self.transforms:
            return tuple(transform.src or ">" for transform in self.transforms)
        return (self.source.filter_subject or ">",)

    @property
    def identity(self) -> tuple[str, str]:
        """The identity in the first field of source records: the stream, and the API prefix of an external one."""
        return self.source.name, self.source.external.api if self.source.external else ""


def written_sources(rule: CopyingRule, at: Path) -> tuple[WrittenSource, ...]:
    """Return the sources of a rule that stands at `at`."""
    match rule:
        case SourcesRule():
            return tuple(
                _stream(source, (*at, "sources", number), f"sources[{number}]")
                for number, source in enumerate(rule.sources)
            )
        case MirrorRule():
            return (_stream(rule.mirror, (*at, "mirror"), "mirror"),)
        case KvSourcesRule():
            return tuple(
                WrittenSource(
                    at=(*at, "sources", number),
                    shown=f"sources[{number}]",
                    source=source.entry(rule.bucket),
                    name=source.bucket,
                    name_key="bucket",
                    transforms=source.key_transforms,
                    transforms_key="key_transforms",
                    exclude=source.exclude,
                )
                for number, source in enumerate(rule.sources)
            )
    raise AssertionError(rule.kind)


def _stream(source: Source, at: Path, shown: str) -> WrittenSource:
    return WrittenSource(
        at, shown, source, source.name, "name", source.subject_transforms, "subject_transforms", source.exclude
    )


def identity_problems(rule: CopyingRule, sources: Sequence[WrittenSource], version: str) -> Iterator[Problem]:
    """Yield the problems of the names, connections and prefixes of a rule's sources.

    Args:
        rule: well formed.
        sources: its sources.
    """
    # If the dialect is not known yet, the servers that can run everything decide.
    names_filters = any(candidate.source_record_names_filters for candidate in candidates(version))
    for number, source in enumerate(sources):
        if source.source.name == rule.target_stream and source.source.connection == rule.target_connection:
            thing = "bucket" if source.holds_keys else "stream"
            yield Problem(
                (*source.at, source.name_key),
                f"'{source.name}' is the {thing} that receives: detected cycle (10052); copy into another {thing}",
                err_code=10052,
            )
            continue
        twin = next((before for before in sources[:number] if before.identity == source.identity), None)
        if twin is None:
            continue
        if twin.source.connection != source.source.connection:
            yield Problem((*source.at, "external"), _ambiguous(source, twin))
        elif not names_filters:
            yield Problem(
                (*source.at, source.name_key),
                f"'{source.name}' is in {twin.shown} already, and servers before 2.10 keep one position for both;"
                f" make it one entry with several {source.transforms_key}, or use dialect 2.10 or newer",
            )


def _ambiguous(source: WrittenSource, twin: WrittenSource) -> str:
    own = f"$JS.{source.source.connection}.API"
    do = (
        f"give one of them an external: {{api: {own}}} of its own"
        if source.source.external is None
        else f"'{source.source.external.api}' is the external.api of both, let them differ"
    )
    return (
        f"'{source.name}' comes from {source.source.connection} here and from {twin.source.connection} in"
        f" {twin.shown}, and source records would not show which; {do}"
    )


_BUCKET_SUBJECT: Final = re.compile(r"\$KV\.[^.]*\.(.+)")
_LITERAL: Final = re.compile(r"[-/_=A-Za-z0-9]+")
"""Token of a key that clients accept (ADR-8)."""
_COMPUTED: Final = re.compile(r"\$[0-9]+|\{\{.+\}\}")


def key_problems(source: WrittenSource) -> Iterator[Problem]:
    """Yield the problems of a bucket's transforms and exclusions; none for a stream."""
    if not source.holds_keys:
        return
    for number, pattern in enumerate(source.exclude):
        if reason := _not_a_key(pattern):
            yield Problem((*source.at, "exclude", number), reason)
    for number, transform in enumerate(source.transforms):
        place = (*source.at, source.transforms_key, number)
        if reason := _not_a_key(transform.src) or (transform.src and filter_problem(transform.src, "key")):
            yield Problem((*place, "src"), reason)
        elif reason := _not_a_key(transform.dest) or _unusable(transform.dest):
            yield Problem((*place, "dest"), reason)


def _not_a_key(text: str) -> str | None:
    if not text.startswith("$KV."):
        return None
    subject = _BUCKET_SUBJECT.fullmatch(text)
    return (
        f"'{text}' is a subject, and keys are written without their bucket;"
        f" write '{subject[1] if subject else '>'}' (a key never leaves the bucket that receives)"
    )


def _unusable(destination: str) -> str | None:
    """Return the reason why no client could get a resulting key."""
    for token in destination.split(".") if destination else ():
        if not token:
            return f"'{destination}' is not a key: use tokens between dots, and no empty ones"
        # A wildcard in the wrong place gets the server's own words.
        if token not in ("*", ">") and not _COMPUTED.fullmatch(token) and not _LITERAL.fullmatch(token):
            return f"'{destination}' is not a key: '{token}' holds other characters than letters, digits and - / _ ="
    return None
