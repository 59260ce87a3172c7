"""The page on dialects: which behaviour holds since which version, from the engine's one table."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

from docs.reference.markdown import code, table
from nats_transforms.dialect import FEATURES, Feature
from nats_transforms.tested_versions import NEWEST_PATCHES

_HEAD: Final = """\
# Dialects

This page is generated: `python -m docs.reference --write`.

A dialect is the behaviour of one server version. `dialect: "2.15"` in the [configuration](configuration.md), at the top
or in a rule, or `--dialect V` of a command, chooses it; `native` is that of the server that is connected. The engine
knows these lines, each up to the patch that was examined; a newer patch of a line behaves as that one does:
"""
_BODY: Final = """\
Each behaviour below is a flag of `nats_transforms.dialect.Dialect`. `since` names the first version of every
minor line that has it. Later lines have it as well, unless `until` names a version without it. The changes that matter
to most users are in [versions](../versions.md). It leaves out flags on stored messages, consumers and
the validity of stream configurations: ask `nats-bridge check FILE --dialect V`.
"""
_LEFT_OUT: Final = frozenset({"messages that are stored", "consumers", "stream configuration"})
_GROUP: Final = re.compile(r"^\s*# --- (.+)$")
_KEY: Final = re.compile(r"^\s*(\w+): bool = _since\(")


def page() -> str:
    """The page's text."""
    lines = ", ".join(f"{major}.{minor} ({major}.{minor}.{patch})" for (major, minor), patch in NEWEST_PATCHES.items())
    parts = [_HEAD, lines + ".\n", _BODY]
    for group, features in _groups().items():
        if group in _LEFT_OUT:
            continue
        parts.append(f"## {group[0].upper()}{group[1:]}\n")
        rows = ((code(name), meaning, _versions(FEATURES[name])) for name, meaning in features.items())
        parts.append(table(("flag", "what it is", "since"), rows))
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
    return f"{first}, until {last}" if last else first
