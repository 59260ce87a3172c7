"""A repair for a terminal, and as plain values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from nats_bridge.bridge.replication import printable
from nats_bridge.pipeline.diff.findings import text
from nats_bridge.pipeline.diff.repair.job import Group, Repair, as_data
from nats_bridge.pipeline.diff.repair.steps import Step

_ORDER: Final = ("put", "append", "replace", "delete", "none")
_WORDS: Final = {"none": "not repaired"}


def repair_lines(repair: Repair) -> Iterator[str]:
    """What would be done or was, with examples."""
    if not repair.groups:
        yield "nothing to repair"
        return
    groups = sorted(repair.groups.items(), key=lambda item: (_ORDER.index(item[0].action), -item[1], item[0].kind))
    titles = [f"{_WORDS.get(group.action, group.action)} {group.kind}" for group, _ in groups]
    longest, room = max(map(len, titles)), max(len(f"{number:,}") for _, number in groups)
    for title, (group, number) in zip(titles, groups, strict=True):
        reason = f"  {printable(group.reason)}" if group.reason else ""
        yield f"{title:<{longest}}  {number:>{room},}{reason}"
        for step in repair.examples[group]:
            yield f"    {_example(step)}"
    yield _verdict(repair)


def repair_as_json(repair: Repair) -> dict[str, Any]:
    """The same as plain values for `json.dumps`."""
    applied = repair.applied

    def group(each: Group, number: int) -> dict[str, Any]:
        shown = [as_data(step) for step in repair.examples[each]]
        return {"action": each.action, "kind": each.kind, "reason": each.reason, "messages": number, "examples": shown}

    return {
        "complete": repair.is_complete,
        "steps": [group(each, number) for each, number in repair.groups.items()],
        "applied": None if applied is None else {**asdict(applied), "refused": dict(applied.refused)},
    }


def _example(step: Step) -> str:
    places = [f"{side} {number:,}" for side, number in (("left", step.left), ("right", step.right)) if number]
    name, subject = step.identity, text(step.subject)
    return printable(f"{name} ({', '.join(places)})" + (f": {subject}" if subject and subject != name else ""))


def _verdict(repair: Repair) -> str:
    applied = repair.applied
    if applied is None:
        todo = sum(number for group, number in repair.groups.items() if group.action != "none")
        return f"would repair {todo:,}; --apply does it" if todo else "nothing of this can be repaired"
    words = [f"stored {applied.stored:,}, deleted {applied.deleted:,}"]
    if applied.newer:
        words.append(f"{applied.newer:,} subjects have something newer by now, which stays")
    if applied.remembered:
        words.append(
            f"{applied.remembered:,} not stored, for the stream remembers their ids: again after its duplicate_window"
        )
    words += [f"{number:,} refused: {reason}" for reason, number in applied.refused.most_common()]
    return printable("; ".join(words))
