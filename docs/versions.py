"""Writes docs/versions.md and a page per version: the changes between servers, from a run over native servers.

python -m docs.versions build/conformance/history.jsonl
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import click

from nats_conformance.catalogue.case import Case
from nats_conformance.catalogue.reading import read_catalogue
from nats_conformance.history import read_history
from nats_conformance.identity import Identity
from nats_conformance.outcome import Outcome
from nats_conformance.reports import judged as judged_run
from nats_conformance.reports.changes import Change, changes
from nats_conformance.reports.judgement import Cell, Judged
from nats_conformance.reports.links import clause_link, document_of
from nats_conformance.reports.markdown_text import code, plain, row, shortened
from nats_transforms.tested_versions import Version

_LONGEST = 180
_MOST_EXAMPLES = 3
_UNEXPECTED = "not as the case expects"
_ONLY_WORDS = "another code or text of the refusal, which no case depends on"
_INTRODUCTION = """\
# What changes between server versions

What RePublish, subject transforms, sources and mirrors of a NATS server do differently from one version to the next.
The suite gave both versions the same configuration and messages, and compared what they answered, sent and stored, byte
by byte. What is not listed did not change in any case.

A page for each version, in the last table, has the changes:

- **Case** is an example; its id selects it (`nats-conform run --select ID --versions V,V` plays it again). All cases
  that change for the same reason are listed below the tables.
- **First in** is the first version that shows the new behaviour, where it is known more exactly than by the two
  versions that were compared.
- Header lines are as they are on the wire; `<time>` stands for a time, `\\r\\n` for a line end.
- `nats-conform stream.json --versions V,V` answers the same question for a configuration of your own.
"""


@dataclass(frozen=True, slots=True)
class _Changed:
    """A case that two versions answer differently."""

    case: Case
    changes: tuple[Change, ...]
    reason: str
    first_in: str


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


def version_changes(judged: Judged, name: str = "versions") -> dict[str, str]:
    """The pages by file name, as Markdown: an overview ``<name>.md``, and ``<name>-<version>.md`` for each step.

    The same for the same history, and for histories that show the same.
    """
    natives = sorted(
        (each for each in judged.subjects.values() if each.kind == "native"), key=lambda identity: identity.version
    )
    steps = [_step(judged, before, after) for before, after in pairwise(natives)]
    parts = [_INTRODUCTION, *_made_of(judged, natives)]
    are_minors = _are_minors(natives)
    if not steps:
        parts.append("\nNothing to compare: the run has fewer than two native servers.\n")
        return {f"{name}.md": "".join(parts)}
    parts += [*_overview(steps, [f"{name}-{_names(step, are_minors)[1]}.md" for step in steps])]
    pages = {f"{name}-{_names(step, are_minors)[1]}.md": "".join(_section(step, are_minors)) for step in steps}
    return {f"{name}.md": "".join(parts), **pages}


def _made_of(judged: Judged, natives: Sequence[Identity]) -> Iterator[str]:
    versions = ", ".join(identity.dialect for identity in natives) or "none"
    yield f"\n{len(judged.cases)} cases, on the servers {versions}. The pages are generated, do not edit them:\n"
    yield "`python -m docs.versions HISTORY`.\n"
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
    if not is_known:
        is_new = any(cell.verdict.outcome is Outcome.FAIL for cell in (old, new))
        return _Changed(case, found, _UNEXPECTED if is_new else "", "")
    # A difference that ends here describes the change best; else one that begins here.
    ended, begun = case.difference(before), case.difference(after)
    ends = () if ended is None else tuple(each for each in ended.range.until if before < each <= after)
    begins = () if begun is None else tuple(each for each in begun.range.since if before < each <= after)
    reported = ended if ended is not None and (ends or begun is None) else begun
    return _Changed(case, found, reported.reason if reported else "", ", ".join(map(_text, ends or begins)))


def _text(version: Version) -> str:
    return ".".join(map(str, version))


def _are_minors(natives: Sequence[Identity]) -> bool:
    """Whether each minor line is there once, so that it names a server."""
    return len({identity.version[:2] for identity in natives}) == len(natives)


def _names(step: _Step, are_minors: bool) -> list[str]:
    return [_text(each.version[:2] if are_minors else each.version) for each in (step.before, step.after)]  # type: ignore[arg-type]


def _overview(steps: Sequence[_Step], files: Sequence[str]) -> Iterator[str]:
    documents = list(dict.fromkeys(document_of(each.case.clause) for step in steps for each in step.changed))
    yield "\n"
    yield row("From", "to", *(f"{document}" for document in documents), "begins to be tested")
    yield row("---", "---", *("---:" for _ in documents), "---:")
    for step, file in zip(steps, files, strict=True):
        counts = Counter(document_of(each.case.clause) for each in step.changed)
        yield row(
            step.before.dialect,
            f"[{step.after.dialect}]({file})",
            *(str(counts[document] or "-") for document in documents),
            str(len(step.begun) or "-"),
        )


def _section(step: _Step, are_minors: bool) -> Iterator[str]:
    names = _names(step, are_minors)
    yield f"# From {names[0]} to {names[1]}\n\nSeen on {step.before.dialect} and {step.after.dialect}."
    if not step.changed:
        yield " No case shows a difference.\n"
    else:
        yield "\n"
    for changed in _grouped(step.changed, lambda each: document_of(each.case.clause)):
        document = document_of(changed[0].case.clause)
        link = clause_link(document)
        yield f"\n## {f'[{document}]({link})' if link else document}\n\n"
        yield row("What changes", "Case", names[0], names[1], "First in")
        yield row("---", "---", "---", "---", "---")
        reasons = _grouped(changed, lambda each: (each.reason, each.first_in))
        for group in reasons:
            yield from _rows(group)
        if len(changed) > sum(min(len(group), _MOST_EXAMPLES) for group in reasons):
            yield from _all_cases(reasons)
    yield from _listed(f"Cases that begin with {names[1]}", step.begun)
    yield from _listed(f"Cases that end with {names[0]}", step.ended)


def _grouped(changed: Sequence[_Changed], key: Callable[[_Changed], object]) -> list[list[_Changed]]:
    """Those with the same key together, in the order in which keys are first met."""
    found: dict[object, list[_Changed]] = {}
    for each in changed:
        found.setdefault(key(each), []).append(each)
    return list(found.values())


def _rows(group: Sequence[_Changed]) -> Iterator[str]:
    """What changes for one reason: the most frequent ways to show it, with an example each."""
    ways = sorted(_grouped(group, lambda each: _sides(each.changes)), key=len, reverse=True)
    for number, way in enumerate(ways[:_MOST_EXAMPLES]):
        first = way[0]
        left = len(way) - 1
        if number == _MOST_EXAMPLES - 1:
            left += sum(map(len, ways[_MOST_EXAMPLES:]))
        case = f"{plain(first.case.title)}<br>{code(first.case.id)}" + (f"<br>and {left} more" if left else "")
        what = plain(first.reason or _ONLY_WORDS) if number == 0 else ""
        yield row(what, case, *_sides(first.changes), first.first_in or "-" if number == 0 else "")


def _all_cases(reasons: Sequence[Sequence[_Changed]]) -> Iterator[str]:
    yield "\n<details><summary>All cases</summary>\n\n"
    for group in reasons:
        ids = ", ".join(code(each) for each in compact_ids(each.case.id for each in group))
        yield f"- {plain(group[0].reason or _ONLY_WORDS)}: {ids}\n"
    yield "\n</details>\n"


def _sides(found: Sequence[Change]) -> tuple[str, str]:
    """Both sides of a row; names what was observed where it is not the decision alone."""
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
    for document in dict.fromkeys(document_of(case.clause) for case in cases):
        ids = compact_ids(case.id for case in cases if document_of(case.clause) == document)
        yield f"- {plain(document)}: {', '.join(map(code, ids))}\n"
    yield "\n</details>\n"


def compact_ids(ids: Iterable[str]) -> Iterator[str]:
    """Ids, those that differ in their number alone put together: ``adr28/block/size/1-3``."""
    numbers: dict[str, list[int]] = {}
    for each in ids:
        name, _, last = each.rpartition("/")
        numbers.setdefault(name, []).append(int(last))
    for name, found in numbers.items():
        runs: list[list[int]] = []
        for number in sorted(found):
            if runs and runs[-1][-1] == number - 1:
                runs[-1].append(number)
            else:
                runs.append([number])
        yield from (f"{name}/{run[0]}" + (f"-{run[-1]}" if len(run) > 1 else "") for run in runs)


@click.command()
@click.argument("history", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="HISTORY")
def main(history: Path) -> None:
    """Write the pages from the history of a whole run."""
    for name, text in version_changes(judged_run(read_history(history), read_catalogue())).items():
        (Path(__file__).parent / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
