"""Warns of rules whose messages may choose a command to the server as their destination."""

from collections.abc import Iterator, Sequence

from nats_bridge.rules.finding import CheckFinding
from nats_bridge.settings import Settings
from nats_bridge.settings.checks.rule_checks import checks_of
from nats_transforms.reserved import reserving_subject
from nats_transforms.subject import REST, text_of
from nats_transforms.transform import Transform


def reserved_remark(transform: Transform, within: Sequence[bytes] = (), exclude: Sequence[bytes] = ()) -> str:
    """Return the warning for a rule's transform, with an example; empty if no reserved result was found.

    Args:
        transform: the transform from a message's subject to the one that the rule publishes on.
        within: patterns of the subjects that exist, if they are known.
        exclude: patterns of the subjects that the rule leaves out.
    """
    subject = reserving_subject(transform, within or (REST,), exclude)
    if subject is None:
        return ""
    result = transform.apply(subject) or b""
    return (
        f"a message on '{text_of(subject)}' would become '{text_of(result)}', a command to the server: the rule does"
        " not publish it, and counts it as reserved; a destination that begins with a word cannot be led there"
    )


def reserved_findings(settings: Settings) -> Iterator[CheckFinding]:
    """Yield the warnings from a configuration's texts alone.

    A check of `run` can be narrower, by the streams' subjects.
    """
    for rule in settings.rules:
        if remark := checks_of(rule).warning(rule, settings.offline_dialect_of(rule)):
            yield CheckFinding(rule.name, True, "reserved", remark)
