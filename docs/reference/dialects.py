"""The page on dialects: which behaviour holds since which version, from the engine's one table."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

from docs.reference.markdown import items
from nats_transforms.dialect import FEATURES, Feature
from nats_transforms.tested_versions import NEWEST_PATCHES

_HEAD: Final = """\
# Dialects

A dialect is the behaviour of one server version. Choose it with `dialect` in the [configuration](configuration.md) or
`--dialect V` of a command. `native` is the version of the connected server. The newest known patches are"""
_BODY: Final = """\
For a newer patch, nats-bridge reproduces the newest known patch of its line.

Bold versions are the first with a behaviour, one for each minor line. Later lines have the behaviour as well.
[Versions](../versions.md) explains the main changes. For stream configurations, run
`nats-bridge check FILE --dialect V`.
"""
_LEFT_OUT: Final = frozenset(
    {"errors of mapping destinations", "messages that are stored", "consumers", "stream configuration"}
)
_OLDEST: Final = "{}.{}.0".format(*min(NEWEST_PATCHES))
_GROUP: Final = re.compile(r"^\s*# --- (.+)$")
_KEY: Final = re.compile(r"^\s*(\w+): bool = _since\(")


def page() -> str:
    """The page's text."""
    *patches, last = (f"{major}.{minor}.{patch}" for (major, minor), patch in NEWEST_PATCHES.items())
    parts = [f"{_HEAD}\n{', '.join(patches)} and {last}. {_BODY}"]
    for group, features in _groups().items():
        if group in _LEFT_OUT:
            continue
        parts.append(f"## {group[0].upper()}{group[1:]}\n")
        parts.append(items((f"**{_versions(FEATURES[name])}**", meaning) for name, meaning in features.items()))
    return "\n".join(parts)


def _groups() -> dict[str, dict[str, str]]:
    """The flags by their group in the record, each with the remark above it."""
    source = Path(sys.modules[Feature.__module__].__file__ or "").read_text("utf-8").partition("class Dialect:")[2]
    groups: dict[str, dict[str, str]] = {}
    remark: list[str] = []
    for line in source.splitlines():
        if begun := _GROUP.match(line):
            groups[begun[1]] = {}
        elif line.lstrip().startswith("# "):
            remark.append(line.strip("# "))
        elif key := _KEY.match(line):
            if not remark:
                raise ValueError(f"transforms/nats_transforms/dialect.py says nothing of {key[1]}")
            groups[list(groups)[-1]][key[1]] = " ".join(remark)
            remark = []
    untold = set(FEATURES) - {name for features in groups.values() for name in features}
    if untold:
        raise ValueError(f"not found in transforms/nats_transforms/dialect.py: {', '.join(sorted(untold))}")
    return groups


def _versions(feature: Feature) -> str:
    first, last = (
        ", ".join(".".join(map(str, version)) for version in versions) for versions in (feature.since, feature.until)
    )
    if not last:
        return first
    return f"before {last}" if first == _OLDEST else f"{first}, before {last}"
