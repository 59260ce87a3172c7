"""The page on metrics and on the counters of rules, from the modules that have them."""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any, Final

from docs.reference.markdown import code, items
from nats_bridge.rule_kinds import BYTES_OUT, KINDS, RECEIVED, RuleKind, kind_named
from nats_bridge.telemetry.names import (
    ATTRIBUTES,
    FACTS,
    METRICS,
    RECEIVED_MESSAGES,
    SENT_BYTES,
    SENT_MESSAGES,
    Metric,
)

_SEVERAL: Final = "Several kinds"
_ATTRIBUTE: Final = re.compile(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)
_REGULAR: Final = re.compile(r"nats_bridge_|_(messages|seconds|total)$")
_PREFIX: Final = "messaging.nats.bridge."
_HEAD: Final = """\
# Metrics

These are all metrics of a sidecar and all counters of its rules ([how to read them](../telemetry.md#how-to-read-them)).

In OTLP, names begin with `messaging.nats.bridge.` instead of `nats_bridge_`, and do not end with `_messages`,
`_seconds` or `_total`. Names that differ in another way are listed. Labels become attributes with the same prefix. `By`
introduces an additional label.

Names in brackets are counters, which you find in `counters` in [`/status`](../status-api.md) and in the log line
`rule.stopped`. A restart of the rule does not reset its counters.
"""
_REST: Final = """\
## Dropped messages and events

The names below are values of the labels `reason` and `event`, and names of counters. They count messages, unless the
explanation names something else.
"""


def page() -> str:
    """The page's text."""
    if any(name != _PREFIX + label for label, name in ATTRIBUTES.items()):
        raise ValueError("docs/reference/metrics.py: an attribute is not the prefix and the label")
    counters = _counters_of_metrics()
    parts = [_HEAD]
    for heading, metrics in _groups().items():
        labels = [label for label in metrics[0].labels if all(label in metric.labels for metric in metrics)]
        parts += [f"## {heading}\n"] + [f"Labels: {', '.join(map(code, labels))}.\n"] * bool(labels)
        parts.append(items((_names(metric, counters), _meaning(metric, labels)) for metric in metrics))
    parts.append(_REST)
    for heading, rows in _rest().items():
        parts.append(f"### {heading}\n")
        parts += (f"{label}:\n\n{items(meanings.items())}" for label, meanings in sorted(rows.items()))
    return "\n".join(parts)


def _groups() -> dict[str, list[Metric]]:
    groups: dict[str, list[Metric]] = defaultdict(list)
    for metric in METRICS:
        of_a_rule = "Watched copies" if "source" in metric.labels else "Rules"
        groups[of_a_rule if "rule" in metric.labels else "Sidecar and connections"].append(metric)
    return groups


def _names(metric: Metric, counters: Mapping[str, dict[str, None]]) -> str:
    named = code(metric.sample_name)
    if metric.otel != _PREFIX + _REGULAR.sub("", _REGULAR.sub("", metric.sample_name)):
        named += f", OTLP {code(metric.otel)}"
    known = ", ".join(map(code, counters[metric.sample_name]))
    return f"{named} ({known})" if known else named


def _meaning(metric: Metric, known: Collection[str]) -> str:
    more = [code(label) for label in metric.labels if label not in known]
    kind = " A histogram." if metric.kind == "histogram" else ""
    return metric.help + kind + (f" By {', '.join(more)}." if more else "")


def _kinds() -> dict[str, RuleKind[Any]]:
    """Every kind by its heading; kinds that run in the same way are one."""
    names = [[name for name in KINDS if KINDS[name] == package] for package in dict.fromkeys(KINDS.values())]
    return {", ".join(several): kind_named(several[0]) for several in names}


def _counters_of_metrics() -> Mapping[str, dict[str, None]]:
    """The names of counters by the metric that has only them."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for kind in _kinds().values():
        meanings = kind.meanings
        found[RECEIVED_MESSAGES.sample_name][RECEIVED] = None
        found[SENT_MESSAGES.sample_name][meanings.sent] = None
        found[SENT_BYTES.sample_name][BYTES_OUT] = None
        for name, fact in meanings.facts.items():
            found[FACTS[fact].sample_name][name] = None
    return found


def _rest() -> dict[str, dict[str, dict[str, str]]]:
    """The other counters with their meanings: by heading, and by the metric's label."""
    rows: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for heading, kind in _kinds().items():
        dropped = kind.meanings.dropped
        for name, meaning in _attributes(kind.counters).items():
            if name in dropped:
                reason = dropped[name]
                shown = code(reason) + f" (counter {code(name)})" * (reason != name)
                rows["Dropped", shown, meaning].append(heading)
            elif name in kind.events:
                rows["Events", code(name), meaning].append(heading)
    found: dict[str, dict[str, dict[str, str]]] = {heading: {} for heading in (_SEVERAL, *_kinds())}
    for (label, shown, meaning), headings in rows.items():
        heading = headings[0] if len(headings) == 1 else _SEVERAL
        found[heading].setdefault(label, {})[shown] = meaning
    return found


def _attributes(counters: type) -> dict[str, str]:
    """Return the descriptions of attributes in the docstrings of a class and its bases, by name."""
    found: dict[str, str] = {}
    for one in reversed(counters.__mro__):
        _, _, attributes = inspect.cleandoc(one.__doc__ or "").partition("Attributes:\n")
        for entry in _ATTRIBUTE.finditer(attributes):
            found[entry[1]] = " ".join(entry[2].split())
    return found
