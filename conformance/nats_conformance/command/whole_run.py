"""A run from beginning to end: servers, cases, history, verdicts, reports."""

import contextlib
import re
import shlex
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from nats_conformance.catalogue.case import Case
from nats_conformance.catalogue.exporting import about
from nats_conformance.catalogue.reading import checksum
from nats_conformance.command.plan import RunPlan, Servers, subjects_of
from nats_conformance.command.progress import RunProgress
from nats_conformance.errors import SubjectError
from nats_conformance.history import HistoryWriter
from nats_conformance.implementations.native import RunningServer
from nats_conformance.raw_client import shown_address
from nats_conformance.running import play_all
from nats_conformance.subject import Subject


async def record(plan: RunPlan, cases: Sequence[Case], servers: Servers, file: Path, progress: RunProgress) -> None:
    """Run the plan's cases and write the history. Servers are ended and streams removed in any case.

    A subject of test that cannot be opened is written down as missing, and the others continue.

    Raises:
        SubjectError: no subject of test could be opened.
    """
    with tempfile.TemporaryDirectory(prefix="nats-bridge-conform-", ignore_cleanup_errors=True) as folder:
        async with contextlib.AsyncExitStack() as opened:
            subjects: list[Subject] = []
            missing = dict(servers.missing)
            for subject in subjects_of(plan, servers, Path(folder)):
                try:
                    await subject.open()
                except SubjectError as error:
                    missing[subject.identity.label] = str(error)
                    continue
                opened.push_async_callback(subject.close)
                if isinstance(subject, RunningServer):
                    progress.say(f"{subject.identity.label}: the running server at {subject.address}")
                subjects.append(subject)
            if not subjects:
                # A running server that does not answer has no known version, and therefore no label.
                reported = (reason if plan.server else f"{name}: {reason}" for name, reason in missing.items())
                raise SubjectError("\n".join(reported))
            for name, reason in missing.items():
                progress.say(f"{name}: missing: {reason}")
            identities = {subject.identity.label: subject.identity for subject in subjects}
            with HistoryWriter(file, identities, missing=missing, **_start(plan, cases)) as writer:
                await play_all(cases, subjects, writer, progress)


def _start(plan: RunPlan, cases: Sequence[Case]) -> dict[str, object]:
    return {
        "suite": version("nats-conformance"),
        "catalogue": checksum(),
        "catalogue_version": about()["version"],
        "license": about()["license"],
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "cases": len(cases),
        "selection": [*plan.patterns, *(f"not {each}" for each in plan.skipped)],
        "level": plan.level.value,
        "server": shown_address(plan.server),
        "command": shlex.join(_without_secrets(sys.argv[1:])),
    }


def _without_secrets(arguments: Sequence[str]) -> list[str]:
    """Return the arguments without user names and passwords in addresses, which need no `nats://` after --server."""
    found: list[str] = []
    for argument in arguments:
        is_bare = "://" not in argument and (argument.startswith("--server=") or found[-1:] == ["--server"])
        found.append(re.sub(r"(?<=--server=).*@|^(?!--).*@" if is_bare else r"(?<=://)\S*@", "", argument))
    return found
