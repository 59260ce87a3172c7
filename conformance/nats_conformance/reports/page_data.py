"""The HTML page's data of a judged run, as compact plain values.

Theory of operation. Most cells of a row are equal, so expectations, observations and their parts (messages, decisions,
reasons) are stored once in pools and referenced by number. Subjects, header blocks and payloads are strings with one
character for each byte (Latin-1), from which the page shows every byte. Stored times are left out, because they would
make every observation unique, and mismatches show wrong ones.

Keys are the names of attributes.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from nats_conformance.catalogue.case import Case
from nats_conformance.identity import Identity
from nats_conformance.observation import Observation
from nats_conformance.reports.judgement import Cell, Judged
from nats_conformance.reports.links import clause_link, document_of
from nats_conformance.reports.reproduction import reproduction
from nats_conformance.reports.signs import NO_RECORD, SIGNS
from nats_conformance.statements import STATEMENTS

FEATURES: Final = Path(__file__).parents[1] / "features.yaml"
"""The rows of the page's first matrix: groups of features, each with its cases."""

_ID = "\0"
"""Stands for the case's id in the commands of the subjects of test."""


class _Pool:
    """Values by number, each once."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[str, int] = {}

    def number(self, value: Any) -> int:
        key = json.dumps(value, sort_keys=True, separators=(",", ":"))
        number = self._numbers.setdefault(key, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number


def page_data(judged: Judged, divergences: str = "", site: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return all data of the page.

    Args:
        judged: the run.
        divergences: the address of the page on known divergences.
        site: of a page in a site: `home`, the address of its first page. Of the first page itself: `runs`, `version`
            and `license`.
    """
    expectations, observations, parts, texts = _Pool(), _Pool(), _Pool(), _Pool()
    numbers = {outcome: number for number, outcome in enumerate(SIGNS)}

    def cell(found: Cell | None) -> Any:
        """Return a cell as a list, without empty members at the end.

        Outcome, expectation, observation, reason, milliseconds, mismatches, divergences.
        """
        if found is None:
            return 0
        verdict = found.verdict
        made = [
            numbers[verdict.outcome],
            -1 if found.expectation is None else expectations.number(_plain(found.expectation)),
            -1 if found.observation is None else observations.number(_observation(found.observation, parts)),
            texts.number(verdict.reason) if verdict.reason else -1,
            -1 if found.seconds is None else round(found.seconds * 1000, 1),
            texts.number([[each.where, each.expected, each.observed] for each in verdict.mismatches]),
            list(verdict.divergences),
        ]
        while made[-1] in ([], -1):
            made.pop()
        return made

    start = judged.history.start
    texts.number([])
    cells = [[cell(judged.cell(case, label)) for label in judged.subjects] for case in judged.cases]
    return {
        "run": {name: start[name] for name in ("suite", "time", "catalogue") if name in start},
        "choice": judged.choice,
        "passed": judged.passed,
        "failures": len(judged.failures),
        "objections": judged.objections(),
        "divergences": divergences,
        "site": site or {},
        "features": yaml.safe_load(FEATURES.read_text("utf-8")),
        "statements": yaml.safe_load(STATEMENTS.read_text("utf-8")),
        "outcomes": [
            {
                "name": outcome.value,
                "word": sign.word,
                "sign": sign.sign,
                "meaning": sign.meaning,
                "key": outcome.name.lower(),
            }
            for outcome, sign in SIGNS.items()
        ],
        "noRecord": NO_RECORD,
        "id": _ID,
        "subjects": [_subject(label, identity, start) for label, identity in judged.subjects.items()],
        "clauses": [
            {"name": clause, "document": document_of(clause), "link": clause_link(clause)} for clause in judged.clauses
        ],
        "cases": [_case(case, list(judged.clauses).index(case.clause), expectations) for case in judged.cases],
        "cells": cells,
        "expectations": expectations.values,
        "observations": observations.values,
        "parts": parts.values,
        "texts": texts.values,
    }


def _subject(label: str, identity: Identity, start: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "label": label,
        "kind": identity.name or identity.kind,
        "version": identity.dialect,
        "server": identity.server,
        # The id needs no quotes in a shell, but the placeholder does.
        "command": reproduction("CASE", identity, start.get("server")).replace("CASE", _ID),
    }


def _case(case: Case, clause: int, expectations: _Pool) -> dict[str, Any]:
    found = {
        "id": case.id,
        "title": case.title,
        "level": case.level.value,
        "clause": clause,
        "usual": expectations.number(_plain(case.expectation)),
        "quote": case.quote,
        "streams": _plain(case.streams),
        "steps": [[type(step).__name__.lower(), _plain(step)] for step in case.steps],
        "listen": _plain(case.listen) if case.steps else [],
        "scenario": case.scenario,
        "kd": list(case.kd),
        "file": f"{case.file.name}:{case.line}" if case.file else "",
    }
    return {name: value for name, value in found.items() if value not in ("", None, [])}


def _observation(observation: Observation, parts: _Pool) -> dict[str, Any]:
    """Return an observation with numbers in `parts` for messages, answers and members of configurations."""

    def numbers(values: Iterable[object]) -> list[int]:
        return [parts.number(_plain(each)) for each in values]

    decisions = (
        {"config": numbers((each.config or {}).items())} if each.refusal is None else {"refusal": each.refusal}
        for each in observation.decisions
    )
    found = {
        "decisions": numbers(decisions),
        "received": numbers(observation.received),
        "stored": {
            stream: [[*numbers([each.message]), each.sequence] for each in messages]
            for stream, messages in observation.stored.items()
        },
        "acks": numbers(observation.acks),
        "facts": _plain(observation.facts),
    }
    return {name: value for name, value in found.items() if value}


def _plain(value: object) -> Any:
    """Return a value of the data model for JSON. Attributes that are None are left out: they are not compared."""
    match value:
        case bytes():
            return value.decode("latin-1")
        case Mapping():
            return {name: _plain(each) for name, each in value.items()}
        case frozenset():
            return sorted(value)
        case list() | tuple():
            return [_plain(each) for each in value]
    if not is_dataclass(value):
        return value
    named = {field.name: getattr(value, field.name) for field in fields(value)}
    return {name: _plain(each) for name, each in named.items() if each is not None}
