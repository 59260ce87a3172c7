"""The page on counters: what each kind of rule counts, and the metric that exports it."""

from __future__ import annotations

import inspect
import re
from typing import Any, Final

from docs.reference.markdown import code, table
from nats_bridge.rule_kinds import KINDS, RECEIVED, RuleKind, kind_named
from nats_bridge.telemetry.names import (
    DROPPED,
    EVENTS,
    FACTS,
    RECEIVED_BYTES,
    RECEIVED_MESSAGES,
    SENT_BYTES,
    SENT_MESSAGES,
    Metric,
)

_SEVERAL: Final = "Several kinds"
_ATTRIBUTE: Final = re.compile(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)
_HEAD: Final = """\
# Counters

What each kind of rule counts, and the metric that has it. This page is generated: `python -m docs.reference --write`.

Counters are in `counters` of a rule in [`/status`](../status-api.md), and in the log line `rule.stopped`.
They count since the process started, over all restarts of the rule. The metrics themselves, with their labels, are in
[metrics](metrics.md). Counters of several kinds come first.
"""


def page() -> str:
    """The page's text."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    headings = []
    for package in dict.fromkeys(KINDS.values()):
        names = [name for name in KINDS if KINDS[name] == package]
        kind = kind_named(names[0])
        headings.append(", ".join(names))
        for name, reported in _attributes(type(kind.counters())).items():
            rows.setdefault((code(name), reported, _metric(name, kind)), []).append(headings[-1])
    parts = [_HEAD]
    for heading in (_SEVERAL, *headings):
        own = [row for row, where in rows.items() if (where if len(where) == 1 else [_SEVERAL]) == [heading]]
        parts.append(f"## {heading}\n")
        several = ", ".join(row[0] for row, where in rows.items() if len(where) > 1 and heading in where)
        parts += [f"Also {several}, as above.\n"] if several else []
        shown = ((name, f"{reported}<br>{metric}") for name, reported, metric in own)
        parts.append(table(("counter", "counted messages or events, and the metric"), shown))
    return "\n".join(parts)


def _attributes(counters: type) -> dict[str, str]:
    """What the docstrings of a class and of those it extends say of their attributes."""
    found: dict[str, str] = {}
    for one in reversed(counters.__mro__):
        _, _, attributes = inspect.cleandoc(one.__doc__ or "").partition("Attributes:\n")
        for entry in _ATTRIBUTE.finditer(attributes):
            found[entry[1]] = " ".join(entry[2].split())
    return found


def _metric(name: str, kind: RuleKind[Any]) -> str:
    meanings = kind.meanings
    if name == RECEIVED:
        return _shown(RECEIVED_MESSAGES)
    if name == meanings.sent:
        return _shown(SENT_MESSAGES)
    if name in meanings.dropped:
        return _shown(DROPPED, "reason", meanings.dropped[name])
    if name in meanings.facts:
        return _shown(FACTS[meanings.facts[name]])
    if name in kind.events:
        return _shown(EVENTS, "event", name)
    return _shown({"bytes_out": SENT_BYTES, "bytes_in": RECEIVED_BYTES}[name])


def _shown(metric: Metric, label: str = "", value: str = "") -> str:
    return code(metric.sample_name + (f'{{{label}="{value}"}}' if label else ""))
