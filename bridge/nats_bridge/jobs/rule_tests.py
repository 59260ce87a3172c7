"""Runs the tests of a configuration: compares the messages that each rule makes with the expected ones."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from nats_bridge.errors import ConfigError
from nats_bridge.rule_kinds import Incoming, kind_of
from nats_bridge.settings import Settings
from nats_bridge.settings.rule_tests import ExpectedMessage, GivenMessage, RuleTest
from nats_transforms import header_block
from nats_transforms.errors import EngineError
from nats_transforms.republish import Refusal, Republished, StoredMessage
from nats_transforms.selection import Unselected
from nats_transforms.sourcing import Copied
from nats_transforms.subject import text_of
from nats_transforms.timestamp import nanoseconds_of

_Result: TypeAlias = Republished | Copied


@dataclass(frozen=True, slots=True)
class RuleTestVerdict:
    """The outcome of one test.

    Attributes:
        position: its place under `tests`, from 0.
        differences: a sentence for each difference; none for a test that passes.
        made: the subjects of the messages that the rule made.
    """

    test: RuleTest
    position: int
    differences: tuple[str, ...]
    made: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "name": self.test.title,
            "rule": self.test.rule,
            "ok": not self.differences,
            "made": list(self.made),
            "differences": list(self.differences),
        }


def run_tests(settings: Settings) -> Iterator[RuleTestVerdict]:
    """Run all tests in order, without connecting to a server.

    Rules with the dialect `native` behave like the newest one.

    Raises:
        ConfigError: a rule's dialect does not support its transform.
    """
    rules = {rule.name: rule for rule in settings.rules}
    for position, test in enumerate(settings.tests):
        rule = rules[test.rule]
        try:
            made = tuple(kind_of(rule).makes(rule, settings.offline_dialect_of(rule), _incoming(test.given)))
        except EngineError as error:
            raise ConfigError(f"rule '{rule.name}': {error}") from None
        results = [each for each in made if isinstance(each, Republished | Copied)]
        differences = [f"no client can publish the result: {each.reason}" for each in made if isinstance(each, Refusal)]
        differences += _unequal(test.expect, results)
        if differences:
            differences += [f"left out: {each.reason}" for each in made if isinstance(each, Unselected)]
        yield RuleTestVerdict(test, position, tuple(differences), tuple(text_of(each.subject) for each in results))


def _incoming(given: GivenMessage) -> Incoming:
    lines = [(name.encode(), value.encode()) for name, value in given.headers.items()]
    message = StoredMessage(
        given.subject.encode(),
        header_block.append(b"", lines),
        given.payload.encode(),
        given.sequence,
        nanoseconds_of(given.time),
    )
    return Incoming(message, stream=given.stream or "", last_sequence=given.last_sequence)


def _unequal(expected: tuple[ExpectedMessage, ...], made: list[_Result]) -> Iterator[str]:
    for place in range(max(len(expected), len(made))):
        if place >= len(made):
            yield f"no message to '{expected[place].subject}'"
        elif place >= len(expected):
            yield f"a message to '{text_of(made[place].subject)}', expected none"
        else:
            yield from _differences(expected[place], made[place])


def _differences(expected: ExpectedMessage, made: _Result) -> Iterator[str]:
    if (subject := text_of(made.subject)) != expected.subject:
        yield f"a message to '{subject}', expected '{expected.subject}'"
    for name, value in expected.headers.items():
        found = header_block.read(made.header_block, name.encode())
        if found != (None if value is None else value.encode()):
            shown = "no header" if found is None else repr(text_of(found))
            yield f"{name}: {shown}, expected {'no header' if value is None else repr(value)}"
    if expected.payload is not None and made.payload != expected.payload.encode():
        yield f"payload {text_of(made.payload)!r}, expected {expected.payload!r}"
