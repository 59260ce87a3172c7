"""Rules of kind `native_copy`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from nats_bridge.bridge.settings.checks.copying import copying_problems
from nats_bridge.bridge.settings.checks.patterns import in_bytes, reserved_prefix
from nats_bridge.bridge.settings.problems import Problem
from nats_bridge.bridge.settings.rule_parts import Source
from nats_bridge.bridge.settings.rules import NativeCopyRule, Rule, SourcesRule
from nats_bridge.marked_yaml import Path
from nats_bridge.transforms.subject import is_valid_publish


def prefix_problems(rules: Iterable[tuple[int, Rule]]) -> Iterator[Problem]:
    """Prefixes by which a server would reach two rules at once.

    Args:
        rules: well formed each, with their positions in the configuration.
    """
    earlier: list[NativeCopyRule] = []
    for position, rule in rules:
        if not isinstance(rule, NativeCopyRule):
            continue
        for other in earlier:
            both = (f"{rule.prefix}.", f"{other.prefix}.")
            if rule.leaf_connection == other.leaf_connection and (
                both[0].startswith(both[1]) or both[1].startswith(both[0])
            ):
                yield Problem(
                    ("rules", position, "prefix"),
                    f"'{rule.prefix}' and '{other.prefix}' of rule '{other.name}' are one below the other, so both"
                    " rules would answer; give each its own",
                )
                break
        earlier.append(rule)


def native_copy_problems(rule: NativeCopyRule, at: Path, version: str) -> Iterator[Problem]:
    """The problems of a rule.

    Args:
        rule: well formed.
        at: where it stands.
        version: its dialect.
    """
    if not is_valid_publish(in_bytes(rule.prefix)):
        yield Problem(
            (*at, "prefix"),
            f"'{rule.prefix}' cannot begin subjects; write tokens between dots, without wildcards and white space,"
            " such as bridge.orders",
        )
    elif space := reserved_prefix(f"{rule.prefix}."):
        yield Problem(
            (*at, "prefix"),
            f"'{rule.prefix}' lies under '{space}', which belongs to servers and replies; use another prefix",
        )
    # What is selected and transformed is what an entry of sources can be.
    source = Source(
        name=rule.stream,
        filter_subject=rule.filter_subject,
        subject_transforms=rule.subject_transforms,
        exclude=rule.exclude,
    )
    alike = SourcesRule(name=rule.name, kind="sources", stream=f"{rule.stream[:200]}_", sources=(source,))
    entry = (*at, "sources", 0)
    for problem in copying_problems(alike, at, version):
        if problem.path[: len(entry)] == entry:
            problem = replace(problem, path=(*at, *problem.path[len(entry) :]))
        yield problem
