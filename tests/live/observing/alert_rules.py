"""The alert rules, and whether one fires: its PromQL on what sidecars' `/metrics` said at two moments.

As much of PromQL as the rules use. How long a condition must hold (`for`) is left out: no test waits for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import promql_parser
import yaml

from tests.live.observing.metrics_endpoint import Scrape

FILE: Final = Path(__file__).parents[3] / "k8s" / "monitoring" / "alerts.yaml"
ALERTS: Final[dict[str, dict[str, Any]]] = {
    alert["alert"]: alert for alert in yaml.safe_load(FILE.read_text("utf-8"))["groups"][0]["rules"]
}

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]

_COMPARED: Final[dict[str, Callable[[float, float], bool]]] = {
    "==": lambda a, b: a == b,
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
}


@dataclass(frozen=True, slots=True)
class Look:
    """All samples of one moment.

    Attributes:
        at: the moment, in Unix seconds.
        samples: by name and labels, with those of the targets.
    """

    at: float
    samples: dict[tuple[str, Labels], float]

    def __or__(self, other: Look) -> Look:
        return Look(self.at, self.samples | other.samples)

    @classmethod
    def of(cls, at: float, *scrapes: Scrape | None, namespace: str = "one") -> Look:
        """What Prometheus has after scraping some sidecars of a namespace; None for one that did not answer."""
        samples: dict[tuple[str, Labels], float] = {}
        for number, seen in enumerate(scrapes):
            target = {("namespace", namespace), ("job", "nats-bridge"), ("instance", f"{namespace}-{number}")}
            samples["up", frozenset(target)] = float(seen is not None)
            for (name, labels), value in (seen.samples if seen is not None else {}).items():
                samples[name, labels | target] = value
        return cls(at, samples)


def fires(name: str, now: Look, before: Look | None = None, *, threshold: float | None = None) -> list[dict[str, str]]:
    """The labels with which an alert fires.

    Args:
        name: the alert.
        now: the metrics.
        before: those of an earlier moment, for rates.
        threshold: replaces the number that the rule compares with.
    """
    expression = promql_parser.parse(ALERTS[name]["expr"])
    found = _Evaluation(now, before or now, threshold).value(expression)
    return [dict(labels) for labels in found]


class _Evaluation:
    def __init__(self, now: Look, before: Look, threshold: float | None) -> None:
        self._now, self._before, self._threshold = now, before, threshold

    def value(self, expression: Any) -> Any:
        """A vector, or a number."""
        match expression:
            case promql_parser.NumberLiteral():
                return expression.val
            case promql_parser.ParenExpr():
                return self.value(expression.expr)
            case promql_parser.VectorSelector():
                return _selected(expression, self._before if expression.offset else self._now)
            case promql_parser.AggregateExpr():
                return self._aggregated(expression)
            case promql_parser.Call():
                return self._called(expression)
            case promql_parser.BinaryExpr():
                return self._combined(expression)
        raise NotImplementedError(expression.prettify())

    def _aggregated(self, expression: Any) -> Vector:
        groups: dict[Labels, list[float]] = {}
        for labels, value in self.value(expression.expr).items():
            kept = frozenset(each for each in labels if each[0] in expression.modifier.labels)
            groups.setdefault(kept, []).append(value)
        combine: dict[str, Callable[[list[float]], float]] = {"sum": sum, "min": min, "count": len}
        return {labels: combine[str(expression.op)](values) for labels, values in groups.items()}

    def _called(self, expression: Any) -> Any:
        arguments = expression.args
        match expression.func.name:
            case "absent":
                return {} if self.value(arguments[0]) else {frozenset(): 1.0}
            case "time":
                return self._now.at
            case "increase":
                return self._changes(arguments[0], 1.0)
            case "rate":
                return self._changes(arguments[0], self._now.at - self._before.at)
            case "predict_linear":
                slopes, ahead = self._changes(arguments[0], self._now.at - self._before.at), arguments[1].val
                values = _selected(arguments[0].vector_selector, self._now)
                return {labels: value + slopes[labels] * ahead for labels, value in values.items() if labels in slopes}
            case "histogram_quantile":
                return _quantiles(arguments[0].val, self.value(arguments[1]))
        raise NotImplementedError(expression.func.name)

    def _changes(self, matrix: Any, divisor: float) -> Vector:
        before = _selected(matrix.vector_selector, self._before)
        after = _selected(matrix.vector_selector, self._now)
        return {labels: (value - before[labels]) / divisor for labels, value in after.items() if labels in before}

    def _combined(self, expression: Any) -> Vector:
        left, right = self.value(expression.lhs), self.value(expression.rhs)
        operator = str(expression.op)
        if operator in _COMPARED:
            limit = right if self._threshold is None else self._threshold
            return {labels: value for labels, value in left.items() if _COMPARED[operator](value, limit)}
        if operator == "-":
            return {labels: left - value for labels, value in right.items()}
        matching = expression.modifier.matching if expression.modifier else None
        on = None if matching is None else set(matching.labels)
        there = {_key(labels, on) for labels in right}
        if operator == "or":
            own = {_key(labels, on) for labels in left}
            return {**left, **{labels: value for labels, value in right.items() if _key(labels, on) not in own}}
        wanted = {"and": True, "unless": False}[operator]
        return {labels: value for labels, value in left.items() if (_key(labels, on) in there) is wanted}


def _key(labels: Labels, on: set[str] | None) -> Labels:
    return labels if on is None else frozenset(each for each in labels if each[0] in on)


def _selected(selector: Any, look: Look) -> Vector:
    return {
        labels: value
        for (name, labels), value in look.samples.items()
        if name == selector.name and all(_matches(matcher, dict(labels)) for matcher in selector.matchers.matchers)
    }


def _matches(matcher: Any, labels: dict[str, str]) -> bool:
    value = labels.get(matcher.name, "")
    return {
        "Equal": value == matcher.value,
        "NotEqual": value != matcher.value,
        "Re": bool(re.fullmatch(matcher.value, value)),
        "NotRe": not re.fullmatch(matcher.value, value),
    }[str(matcher.op).rpartition(".")[2]]


def _quantiles(share: float, buckets: Vector) -> Vector:
    """The upper bound of the bucket with the quantile, which is enough for a comparison."""
    groups: dict[Labels, dict[float, float]] = {}
    for labels, value in buckets.items():
        rest = frozenset(each for each in labels if each[0] != "le")
        groups.setdefault(rest, {})[float(dict(labels)["le"])] = value
    return {
        labels: next(bound for bound in sorted(counts) if counts[bound] >= share * counts[float("inf")])
        for labels, counts in groups.items()
        if counts[float("inf")]
    }
