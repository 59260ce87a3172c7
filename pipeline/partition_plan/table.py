"""The plan in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pipeline.partition_plan.plan import Load, Plan, percent, skew

__all__ = ["lines"]

_ROWS: Final = 64
"""With more partitions than this, only the fullest are listed."""
_FULLEST: Final = 16
_LONG: Final = 60


def lines(plan: Plan) -> list[str]:
    """The whole answer."""
    change = plan.change
    told = [
        f"{change.before} → {change.after} partitions: {change.new_destination.decode('utf-8', 'backslashreplace')}",
        "",
        f"keys moved      {_share(plan.moved_keys, plan.keys)}",
        f"messages moved  {_share(plan.moved_messages, plan.messages)}",
        f"(of very many keys, {100 * change.expected:.1f} % would move)",
    ]
    if plan.unmatched:
        told.append(f"not matched     {plan.unmatched:,} messages, counted nowhere below")
    told += ["", *_partitions(plan)]
    if plan.hottest:
        told += ["", *_hottest(plan)]
    return told


def _share(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,} ({percent(part, whole):.1f} %)"


def _partitions(plan: Plan) -> list[str]:
    head = ("partition", "keys", "messages", "leave", "keys", "messages", "arrive")
    count = max(len(plan.before), len(plan.after))
    shown: Sequence[int] = range(count)
    note = []
    if count > _ROWS:
        fullest = sorted(shown, key=lambda number: (-_most(plan, number), number))[:_FULLEST]
        shown = sorted(fullest)
        note = [f"(the {_FULLEST} fullest of {count}; --json has all)"]
    rows = [(f"{number}", *_cells(plan.before, number), *_cells(plan.after, number)) for number in shown]
    skews = [f"{skew(loads):.2f}" for loads in (plan.before, plan.after)]
    rows.append(("max / mean", "", skews[0], "", "", skews[1], ""))
    table = _aligned([head, *rows])
    # The groups' names go over the first of their columns' right edges.
    widths = [max(len(row[at]) for row in [head, *rows]) for at in range(len(head))]
    before = widths[0] + 2
    after = before + sum(widths[1:4]) + 6
    group = "before".rjust(before + widths[1]).ljust(after) + "after".rjust(widths[4])
    return [group.rstrip(), *table, *note]


def _most(plan: Plan, number: int) -> int:
    return max(loads[number].messages for loads in (plan.before, plan.after) if number < len(loads))


def _cells(loads: Sequence[Load], number: int) -> tuple[str, str, str]:
    if number >= len(loads):
        return "–", "–", "–"
    load = loads[number]
    return f"{load.keys:,}", f"{load.messages:,}", f"{load.moved_messages:,}"


def _hottest(plan: Plan) -> list[str]:
    return _aligned(
        [
            ("hottest keys", "messages", "share", "before", "after"),
            *(
                (
                    key.key if len(key.key) <= _LONG else key.key[: _LONG - 1] + "…",
                    f"{key.messages:,}",
                    f"{percent(key.messages, plan.messages):.1f} %",
                    f"{key.before}",
                    f"{key.after}",
                )
                for key in plan.hottest
            ),
        ]
    )


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The first column to the left, the others to the right."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        ).rstrip()
        for row in rows
    ]
