"""Tests of rules: the rules and streams that they name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nats_bridge.settings.problems import Problem, did_you_mean
from nats_bridge.settings.rule_tests import RuleTest
from nats_bridge.settings.rules import Rule


def test_problems(tests: Sequence[RuleTest], rules: Sequence[Rule]) -> Iterator[Problem]:
    """Yield the problems of tests, beyond their shape."""
    named = {rule.name: rule for rule in rules}
    for position, test in enumerate(tests):
        rule, place = named.get(test.rule), ("tests", position)
        if rule is None:
            yield Problem((*place, "rule"), f"no rule '{test.rule}'; {did_you_mean(test.rule, named)}")
        elif test.given.stream is not None:
            sources = [entry.name for entry in rule.entries]
            if not sources:
                yield Problem((*place, "given", "stream"), f"rule '{rule.name}' copies no streams; remove it")
            elif test.given.stream not in sources:
                among = ", ".join(dict.fromkeys(sources))
                yield Problem(
                    (*place, "given", "stream"),
                    f"rule '{rule.name}' does not copy from '{test.given.stream}', only from {among}",
                )
