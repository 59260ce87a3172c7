"""Reading case files: YAML to cases, with errors that name file, line and field."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from nats_conformance.catalogue.case import (
    Case,
    CaseFile,
    Create,
    Difference,
    Expectation,
    MessagePattern,
    Publish,
    Step,
    TransformCase,
    Update,
)
from nats_conformance.catalogue.expansion import expanded_expectation, expanded_steps, expanded_streams
from nats_conformance.catalogue.placed_yaml import PlacedYaml, PlacedYamlError, YamlPath, read_yaml
from nats_conformance.errors import CatalogueError

CATALOGUE = Path(__file__).parent
"""The folder of the catalogue that is part of the suite."""

_FILE = TypeAdapter(CaseFile)


def schema() -> dict[str, Any]:
    """Return the JSON schema of a case file."""
    made = _FILE.json_schema()
    for form in made["$defs"].values():
        form["description"] = form.get("description", "").partition("\n")[0]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "nats-conformance cases", **made}


@cache
def read_catalogue(folder: Path = CATALOGUE) -> tuple[Case, ...]:
    """Return every case of every `*.yaml` below a folder, in the order of the files.

    Raises:
        CatalogueError: a file cannot be read, or two cases have the same id.
    """
    files = sorted(folder.rglob("*.yaml"))
    if not files:
        raise CatalogueError(f"{folder}: no case file (*.yaml) is here")
    cases: dict[str, Case] = {}
    for file in files:
        for case in read_file(file):
            first = cases.setdefault(case.id, case)
            if first is not case:
                raise CatalogueError(
                    f"{case.file}:{case.line}: id '{case.id}' is taken, by {first.file}:{first.line}; "
                    "ids are never used twice"
                )
    return tuple(cases.values())


def checksum(folder: Path = CATALOGUE) -> str:
    """SHA-256 over the case files, to record which catalogue a run used."""
    total = hashlib.sha256()
    for file in sorted(folder.rglob("*.yaml")):
        total.update(file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes())
    return total.hexdigest()


def read_file(file: Path) -> tuple[Case, ...]:
    """Return the cases of one file.

    Raises:
        CatalogueError: the file is invalid; the message has file, line and field of every problem.
    """
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CatalogueError(f"{file}: {error}") from None
    return read_text(text, file)


def read_text(text: str, file: Path) -> tuple[Case, ...]:
    """Return the cases of a text, like `read_file`. `file` is the name in errors."""
    try:
        document = read_yaml(text)
    except PlacedYamlError as error:
        place = f"{file}:{error.line}" if error.line else f"{file}"
        raise CatalogueError(f"{place}: {error}") from None
    try:
        parsed = _FILE.validate_python(document.value)
    except ValidationError as error:
        raise CatalogueError("\n".join(_problems(error, document, file))) from None
    cases = []
    for at, case in enumerate(parsed.cases):
        line = document.value_line(("cases", at))
        try:
            whole = _in_full(case)
        except _WrongError as error:
            field = document.key_line(("cases", at, *error.path))
            place = ": ".join(filter(None, (case.id, ".".join(map(str, error.path)))))
            raise CatalogueError(f"{file}:{field or line}: {place}: {error}") from None
        cases.append(replace(whole, clause=case.clause or parsed.clause, file=file, line=line))
    return tuple(cases)


# --- what is wrong with a file


_RIGHT = {
    "id": "an id is adr and a number, or native, one to four words and a number, such as adr28/headers/order/1",
    "since": 'a version is such as "2.10" or "2.10.27", in quotes',
    "until": 'a version is such as "2.10" or "2.10.27", in quotes',
    "kd": "an id of a known divergence is such as kd/republish/order",
    "without": "the name of a header, such as Nats-Time-Stamp",
}
"""The correct form, by field, for errors about a string that does not match its pattern or has another type."""


def _problems(error: ValidationError, document: PlacedYaml, file: Path) -> Iterable[str]:
    found: dict[YamlPath, ErrorDetails] = {}
    for each in error.errors(include_url=False):
        found.setdefault(_path(each, document), each)
    for path, each in found.items():
        if any(other[: len(path)] == path for other in found if len(other) > len(path)):
            continue  # of several forms, the intended one is the one that was parsed furthest
        line = document.key_line(path) if each["type"] == "unexpected_keyword_argument" else document.value_line(path)
        place = f"{file}:{line}" if line else f"{file}"
        value = each["input"]
        shown = f" (it is {value!r})" if isinstance(value, str | int | float | bool) else ""
        yield f"{place}: {'.'.join(map(str, path)) or 'the file'}: {_reason(each, path)}{shown}"


def _path(error: ErrorDetails, document: PlacedYaml) -> YamlPath:
    """Return the place in the document: pydantic's location without members of unions and names of types."""
    path: YamlPath = ()
    for part in error["loc"]:
        if (*path, part) in document.value_lines:
            path = (*path, part)
    return (*path, error["loc"][-1]) if error["type"] == "missing" else path


def _reason(error: ErrorDetails, path: YamlPath) -> str:
    field = next((part for part in reversed(path) if isinstance(part, str)), "")
    match error["type"]:
        case "unexpected_keyword_argument":
            known = _keys_at(path[:-1])
            close = get_close_matches(str(path[-1]), known, n=1)
            return (
                f"unknown key; did you mean '{close[0]}'?" if close else f"unknown key; there are: {', '.join(known)}"
            )
        case "missing":
            return "this key is missing"
        case "dataclass_type" | "dict_type":
            return f"expected a mapping; its keys are: {', '.join(_keys_at(path)) or 'free'}"
        case "tuple_type":
            return "expected a list"
        case "too_short":
            return "a list without an entry"
        case "string_pattern_mismatch" | "string_type" if field in _RIGHT:
            return _RIGHT[field]
        case _:
            return error["msg"].removeprefix("Value error, ")


def _keys_at(path: YamlPath) -> tuple[str, ...]:
    """Return the valid keys of a mapping at this place of a case file; empty if it may have any."""
    whole = schema()
    forms: list[dict[str, Any]] = [whole]
    for part in path:
        forms = [
            form["items"] if isinstance(part, int) else form["properties"][part]
            for form in _resolved(forms, whole)
            if (isinstance(part, int) and "items" in form) or part in form.get("properties", {})
        ]
    return next((tuple(form["properties"]) for form in _resolved(forms, whole) if "properties" in form), ())


def _resolved(forms: Iterable[dict[str, Any]], whole: dict[str, Any]) -> list[dict[str, Any]]:
    """Return forms of a JSON schema with references and alternatives replaced by what they mean."""
    found: list[dict[str, Any]] = []
    for form in forms:
        if "$ref" in form:
            found += _resolved([whole["$defs"][form["$ref"].rpartition("/")[2]]], whole)
        elif "anyOf" in form:
            found += _resolved(form["anyOf"], whole)
        else:
            found.append(form)
    return found


# --- short forms


class _WrongError(Exception):
    """A case that fits the schema and is still wrong."""

    def __init__(self, reason: str, *path: str | int) -> None:
        super().__init__(reason)
        self.path = path


def _in_full(case: Case) -> Case:
    """Return a case as it is played, with its short forms replaced by what they stand for."""
    transform = _with_subjects(case)
    streams, steps = case.streams, _all_steps(case)
    if transform is not None:
        if streams or steps:
            raise _WrongError("transform is the short form of a case: no streams and no steps with it", "transform")
        streams, steps = expanded_streams(transform), expanded_steps(transform)
    if (case.scenario is None) == (not steps):
        at = () if case.scenario is None else ("scenario",)
        raise _WrongError("a case has steps, create, update, publish or a transform; or it names a scenario", *at)
    expectation = _with_messages(case.expectation, transform, "expect")
    whole = replace(
        case,
        create=None,
        update=None,
        publish=(),
        streams=streams,
        steps=steps,
        transform=transform,
        expectation=expectation,
        differences=tuple(
            _with_expectation(each, expectation, transform, "differences", at)
            for at, each in enumerate(case.differences)
        ),
    )
    if any(isinstance(step, Publish) for step in steps):  # an update cannot change the storage, so it has it, too
        return whole.with_configs(lambda config: {"storage": "memory", **config})
    return whole


def _all_steps(case: Case) -> tuple[Step, ...]:
    first: list[Step] = [] if case.create is None else [Create(case.create)]
    if case.update is not None:
        first.append(Update(case.update))
    return (*first, *case.steps, *map(Publish, case.publish))


def _with_subjects(case: Case) -> TransformCase | None:
    if case.transform is None or case.transform.subjects:
        return case.transform
    if case.expectation.results is None:
        raise _WrongError("the expectation has no results: name the subjects in transform.subjects", "transform")
    return replace(case.transform, subjects=tuple(case.expectation.results))


def _with_messages(expectation: Expectation, transform: TransformCase | None, *path: str | int) -> Expectation:
    """Return the expectation with messages in the place of a transform's results."""
    if expectation.results is None:
        return expectation
    if transform is None:
        raise _WrongError("results are those of a transform; this case has none", *path)
    try:
        return expanded_expectation(transform, expectation.results)
    except KeyError as error:
        raise _WrongError(f"no result is given for the subject {error}", *path, "results") from None


def _with_expectation(
    difference: Difference, expectation: Expectation, transform: TransformCase | None, *path: str | int
) -> Difference:
    """Return the difference with an expectation in the place of `without`. `expectation` is the case's own."""
    if not difference.without:
        shown = _with_messages(difference.expectation, transform, *path, "expect")
    else:
        shown = _without(expectation, difference.without.encode())
        if shown == expectation:
            raise _WrongError(f"no expected message has a header {difference.without}", *path, "without")
    return replace(difference, expectation=shown, without="")


def _without(expectation: Expectation, header: bytes) -> Expectation:
    """Return the expectation without any line of this header in its blocks."""
    line = re.compile(rb"(?<=\r\n)%b:[^\r]*\r\n" % header)

    def cut(messages: tuple[MessagePattern, ...]) -> tuple[MessagePattern, ...]:
        return tuple(
            each if each.header_block is None else replace(each, header_block=line.sub(b"", each.header_block))
            for each in messages
        )

    return replace(
        expectation,
        received=None if expectation.received is None else cut(expectation.received),
        stored=None
        if expectation.stored is None
        else {stream: cut(messages) for stream, messages in expectation.stored.items()},
    )
