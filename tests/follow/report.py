"""The report in Markdown, which is also what is printed: version by version, the summaries last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from nats_bridge.conformance.reports.markdown_text import code, plain, shortened
from tests.follow.findings import Different, DifferentCase, Findings

_LONGEST = 400
_MODULE = "github.com/nats-io/nats-server/v2"
RECIPE = "docs/extending.md#a-new-server-version"


def markdown(found: Sequence[Findings], folder: Path) -> str:
    """The report; ``folder`` is where it is, with the logs."""
    return "".join(text for each in found for text in _version(each, folder)) + _summaries(found, folder)


def summary(found: Findings) -> str:
    """One line: the figures of a version."""
    counts = {
        "cases that changed": len(found.changed),
        "cases that the engine does not follow": len(found.unfollowed),
        "random comparisons that disagree": sum(each.count for each in found.disagreements),
        "live tests that fail": len(found.failed),
        "parts without a result": len(found.broken),
    }
    figures = ", ".join(f"{name}: {count}" for name, count in counts.items() if count) or "nothing differs"
    return f"nats-server {found.step.version} after {found.step.previous}: {figures} ({found.seconds / 60:.1f} min)"


def _summaries(found: Sequence[Findings], folder: Path) -> str:
    lines = [f"- {summary(each)}. Logs and whole reports: `{folder / each.step.version}`.\n" for each in found]
    return "".join(["# Summary\n\n", *lines])


def _version(found: Findings, folder: Path) -> Iterator[str]:
    step = found.step
    yield f"# nats-server {step.version} after {step.previous}\n\n"
    if found.is_same:
        yield "Nothing that is tested differs, and the engine follows.\n\n"
        return
    yield f"What to do with this report: {RECIPE}. The difference of the servers themselves:\n\n```sh\n"
    yield f'cd "$(go env GOMODCACHE)/{_MODULE.rpartition("/")[0]}" && '
    yield f"diff -ru v2@v{step.previous}/server v2@v{step.version}/server --exclude='*_test.go'\n```\n\n"
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
