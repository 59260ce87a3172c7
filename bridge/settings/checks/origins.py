"""The origins of a copying rule: each as the server takes it, and as people wrote it."""

from __future__ import annotations

from dataclasses import dataclass

from nats_bridge.bridge.settings.rules import KvSourcesRule, MirrorRule, Source, SourcesRule, SubjectTransform
from nats_bridge.marked_yaml import Path

__all__ = ["CopyingRules", "Origin", "origins_of"]

CopyingRules = SourcesRule | MirrorRule | KvSourcesRule
"""The kinds of rules that store copies in a stream."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Something that is copied from.

    Attributes:
        at: where it stands in the configuration.
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
        """The filters as written, of which a message must fit one."""
        if self.transforms:
            return tuple(transform.src or ">" for transform in self.transforms)
        return (self.source.filter_subject or ">",)

    @property
    def identity(self) -> tuple[str, str]:
        """What the first field of source records tells: the stream, and the API prefix of an external one."""
        return self.source.name, self.source.external.api if self.source.external else ""


def origins_of(rule: CopyingRules, at: Path) -> tuple[Origin, ...]:
    """The origins of a rule that stands at `at`."""
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
                Origin(
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


def _stream(source: Source, at: Path, shown: str) -> Origin:
    return Origin(
        at, shown, source, source.name, "name", source.subject_transforms, "subject_transforms", source.exclude
    )
