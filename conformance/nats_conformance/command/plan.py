"""The plan of a run: its servers, cases and subjects of test, from the command line."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nats_conformance.catalogue.case import Case, Level
from nats_conformance.catalogue.reading import CATALOGUE, read_catalogue
from nats_conformance.catalogue.selection import select
from nats_conformance.errors import CatalogueError, ConformanceError
from nats_conformance.identity import KINDS
from nats_conformance.implementations.bridge import BridgeSubject
from nats_conformance.implementations.engine import EngineSubject
from nats_conformance.implementations.library import LibrarySubject
from nats_conformance.implementations.native import NativeSubject, RunningServer
from nats_conformance.native_servers import ServersError, fetch
from nats_conformance.native_servers.binary import version_of
from nats_conformance.native_servers.versions import numbers
from nats_conformance.raw_client import Credentials
from nats_conformance.subject import Subject
from nats_transforms.dialect import dialect
from nats_transforms.errors import UnknownDialectError
from nats_transforms.tested_versions import TESTED


@dataclass(frozen=True, slots=True)
class Servers:
    """The available native servers, by full version, and the missing ones with the reason."""

    binaries: dict[str, Path]
    missing: dict[str, str]


@dataclass(frozen=True, slots=True)
class RunPlan:
    """One run.

    Attributes:
        versions: full versions or minor lines; empty with `server`.
        server: the address of a running server, which is tested without harming it.
        kinds: of `KINDS`.
        libraries: commands that speak the library protocol.
        bridge_dialect: the dialect that the bridge must follow; `native` for that of its server.
        patterns: ids of cases; empty for every case.
        skipped: ids of cases that are left out.
        cases: a folder with more case files to run.
    """

    versions: tuple[str, ...]
    server: str = ""
    credentials: Credentials = field(default_factory=Credentials)
    kinds: tuple[str, ...] = KINDS
    libraries: tuple[str, ...] = ()
    bridge_dialect: str = "native"
    patterns: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    level: Level = Level.OBSERVED
    cases: Path | None = None


def chosen_cases(plan: RunPlan) -> tuple[Case, ...]:
    """Return the cases of a plan.

    Raises:
        CatalogueError: a case file is malformed, or nothing is selected.
    """
    cases = read_catalogue(CATALOGUE)
    if plan.cases is not None:
        own = read_catalogue(plan.cases)
        taken = {case.id for case in cases} & {case.id for case in own}
        if taken:
            raise CatalogueError(f"{plan.cases}: id '{min(taken)}' is one of the suite's own; ids are never used twice")
        cases = (*cases, *own)
    found = select(cases, plan.patterns, plan.level, plan.skipped)
    if not found:
        raise CatalogueError(f"no case has one of these ids at level '{plan.level}' or above")
    return found


def found_servers(versions: Sequence[str], report: Callable[[str], None]) -> Servers:
    """Return the servers of these versions, fetched if necessary. A minor line means its newest patch.

    A version with a slash is the path of a binary. A binary that reports the version of an earlier one replaces it.
    """
    binaries: dict[str, Path] = {}
    missing: dict[str, str] = {}
    for version in versions:
        try:
            binary = Path(version).resolve() if "/" in version else fetch(version, report=report)
            found = version_of(binary)
            if numbers(found) < TESTED[-1].version:
                dialect(found)  # refuses older lines, which no case is about; newer ones have no dialect yet
            binaries[found] = binary
        except (ServersError, UnknownDialectError) as error:
            missing[version] = str(error)
    return Servers(binaries, missing)


def subjects_of(plan: RunPlan, servers: Servers, directory: Path) -> list[Subject]:
    """Return the test subjects, not yet opened: natives first, then engines, bridges and libraries.

    Raises:
        ConformanceError: there would be none.
    """
    if plan.server:
        return [RunningServer(plan.server, plan.credentials)]
    found: list[Subject] = []
    if "native" in plan.kinds:
        found += [NativeSubject(version, binary, directory) for version, binary in servers.binaries.items()]
    if "engine" in plan.kinds:
        found += [EngineSubject(version) for version in servers.binaries]
    if "bridge" in plan.kinds:
        found += [
            BridgeSubject(version, binary, directory, dialect=plan.bridge_dialect)
            for version, binary in servers.binaries.items()
        ]
    for command in plan.libraries:
        found += [LibrarySubject(shlex.split(command), version) for version in servers.binaries]
    if not found and not servers.missing:
        raise ConformanceError("nothing to test: --versions V,… or --server URL")
    return found
