"""Checks of a configuration beyond the shape of its parts: references, combinations, transforms.

One module for each part of the configuration and one for each kind of rule that has mistakes to find; each yields
`Problem`s. If a server validates the same thing in a stream's configuration, the engine decides, and the message
contains the server's words and number.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from nats_bridge.marked_yaml import Path
from nats_bridge.settings.checks.connections import connection_problems, reference_problems
from nats_bridge.settings.checks.rule_checks import checks_of
from nats_bridge.settings.checks.transforming import dialect_problem
from nats_bridge.settings.connections import Connection
from nats_bridge.settings.models import Settings
from nats_bridge.settings.problems import Problem, did_you_mean
from nats_bridge.settings.rule_tests import RuleTest
from nats_bridge.settings.rules import Rule


def settings_problems(settings: Settings, environ: Mapping[str, str]) -> Iterator[Problem]:
    """Yield the problems of a configuration whose parts are well formed.

    Args:
        environ: the variables that locate the contexts of `nats`.
    """
    if not settings.rules:
        yield Problem((), "no rules; add at least one entry under rules:")
    if not settings.connections:
        yield Problem(("connections",), "no connections; remove the key to use nats://127.0.0.1:4222")
    if reason := dialect_problem(settings.dialect):
        yield Problem(("dialect",), reason)
    yield from connection_problems(settings, environ)
    yield from reference_problems(settings)
    yield from _rule_problems(enumerate(settings.rules), settings.dialect, settings.connections)
    yield from _test_problems(settings.tests, settings.rules)


def _rule_problems(
    rules: Iterable[tuple[int, Rule]], default_dialect: str, connections: Mapping[str, Connection]
) -> Iterator[Problem]:
    """Yield the problems of valid rules, each by its kind. Rules come with their positions in the configuration."""
    for position, rule in rules:
        at: Path = ("rules", position)
        version = rule.dialect or default_dialect
        if problem := dialect_problem(version):
            if rule.dialect:  # otherwise it is reported once, at the configuration's dialect
                yield Problem((*at, "dialect"), problem)
        else:
            yield from checks_of(rule).problems(rule, at, version, connections)


def _test_problems(tests: Sequence[RuleTest], rules: Sequence[Rule]) -> Iterator[Problem]:
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
