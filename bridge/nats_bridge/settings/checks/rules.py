"""Checks valid rules by kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from nats_bridge.marked_yaml import Path
from nats_bridge.settings.checks.patterns import (
    exclusion_problems,
    filter_problem,
    has_white_space,
    reserved_prefix,
    subjects_of,
)
from nats_bridge.settings.checks.transforming import candidates, dialect_problem, is_always_a_command, refusal
from nats_bridge.settings.connections import Connection
from nats_bridge.settings.problems import Problem
from nats_bridge.settings.rules import (
    AdvisoriesRule,
    Delivery,
    KvSourcesRule,
    MirrorRule,
    RepublishRule,
    Rule,
    SourcesRule,
    SubjectTransformRule,
    WatchRule,
)


def rule_problems(
    rules: Iterable[tuple[int, Rule]], default_dialect: str, connections: Mapping[str, Connection]
) -> Iterator[Problem]:
    """The problems of valid rules.

    Args:
        rules: with their positions in the configuration.
        default_dialect: the dialect of rules that name none.
        connections: the usable ones, by name.
    """
    for position, rule in rules:
        at: Path = ("rules", position)
        version = rule.dialect or default_dialect
        if isinstance(rule, RepublishRule) and rule.delivery is Delivery.AT_LEAST_ONCE and not rule.durable:
            yield Problem(
                (*at, "durable"),
                "at_least_once needs a position that outlives a crash; remove durable: false or use at_most_once",
            )
        if problem := dialect_problem(version):
            if rule.dialect:  # else it is reported once, where the configuration's dialect stands
                yield Problem((*at, "dialect"), problem)
        else:
            yield from _problems(rule, at, version, connections)


def _problems(rule: Rule, at: Path, version: str, connections: Mapping[str, Connection]) -> Iterator[Problem]:
    match rule:
        case RepublishRule():
            return _republish_problems(rule, at, version)
        case SourcesRule() | MirrorRule() | KvSourcesRule():
            from nats_bridge.settings.checks.copying import copying_problems  # asks the engine as a server would

            return copying_problems(rule, at, version)
        case SubjectTransformRule():
            from nats_bridge.settings.checks.ingress import ingress_problems  # for the same reason

            connection = connections.get(rule.source_connection, Connection())
            return ingress_problems(rule, at, version, connection.inbox_prefix)
        case AdvisoriesRule():
            return _advisories_problems(rule, at, version)
        case WatchRule():
            return _watch_problems(rule, at)
    raise AssertionError(rule.kind)


def _watch_problems(rule: WatchRule, at: Path) -> Iterator[Problem]:
    if rule.stalled_after <= rule.interval:
        yield Problem(
            (*at, "stalled_after"),
            f"{rule.stalled_after:g} s is no longer than the interval, {rule.interval:g} s; it takes several looks",
        )


def _republish_problems(rule: RepublishRule, at: Path, version: str) -> Iterator[Problem]:
    source, destination = rule.republish.src or ">", rule.republish.dest
    if reason := filter_problem(source):
        yield Problem((*at, "republish", "src"), reason)
        return
    yield from exclusion_problems(rule.exclude, [source], (*at, "exclude"), "republished")
    if reason := _destination_problem(source, destination, version):
        yield Problem((*at, "republish", "dest"), reason)
    elif is_always_a_command(source, destination, candidates(version)):
        yield Problem(
            (*at, "republish", "dest"),
            f"'{destination}' is a command to the server for every message; use a subject of your own",
        )
    elif source == destination and "*" not in source and rule.source_connection == rule.target_connection:
        yield Problem(
            (*at, "republish", "dest"),
            f"'{destination}' is where the messages come from: an endless loop; use another subject",
        )


def _destination_problem(source: str, destination: str, version: str) -> str | None:
    """Why a valid source cannot be republished to a destination, or None."""
    if not destination:
        return "is empty; nothing would be republished; give the subject to republish to"
    if reason := refusal(source, destination, candidates(version)):
        return reason
    if has_white_space(destination):
        return f"'{destination}' holds white space; no message can be published there"
    return None


_ADVISORIES: Final = "$JS.EVENT.ADVISORY.>"
_EXAMPLE: Final = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.*.*"
_ABOUT_A_MESSAGE: Final = tuple(
    f"$JS.EVENT.ADVISORY.CONSUMER.{what}.*.*" for what in ("MAX_DELIVERIES", "MSG_TERMINATED", "MSG_NAKED")
)
"""The consumer's advisories that name a message, by `stream_seq` (2.9 and newer)."""


def _advisories_problems(rule: AdvisoriesRule, at: Path, version: str) -> Iterator[Problem]:
    source, destination = rule.republish.src, rule.republish.dest
    if reason := _source_problem(source, given="src" in rule.republish.model_fields_set):
        yield Problem((*at, "republish", "src"), reason)
        return
    if rule.attach_message and not any(subjects_of(source).meet(subjects_of(about)) for about in _ABOUT_A_MESSAGE):
        yield Problem(
            (*at, "attach_message"),
            f"'{source}' selects no advisory about a message, such as CONSUMER.MAX_DELIVERIES,"
            " CONSUMER.MSG_TERMINATED or CONSUMER.MSG_NAKED; select one of them, or remove this",
        )
    if rule.copies_in and not rule.attach_message:
        yield Problem((*at, "copies_in"), "is for messages that are attached; set attach_message: true, or remove it")
    if reason := _destination_problem(source, destination, version):
        yield Problem((*at, "republish", "dest"), reason)
    elif space := reserved_prefix(destination):
        yield Problem(
            (*at, "republish", "dest"),
            f"'{destination}' lies under '{space}', which belongs to servers and replies; use another subject",
        )


def _source_problem(source: str, *, given: bool) -> str | None:
    if not given or not source:
        return f"is left out and means all subjects; select advisories, such as '{_EXAMPLE}'"
    if reason := filter_problem(source):
        return reason
    if not subjects_of(source).within(subjects_of(_ADVISORIES)):
        return f"'{source}' selects more than advisories; begin it with '{_ADVISORIES[:-1]}', such as '{_EXAMPLE}'"
    return None
