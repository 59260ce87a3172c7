"""The table of the server versions that this release was compared with.

Each version runs the whole conformance catalogue, natively and on the engine, and the random comparisons. On the live
ones, the tests run the sidecar as well. `make follow` finds versions that are newer than this table, and
docs/extending.md explains how to add one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

Version = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class ServerVersion:
    """A row of the table.

    Attributes:
        version: major, minor and patch.
        live: whether the tests run the sidecar on it. The newest one is always live.
    """

    version: Version
    live: bool = False

    def __str__(self) -> str:
        return ".".join(map(str, self.version))


TESTED = (
    ServerVersion((2, 9, 10), live=True),
    ServerVersion((2, 9, 25)),
    ServerVersion((2, 10, 27), live=True),
    ServerVersion((2, 11, 17)),
    ServerVersion((2, 12, 15)),
    ServerVersion((2, 14, 10)),
    ServerVersion((2, 15, 3), live=True),
)
"""The table, oldest first."""

TESTED_VERSIONS = tuple(map(str, TESTED))
"""Every version of the table as a string, such as `2.10.27`."""

LIVE_VERSIONS = tuple(str(row) for row in TESTED if row.live)
"""The versions on which the tests run the sidecar: the oldest, the middle and the newest."""

NEWEST_PATCHES: Mapping[tuple[int, int], int] = MappingProxyType({row.version[:2]: row.version[2] for row in TESTED})
"""The newest patch of each minor line in the table, by major and minor."""

_FULL = re.compile(r"v?(\d{1,6})\.(\d{1,6})\.(\d{1,6})(?:[-+].*)?", re.ASCII)


def stand_in(version: str) -> str | None:
    """Return the version of the table that an unlisted, newer server is treated like; None for versions in the table.

    A newer patch of a line of the table is treated like the newest one there. A server of another line, newer, older or
    in between, and one whose text is not a version, are treated like the newest of all.

    Args:
        version: as a server reports it. Previews and development builds count as their release.
    """
    parsed = _FULL.fullmatch(version)
    line = (int(parsed[1]), int(parsed[2])) if parsed else (0, 0)
    if parsed is None or line not in NEWEST_PATCHES:
        line = max(NEWEST_PATCHES)
    elif int(parsed[3]) <= NEWEST_PATCHES[line]:
        return None
    return f"{line[0]}.{line[1]}.{NEWEST_PATCHES[line]}"
