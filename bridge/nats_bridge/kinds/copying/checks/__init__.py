"""Finds the problems of a rule that copies without a server. The engine decides as servers would."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nats_bridge.kinds.copying.checks.decision import decision_problems
from nats_bridge.kinds.copying.checks.written_sources import (
    WrittenSource,
    identity_problems,
    key_problems,
    written_sources,
)
from nats_bridge.kinds.copying.model import OBJECT_STREAM, CopyingRule, MirrorRule
from nats_bridge.marked_yaml import Path
from nats_bridge.settings import Connection
from nats_bridge.settings.checks.patterns import (
    exclusion_problems,
    has_white_space,
    in_bytes,
    reserved_prefix,
    reserved_problem,
)
from nats_bridge.settings.checks.rule_checks import RuleChecks
from nats_bridge.settings.problems import Problem
from nats_transforms.subject import is_valid_publish


class CopyingChecks(RuleChecks[CopyingRule]):
    """The checks of rules of kind sources, mirror and kv_sources."""

    def problems(
        self, rule: CopyingRule, at: Path, version: str, connections: Mapping[str, Connection]
    ) -> Iterator[Problem]:
        """Yield the problems of a rule."""
        sources = written_sources(rule, at)
        for written in sources:
            noun = "key" if written.holds_keys else "subject"
            yield from exclusion_problems(written.exclude, written.selected, (*written.at, "exclude"), "copied", noun)
            if written.source.rename_objects:
                yield from _object_problems(rule, written)
            if written.source.acknowledge:
                yield from _acknowledging_problems(rule, written)
        if isinstance(rule, MirrorRule):
            yield from _sequence_problems(rule, at)
        # Each of these assumes that the previous ones found nothing.
        for problems in (
            identity_problems(rule, sources, version),
            (problem for written in sources for problem in key_problems(written)),
            decision_problems(rule, sources, version),
            (problem for written in sources for problem in _destination_problems(written)),
        ):
            found = list(problems)
            if found:
                yield from found
                return


def _destination_problems(written: WrittenSource) -> Iterator[Problem]:
    """Copies that no client could publish, or must not."""
    if written.holds_keys:
        return  # all of them are below the bucket's own subject
    if not written.transforms and (space := reserved_prefix(written.source.filter_subject)):
        yield Problem(
            (*written.at, "filter_subject"),
            f"copies would keep their subjects under '{space}', which belongs to servers and replies;"
            " use subject_transforms with a dest",
        )
    for number, transform in enumerate(written.transforms):
        place = (*written.at, written.transforms_key, number)
        if has_white_space(transform.dest):
            yield Problem(
                (*place, "dest"), f"'{transform.dest}' contains white space; no message can be published there"
            )
        elif space := reserved_prefix(transform.dest or transform.src):
            yield Problem(
                (*place, "dest"),
                f"copies would have subjects under '{space}', which belongs to servers and replies; use another dest",
            )


def _object_problems(rule: CopyingRule, written: WrittenSource) -> Iterator[Problem]:
    for name in (written.source.name, rule.target_stream):
        if not name.startswith(OBJECT_STREAM):
            yield Problem(
                (*written.at, "rename_objects"),
                f"'{name}' is not the stream of an object store, whose name begins with '{OBJECT_STREAM}'; remove this",
            )


def _acknowledging_problems(rule: CopyingRule, written: WrittenSource) -> Iterator[Problem]:
    source, place = written.source, (*written.at, "acknowledge")
    if source.where is not None:
        yield Problem(place, "what where leaves out would be acknowledged and stored nowhere; remove one of them")
    if source.opt_start_seq is not None or source.opt_start_time is not None:
        yield Problem(
            place,
            "what is in front of opt_start_seq or opt_start_time would stay in the stream; copying begins with"
            " the first message that is not acknowledged: remove the start, or this",
        )
    if isinstance(rule, MirrorRule) and rule.keep_sequence:
        yield Problem(
            place, "with keep_sequence the target's last sequence is the position, not what is acknowledged; remove one"
        )


def _sequence_problems(rule: MirrorRule, at: Path) -> Iterator[Problem]:
    subject = rule.filler_subject
    if subject is None:
        left_out_by = "exclude" if rule.mirror.exclude else "where" if rule.mirror.where else ""
        if rule.keep_sequence and left_out_by:
            yield Problem(
                (*at, "keep_sequence"),
                f"every message that {left_out_by} leaves out is a number without a copy; give a filler_subject for"
                " those, or remove one of them",
            )
    elif not rule.keep_sequence:
        yield Problem(
            (*at, "filler_subject"), "fills numbers only together with keep_sequence: true; add that or remove this"
        )
    elif not is_valid_publish(in_bytes(subject)):
        yield Problem(
            (*at, "filler_subject"),
            f"'{subject}' cannot be published to; write a subject of the stream without wildcards and white space",
        )
    elif reason := reserved_problem(subject, "use a subject of the stream"):
        yield Problem((*at, "filler_subject"), reason)


CHECKS = CopyingChecks()
