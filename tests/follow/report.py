"""The report in Markdown, which is also what is printed: version by version, the summaries last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from nats_conformance.reports.markdown import code, plain, shortened
from tests.follow.findings import Different, DifferentCase, Findings

_LONGEST = 400
_FILES = (
    "subject_transform.go",
    "sublist.go",
    "errors.go",
    "errors.json",
    "client.go",
    "stream.go",
    "consumer.go",
    "jetstream_api.go",
)
"""Of the server: transforms, matching, errors, checks of subjects, streams, deliveries, and answers to requests."""
_MODULE = "github.com/nats-io/nats-server/v2"
RECIPE = "docs/extending.md#a-new-server-version"


def markdown(found: Sequence[Findings], folder: Path) -> str:
    """The report; ``folder`` is where it is, with the logs. Its last line says whether all versions are followed."""
    return "".join(text for each in found for text in _version(each, folder)) + _summaries(found, folder)


def followed(found: Sequence[Findings]) -> str:
    """One line: whether the engine and the sidecar follow all versions, and what is left."""
    changed = sum(len(each.changed) for each in found)
    cases = f"{changed} case{'' if changed == 1 else 's'} changed"
    left: Counter[str] = Counter()
    for each in found:
        left.update(each.left)
    if not left:
        return f"followed: yes, {cases}, nothing left"
    return f"followed: no, {cases}. Left: {', '.join(f'{name}: {count}' for name, count in left.items())}"


def summary(found: Findings) -> str:
    """One line: the figures of a version."""
    counts = {"cases that changed": len(found.changed), **found.left}
    figures = ", ".join(f"{name}: {count}" for name, count in counts.items() if count) or "nothing differs"
    return f"nats-server {found.step.version} after {found.step.previous}: {figures} ({found.seconds / 60:.1f} min)"


def _summaries(found: Sequence[Findings], folder: Path) -> str:
    lines = [f"- {summary(each)}. Logs and whole reports: `{folder / each.step.version}`.\n" for each in found]
    return "".join(["# Summary\n\n", *lines, f"\n{followed(found)}\n"])


def _version(found: Findings, folder: Path) -> Iterator[str]:
    step = found.step
    yield f"# nats-server {step.version} after {step.previous}\n\n"
    if found.waiting:
        yield f"Not ended yet: {', '.join(found.waiting)}.\n\n"
    if found.is_same:
        yield "Nothing that is tested differs, and the engine follows.\n\n"
        return
    yield f"What to do with this report: {RECIPE}. The difference of the servers themselves, the usual files first:\n\n"
    yield f'```sh\ncd "$(go env GOMODCACHE)/{_MODULE.rpartition("/")[0]}"\n'
    yield f"for file in {' '.join(_FILES)}; do\n"
    yield f"  diff -u v2@v{step.previous}/server/$file v2@v{step.version}/server/$file\ndone\n"
    yield f"diff -rq v2@v{step.previous}/server v2@v{step.version}/server  # the names of all that differ\n```\n\n"
    yield f"## Cases that changed: {len(found.changed)}\n\n"
    for case in found.changed:
        yield from _case(case, step.previous, step.version)
    yield f"## Cases that the engine does not follow: {len(found.unfollowed)}\n\n"
    for case in found.unfollowed:
        yield from _case(case, step.version, "the engine")
    yield f"## Random comparisons that disagree: {sum(each.count for each in found.disagreements)}\n\n"
    for each in found.disagreements:
        yield from _different(each)
    yield f"## Live tests that fail: {len(found.failed)}\n\n"
    for each in found.failed:
        yield from _different(each)
    if found.untested:
        yield f"## Live tests that name connection.untested_server: {len(found.untested)}\n\n"
        yield "They compare the log of a sidecar, which says that the version is newer than the table.\n"
        yield "Play them again when the table has its row.\n\n"
        yield from (f"- again: {code(each.again)}\n" for each in found.untested)
        yield "\n"
    if found.broken:
        yield f"## Parts without a result: {len(found.broken)}\n\n"
        yield from (f"- {name}: {plain(reason)}\n" for name, reason in found.broken.items())
        yield f"\nTheir logs are below `{folder}`.\n\n"


def _case(case: DifferentCase, before: str, after: str) -> Iterator[str]:
    yield f"### {code(case.id)}\n\n{plain(case.title)} ({plain(case.clause)}; `{case.place}`).\n\n"
    for change in case.changes:
        yield f"- {code(change.what)}\n"
        for name, text in ((before, change.before), (after, change.after)):
            yield f"  - {name}: {code(shortened(text, _LONGEST))}\n"
    if case.is_doubtful:
        yield f"- {before} did not do as the case expects of it: play it again, the difference may be chance\n"
    yield f"- again: `{case.again}`\n\n"


def _different(each: Different) -> Iterator[str]:
    yield f"### {code(each.name)}\n\n"
    yield f"```text\n{each.text}\n```\n\n- again: {code(each.again)}\n\n"
