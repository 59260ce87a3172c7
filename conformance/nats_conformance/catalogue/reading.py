"""Reading case files: YAML to cases, with errors that name file, line and field."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from nats_conformance.catalogue.case import (
    Case,
    Create,
    Delete,
    Difference,
    Drop,
    Expectation,
    ExpectedRefusal,
    Json,
    Message,
    MessagePattern,
    Publish,
    Purge,
    Settle,
    Step,
    TransformCase,
    Update,
)
from nats_conformance.catalogue.document import (
    CaseFile,
    CaseText,
    DifferenceText,
    ExpectText,
    Hex,
    MessageText,
    StepText,
    Versions,
    fields_at,
)
from nats_conformance.catalogue.expansion import expanded_expectation, expanded_steps, expanded_streams
from nats_conformance.catalogue.placed_yaml import PlacedYaml, PlacedYamlError, YamlPath, read_yaml
from nats_conformance.errors import CatalogueError
from nats_transforms.dialect import Feature, dialect
from nats_transforms.errors import UnknownDialectError
from nats_transforms.tested_versions import Version

CATALOGUE = Path(__file__).parent
"""The folder of the catalogue that is part of the suite."""


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
        parsed = CaseFile.model_validate(document.value)
    except ValidationError as error:
        raise CatalogueError("\n".join(_problems(error, document, file))) from None
    cases = []
    for at, each in enumerate(parsed.cases):
        line = document.value_line(("cases", at))
        try:
            cases.append(_case(each, parsed.clause, file, line))
        except _WrongError as error:
            field = document.key_line(("cases", at, *error.path))
            place = ": ".join(filter(None, (each.id, ".".join(map(str, error.path)))))
            raise CatalogueError(f"{file}:{field or line}: {place}: {error}") from None
    return tuple(cases)


class _WrongError(Exception):
    """A case that fits the schema and is still wrong."""

    def __init__(self, reason: str, *path: str | int) -> None:
        super().__init__(reason)
        self.path = path


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
        line = document.key_line(path) if each["type"] == "extra_forbidden" else document.value_line(path)
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
        case "extra_forbidden":
            known = fields_at(path[:-1])
            close = get_close_matches(str(path[-1]), known, n=1)
            return (
                f"unknown key; did you mean '{close[0]}'?" if close else f"unknown key; there are: {', '.join(known)}"
            )
        case "missing":
            return "this key is missing"
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"expected a mapping; its keys are: {', '.join(fields_at(path)) or 'free'}"
        case "string_pattern_mismatch" | "string_type" if field in _RIGHT:
            return _RIGHT[field]
        case _:
            return error["msg"].removeprefix("Value error, ")


def _case(text: CaseText, clause: str, file: Path, line: int) -> Case:
    transform = _transform(text)
    streams: tuple[Mapping[str, Json], ...] = tuple(text.streams)
    steps = _steps(text)
    if transform is not None:
        if text.streams or steps:
            raise _WrongError("transform is the short form of a case: no streams and no steps with it", "transform")
        streams, steps = expanded_streams(transform), expanded_steps(transform)
    if (text.scenario is None) == (not steps):
        at = () if text.scenario is None else ("scenario",)
        raise _WrongError("a case has steps, create, update, publish or a transform; or it names a scenario", *at)
    if any(isinstance(step, Publish) for step in steps):
        streams = tuple({"storage": "memory", **stream} for stream in streams)
        steps = tuple(_in_memory(step) for step in steps)
    expectation = _expectation(text.expect, transform, "expect")
    return Case(
        id=text.id,
        title=text.title,
        level=text.level,
        clause=text.clause or clause,
        quote=text.quote,
        expectation=expectation,
        streams=streams,
        steps=steps,
        listen=tuple(subject.encode() for subject in text.listen),
        transform=transform,
        scenario=text.scenario,
        range=_range(text.since, text.until),
        needs=frozenset(text.needs),
        harms=_range(text.harms.since, text.harms.until, "harms") if text.harms else None,
        differences=tuple(
            _difference(each, expectation, transform, "differences", at) for at, each in enumerate(text.differences)
        ),
        kd=tuple(text.kd),
        file=file,
        line=line,
    )


def _difference(
    text: DifferenceText, expectation: Expectation, transform: TransformCase | None, *path: str | int
) -> Difference:
    if text.expect is not None:
        shown = _expectation(text.expect, transform, *path, "expect")
    else:
        shown = _without(expectation, (text.without or "").encode())
        if shown == expectation:
            raise _WrongError(f"no expected message has a header {text.without}", *path, "without")
    return Difference(_range(text.since, text.until, *path), text.reason, shown)


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


def _in_memory(step: Step) -> Step:
    if isinstance(step, Create | Update):  # an update cannot change the storage
        return type(step)({"storage": "memory", **step.config})
    return step


def _transform(text: CaseText) -> TransformCase | None:
    given = text.transform
    if given is None:
        return None
    if given.subjects is not None:
        subjects = tuple(map(_bytes_of, given.subjects))
    elif text.expect.results is not None:
        subjects = tuple(map(_bytes_of, text.expect.results))
    else:
        raise _WrongError("the expectation has no results: name the subjects in transform.subjects", "transform")
    return TransformCase(_bytes_of(given.src), _bytes_of(given.dest), given.place, subjects)


def _steps(text: CaseText) -> tuple[Step, ...]:
    steps: list[Step] = []
    if text.create is not None:
        steps.append(Create(text.create))
    if text.update is not None:
        steps.append(Update(text.update))
    for each in text.steps:
        steps += _step(each)
    steps += [Publish(_message(each)) for each in text.publish or ()]
    return tuple(steps)


def _step(text: StepText) -> list[Step]:
    if text.create is not None:
        return [Create(text.create)]
    if text.update is not None:
        return [Update(text.update)]
    if text.publish is not None:
        messages = text.publish if isinstance(text.publish, list) else [text.publish]
        return [Publish(_message(each)) for each in messages]
    if text.delete is not None:
        return [Delete(text.delete.stream, text.delete.sequence)]
    if text.purge is not None:
        return [Purge(text.purge.stream, text.purge.model_dump(exclude={"stream"}, exclude_none=True))]
    if text.settle is not None:
        return [Settle(text.settle.stream, text.settle.messages)]
    if text.drop is not None:
        return [Drop(text.drop)]
    raise _WrongError("a step with nothing in it", "steps")


def _expectation(text: ExpectText, transform: TransformCase | None, *path: str | int) -> Expectation:
    if text.results is not None:
        if transform is None:
            raise _WrongError("results are those of a transform; this case has none", *path)
        results = {_bytes_of(key): None if value is None else _bytes_of(value) for key, value in text.results.items()}
        try:
            return expanded_expectation(transform, results)
        except KeyError as error:
            raise _WrongError(f"no result is given for the subject {error}", *path, "results") from None
    return Expectation(
        refusal=None
        if text.refused is None
        else ExpectedRefusal(text.refused.code, text.refused.err_code, text.refused.description),
        config=text.config,
        received=_expected(text.received),
        stored=None
        if text.stored is None
        else {stream: _expected(messages) or () for stream, messages in text.stored.items()},
        any_order=frozenset(text.any_order),
        acks=None if text.acks is None else tuple(text.acks),
        facts=text.facts,
    )


def _expected(texts: list[MessageText] | None) -> tuple[MessagePattern, ...] | None:
    if texts is None:
        return None
    return tuple(
        MessagePattern(
            _bytes_of(each.subject),
            None if each.headers is None and each.block is None else _block(each),
            None if each.payload is None else _bytes_of(each.payload),
            each.sequence,
        )
        for each in texts
    )


def _message(text: MessageText) -> Message:
    if text.sequence is not None:
        raise _WrongError("the sequence of a published message is the server's to give", "publish")
    return Message(_bytes_of(text.subject), _block(text), _bytes_of(text.payload or ""))


def _block(text: MessageText) -> bytes:
    if text.block is not None:
        return _bytes_of(text.block)
    if not text.headers:
        return b""
    return b"".join([b"NATS/1.0\r\n", *(_bytes_of(line) + b"\r\n" for line in text.headers), b"\r\n"])


def _bytes_of(text: str | Hex) -> bytes:
    if isinstance(text, str):
        return text.encode()
    return bytes.fromhex(text.hex)


def _range(since: Versions | None, until: Versions | None, *path: str | int) -> Feature:
    return Feature(since=_firsts(since, *path, "since") or ((2, 9, 0),), until=_firsts(until, *path, "until"))


def _firsts(texts: Versions | None, *path: str | int) -> tuple[Version, ...]:
    listed = [] if texts is None else [texts] if isinstance(texts, str) else texts
    return tuple(_version(text, *path) for text in listed)


def _version(text: str, *path: str | int) -> Version:
    try:
        dialect(text)
    except UnknownDialectError as error:
        raise _WrongError(str(error), *path) from None
    fields = tuple(int(part) for part in text.split("."))
    return (fields[0], fields[1], fields[2] if len(fields) == 3 else 0)
