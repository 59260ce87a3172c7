"""Plans how a case is played by `native_copy`: servers copy, and read through the sidecar.

Theory of operation: each source of the case with its transforms is a rule. What copies it keeps its place in the
stream's configuration, with its start and its filter; it gets the rule's prefix as `external`, and loses its
transforms. All else stays with the server, so that everything is in one account, as natively.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from nats_bridge.conformance.catalogue.case import Case, Json, Publish, Step, copied_entries
from nats_bridge.conformance.divergences.pair import FIRST_WITH_TRANSFORMS
from nats_bridge.conformance.implementations.bridge_plan import Plan, PlannedRule
from nats_bridge.conformance.implementations.subject import CannotPlay
from nats_bridge.transforms.dialect import Dialect
from nats_bridge.transforms.source_record import HEADER, SourceRecord, external_name

_PREFIX: Final = "through.the.sidecar"
_RECORD: Final = re.compile(rb"(?<=\r\n" + HEADER + rb":)( ?)([^\r]*)(?=\r\n)")
_CYCLE: Final = "detected cycle"


def leaf_of(connection: str) -> str:
    """The name of the leaf connection into the account of an ordinary connection."""
    return f"{connection}-leaf"


@dataclass(frozen=True, slots=True)
class ServedRule(PlannedRule):
    """A rule of kind `native_copy`; `native` is what it takes from the entries of `stream` that it serves.

    Attributes:
        prefix: by which servers reach it.
    """

    prefix: str = ""

    def document(self, name: str, connections: Sequence[str], dialect: str) -> dict[str, Json]:
        """See `PlannedRule`."""
        connection = connections[self.account]
        made = {"name": name, "kind": self.kind, "stream": self.stream, "dialect": dialect, "prefix": self.prefix}
        return {**made, "from": connection, "leaf": leaf_of(connection), **self.native}

    @property
    def external(self) -> dict[str, str]:
        """Of the entries that it serves."""
        return {"api": f"{self.prefix}.API", "deliver": f"{self.prefix}.deliver"}


@dataclass(frozen=True, slots=True)
class NativeCopyPlan(Plan):
    """How a case is played by `native_copy`."""

    def rules_of(self, config: Mapping[str, Json]) -> tuple[PlannedRule, ...]:
        """The rules that serve a stream."""
        return tuple(rule for entry in copied_entries(config) if (rule := self._rule(entry)) is not None)

    def config(self, config: Mapping[str, Json]) -> dict[str, Json]:
        """See `Plan`."""
        return _with_entries(config, self._external)

    def restored(self, config: Mapping[str, Json]) -> dict[str, Json]:
        """The server's answer to `config`, with the entries as they were before."""
        return _with_entries(config, self._native)

    def step(self, step: Step) -> Step:
        """The step as the server gets it; where a client writes a record, it is one of what the sidecar serves."""
        if isinstance(step, Publish):
            block = _RECORD.sub(self._record, step.message.header_block)
            return Publish(replace(step.message, header_block=block))
        return step

    def _rule(self, entry: Json) -> ServedRule | None:
        taken = _taken(entry)
        found = (each for each in self.rules if taken == (each.stream, each.native))
        rule = next(found, None)
        return rule if isinstance(rule, ServedRule) else None

    def _external(self, entry: Mapping[str, Json]) -> Mapping[str, Json]:
        rule = self._rule(entry)
        if rule is None:
            return entry
        return {key: value for key, value in entry.items() if key not in rule.native} | {"external": rule.external}

    def _native(self, entry: Mapping[str, Json]) -> Mapping[str, Json]:
        for rule in self.rules:
            if isinstance(rule, ServedRule) and entry.get("external") == rule.external:
                transforms = rule.native.get("subject_transforms", ())
                shown = {"subject_transforms": [{"src": "", "dest": "", **each} for each in transforms]}
                return {key: value for key, value in entry.items() if key != "external"} | (shown if transforms else {})
        return entry

    def _record(self, found: re.Match[bytes]) -> bytes:
        record = SourceRecord.parse(found[2])
        for rule in self.rules:
            if record is None or not isinstance(rule, ServedRule) or record.source != rule.stream.encode():
                continue
            transforms = rule.native.get("subject_transforms", ())
            filters, destinations = (
                tuple(str(each.get(key) or ">").encode() for each in transforms) for key in ("src", "dest")
            )
            if transforms and not record.is_of(record.source, filters, destinations):
                continue
            name = external_name(record.source, rule.external["api"].encode())
            rest = found[2].split(b" ")[1:]
            if transforms and len(rest) > 1:
                rest[1:3] = [b">", b">"]
            return found[1] + b" ".join([name, *rest])
        return found[0]


def native_copy_plan(case: Case, server: Dialect) -> NativeCopyPlan:
    """How a case is played by servers of a version that copy through the sidecar.

    Raises:
        CannotPlay: it is about nothing that they copy.
    """
    if case.scenario is not None:
        raise CannotPlay("a scenario is about servers")
    if case.harms_server(server.version):
        raise CannotPlay("it is about a server that ends or never comes to rest")
    rules: list[ServedRule] = []
    for entry in case.entries:
        taken = _taken(entry)
        if taken is None or any(taken == (rule.stream, rule.native) for rule in rules):
            continue
        if "consumer" in entry:
            raise CannotPlay("a rule serves no consumer that another client has created")
        rules.append(ServedRule("native_copy", taken[0], 0, taken[1], {}, prefix=f"{_PREFIX}.{len(rules)}"))
    if not rules:
        raise CannotPlay("no server copies anything in it")
    has_transforms = any("subject_transforms" in rule.native for rule in rules)
    if has_transforms and not case.applies(max(server.version, FIRST_WITH_TRANSFORMS)):
        raise CannotPlay("servers before 2.10 ignore transforms; rules apply them (kd/transforms/before-2.10)")
    expectation = case.expected(max(server.version, FIRST_WITH_TRANSFORMS) if has_transforms else server.version)
    is_cycle = expectation.refusal is not None and expectation.refusal.description == _CYCLE
    if is_cycle and any(isinstance(step, Publish) for step in case.steps):
        raise CannotPlay("servers see no cycle through another account: it would never come to rest")
    names = [str(config.get("name")) for config in case.configs]
    return NativeCopyPlan(case, expectation, dict.fromkeys(names, 0), {}, {}, tuple(rules), 0)


def _taken(entry: Json) -> tuple[str, Mapping[str, Json]] | None:
    """The stream of an entry, and what a rule takes over from it; None for what is in another account anyway."""
    if not isinstance(entry, Mapping) or entry.get("external") or not isinstance(entry.get("name"), str):
        return None
    taken = {}
    if transforms := entry.get("subject_transforms"):
        taken["subject_transforms"] = transforms
        if wanted := entry.get("filter_subject"):
            taken["filter_subject"] = wanted  # refused, as natively
    return entry["name"], taken


def _with_entries(
    config: Mapping[str, Json], change: Callable[[Mapping[str, Json]], Mapping[str, Json]]
) -> dict[str, Json]:
    """A stream's configuration with each of its entries changed."""
    made = dict(config)
    if isinstance(made.get("mirror"), Mapping):
        made["mirror"] = change(made["mirror"])
    if isinstance(made.get("sources"), list):
        made["sources"] = [change(each) if isinstance(each, Mapping) else each for each in made["sources"]]
    return made
