"""``docs/versions.md``: what changes between which server versions, made of a judged run over native servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from conformance.catalogue.case import Case
from conformance.reports.changes import Change, changes
from conformance.reports.judgement import Cell, Judged
from conformance.reports.links import clause_link, document_of
from conformance.reports.markdown_text import code, plain, row, shortened
from conformance.subjects.identity import Identity
from transforms.dialect import Version

__all__ = ["version_changes"]

_LONGEST = 220
_INTRODUCTION = """\
# What changes between server versions

What RePublish, subject transforms, sources and mirrors of a NATS server do differently from one version to the next.
Every row was seen on real servers: the same configuration and the same messages were given to both versions, and what
they answered, sent and stored was compared, byte by byte. What is not listed did not change in any case of the suite.

- **Case** says what is looked at; its id selects it (`nats-bridge conform --select ID --versions V,V` plays it again).
- **First in** is the first version that shows the new behaviour, as far as it is known more exactly than by the two
  versions that were compared.
- Header lines are as they are on the wire; `<time>` stands for a time, `\\r\\n` for a line end.
- `nats-bridge conform --config stream.json --versions V,V` answers the same question for a configuration of your own.
"""


@dataclass(frozen=True, slots=True)
class _Changed:
    """A case that two versions answer differently."""

    case: Case
    changes: tuple[Change, ...]
    reasons: tuple[str, ...]
    first_in: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Step:
    """From one version to the next one that was tested.

    ``begun`` and ``ended`` are the cases that are about one of the two versions only.
    """

    before: Identity
    after: Identity
    changed: tuple[_Changed, ...]
    begun: tuple[Case, ...]
    ended: tuple[Case, ...]


def version_changes(judged: Judged) -> str:
    """The page, as Markdown; the same for the same history, and for histories that show the same."""
    natives = sorted(
        (each for each in judged.subjects.values() if each.kind == "native"), key=lambda identity: identity.version
    )
    steps = [_step(judged, before, after) for before, after in pairwise(natives)]
    parts = [_INTRODUCTION, *_made_of(judged, natives)]
    if steps:
        parts += [*_overview(steps)]
        for step in steps:
            parts += _section(step, _are_minors(natives))
    else:
        parts.append("\nNothing to compare: the run has fewer than two native servers.\n")
    return "".join(parts)


def _made_of(judged: Judged, natives: Sequence[Identity]) -> Iterator[str]:
    versions = ", ".join(identity.dialect for identity in natives) or "none"
    yield f"\n{len(judged.cases)} cases, on the servers {versions}. This page is generated, do not edit it:\n"
    yield "`nats-bridge conform judge HISTORY --version-changes docs/versions.md`.\n"
    for objection in judged.objections():
        yield f"\n> **The run is not complete**: {objection}\n"


def _step(judged: Judged, before: Identity, after: Identity) -> _Step:
    changed, begun, ended = [], [], []
    for case in judged.cases:
        old, new = judged.cell(case, before.label), judged.cell(case, after.label)
        if old is None or new is None:
            continue
        if old.expectation is None or new.expectation is None:
            if new.expectation is not None:
                begun.append(case)
            elif old.expectation is not None:
                ended.append(case)
            continue
        found = _changed(case, old, new, before.version, after.version)
        if found is not None:
            changed.append(found)
    return _Step(before, after, tuple(changed), tuple(begun), tuple(ended))


def _changed(case: Case, old: Cell, new: Cell, before: Version, after: Version) -> _Changed | None:
    found = changes(case, old, new)
    is_known = case.difference(before) is not case.difference(after) and None not in (old.observation, new.observation)
    if not found and not is_known:
        return None
    differences = [each for each in (case.difference(before), case.difference(after)) if each is not None]
    firsts = sorted(
        {
            version
            for difference in differences
            for version in (*difference.range.since, *difference.range.until)
            if before < version <= after
        }
    )
    reasons = tuple(dict.fromkeys(each.reason for each in differences)) if is_known else ()
    return _Changed(case, found, reasons, tuple(_text(version) for version in firsts) if is_known else ())


def _text(version: Version) -> str:
    return ".".join(map(str, version))


def _are_minors(natives: Sequence[Identity]) -> bool:
    """Whether each minor line is there once, so that it names a server."""
    return len({identity.version[:2] for identity in natives}) == len(natives)


def _overview(steps: Sequence[_Step]) -> Iterator[str]:
    documents = list(dict.fromkeys(document_of(each.case.clause) for step in steps for each in step.changed))
    yield "\n"
    yield row("From", "to", *(f"{document}" for document in documents), "begins to be tested")
    yield row("---", "---", *("---:" for _ in documents), "---:")
    for step in steps:
        counts = Counter(document_of(each.case.clause) for each in step.changed)
        yield row(
            step.before.dialect,
            step.after.dialect,
            *(str(counts[document] or "-") for document in documents),
            str(len(step.begun) or "-"),
        )


def _section(step: _Step, are_minors: bool) -> Iterator[str]:
    names = [_text(each.version[:2] if are_minors else each.version) for each in (step.before, step.after)]  # type: ignore[arg-type]
    yield f"\n## From {names[0]} to {names[1]}\n\nSeen on {step.before.dialect} and {step.after.dialect}."
    if not step.changed:
        yield " No case shows a difference.\n"
    else:
        yield "\n"
    for clause in dict.fromkeys(each.case.clause for each in step.changed):
        link = clause_link(clause)
        yield f"\n### {f'[{clause}]({link})' if link else clause}\n\n"
        yield row("Case", names[0], names[1], "Why", "First in")
        yield row("---", "---", "---", "---", "---")
        for each in step.changed:
            if each.case.clause == clause:
                yield _row(each)
    yield from _listed(f"Cases that begin with {names[1]}", step.begun)
    yield from _listed(f"Cases that end with {names[0]}", step.ended)


def _row(changed: _Changed) -> str:
    before, after = _sides(changed.changes)
    case = f"{plain(changed.case.title)}<br>{code(changed.case.id)}"
    return row(case, before, after, plain("; ".join(changed.reasons)) or "-", ", ".join(changed.first_in) or "-")


def _sides(found: Sequence[Change]) -> tuple[str, str]:
    """Both sides of a row; what is looked at is said where it is not the decision alone."""
    sides: list[str] = []
    for side in ("before", "after"):
        lines = []
        for change in found:
            text = getattr(change, side)
            name = "" if change.what == "decision" else f"{code(change.what)}: "
            lines.append(f"{name}{code(shortened(text, _LONGEST))}" if text else "")
        sides.append("<br>".join(line for line in lines if line) or "as the reason says")
    return sides[0], sides[1]


def _listed(heading: str, cases: Sequence[Case]) -> Iterator[str]:
    if not cases:
        return
    yield f"\n<details><summary>{heading} ({len(cases)})</summary>\n\n"
    for case in cases:
        yield f"- {plain(case.title)} ({code(case.id)})\n"
    yield "\n</details>\n"
