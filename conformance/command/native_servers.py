"""Finds the native servers that a run needs, or the reason why one is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nats_bridge.native_servers import ServersError, fetch
from nats_bridge.native_servers.binary import version_of
from nats_bridge.transforms.dialect import dialect
from nats_bridge.transforms.errors import UnknownDialectError

__all__ = ["Servers", "found_servers"]


@dataclass(frozen=True, slots=True)
class Servers:
    """The available native servers, by full version, and the missing ones with the reason."""

    binaries: dict[str, Path]
    missing: dict[str, str]


def found_servers(versions: Sequence[str], report: Callable[[str], None]) -> Servers:
    """The servers of these versions, fetched where they are not at hand; a minor line means its newest patch.

    What has a slash is the path of a binary. One that says the version of another one takes its place.
    """
    binaries: dict[str, Path] = {}
    missing: dict[str, str] = {}
    for version in versions:
        try:
            binary = Path(version).resolve() if "/" in version else fetch(version, report=report)
            found = version_of(binary)
            dialect(found)
            binaries[found] = binary
        except (ServersError, UnknownDialectError) as error:
            missing[version] = str(error)
    return Servers(binaries, missing)
