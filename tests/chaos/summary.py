"""A judged run as a table that can be quoted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.chaos.findings import Judgement
from tests.chaos.story import CLEAN_STOP, Story

_TEXTS, _NUMBERS = ("rule", "kind", "promise"), ("expected", "seen", "lost", "duplicated", "reordered", "wrong")
_LOSSES = ("lost", "stuck")
_WRONG = ("wrong subject", "wrong headers", "wrong bytes", "wrong sum", "invented", "ended", "refused")
_SHOWN = 10


def violated(judgements: Sequence[Judgement]) -> bool:
    """Whether any promise was broken."""
    return any(judgement.violations for judgement in judgements)


def summary(story: Story, judgements: Sequence[Judgement], repeat: str) -> str:
    """The table, what was broken, and how to repeat the run."""
    run = story.run
    counts = Counter(each.kind for each in story.disturbances)
    ended = counts.pop("sidecar ended", 0) + counts.pop(CLEAN_STOP, 0)
    stored = sum(map(len, story.acknowledged.values()))
    lines = [
        f"chaos: seed {run.get('seed')}, {run.get('topology')} of {run.get('version')}, "
        f"{run.get('replicas')} sidecar(s), {story.end:.0f} s",
        f"{stored} messages acknowledged, {sum(counts.values())} faults, {ended} ends of a sidecar:",
        "  " + ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items())),
        "",
        *_table([(*_TEXTS, *_NUMBERS, "allowed", "unknown"), *(_row(judgement) for judgement in judgements)]),
        "",
    ]
    for judgement in judgements:
        allowed = {name: count for name, count in sorted(judgement.counts.items()) if "violation" not in name}
        if allowed:
            lines.append(f"{judgement.rule}: " + ", ".join(f"{count} {name}" for name, count in allowed.items()))
        for finding in judgement.violations[:_SHOWN]:
            at = "" if finding.at is None else f" at {finding.at:.1f} s"
            lines.append(f"VIOLATION {judgement.rule}: {finding.what}{at}: {finding.detail}")
        if (more := len(judgement.violations) - _SHOWN) > 0:
            lines.append(f"VIOLATION {judgement.rule}: and {more} more")
    lines += ["", "result: " + ("VIOLATIONS" if violated(judgements) else "every promise was kept"), f"again: {repeat}"]
    return "\n".join(lines) + "\n"


def _row(judgement: Judgement) -> tuple[str, ...]:
    broken = Counter[str](finding.what for finding in judgement.violations)
    verdicts = Counter(finding.verdict for finding in judgement.findings)
    counts = [judgement.expected, judgement.seen]
    counts += [sum(broken[what] for what in column) for column in (_LOSSES, ("duplicated",), ("reordered",), _WRONG)]
    counts += verdicts["allowed"], verdicts["unknown"]
    return judgement.rule, judgement.kind, judgement.promise, *map(str, counts)


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if index < len(_TEXTS) else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
