"""Turns pydantic's errors into problems of the configuration: the value, and what would be right."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from nats_bridge.marked_yaml import Path
from nats_bridge.settings.models import Settings
from nats_bridge.settings.problems import Problem, described, did_you_mean, shown
from nats_bridge.settings.rules import KINDS

# A place is given as pydantic's errors give it: behind a rule's position stands the rule's kind, which says what else
# the rule may hold.


def _kind_of(location: Path) -> str | None:
    """The kind of the rule that a location is in; None outside of rules, and where the kind is not known."""
    if len(location) > 2 and location[0] == "rules" and location[2] in KINDS:
        return str(location[2])
    return None


def _document_path(location: Path) -> Path:
    """The place in the document: the location without the rule's kind."""
    return location if _kind_of(location) is None else (*location[:2], *location[3:])


def allowed_keys(location: Path) -> tuple[str, ...]:
    """The keys that the mapping at `location` takes, as they are written."""
    model = _model_at(location)
    if model is None:
        return ()
    # What a rule has of its own comes before what it shares with others.
    fields = sorted(model.model_fields.items(), key=lambda field: field[0] not in model.__annotations__)
    return tuple(field.alias or name for name, field in fields)


def _model_at(location: Path) -> type[BaseModel] | None:
    """The model of the mapping at `location`, found by walking the annotations from the top."""
    annotation: Any = Settings
    for part in location:
        annotation = _step(annotation, part)
    return _model_of(annotation)


def _step(annotation: Any, part: str | int) -> Any:
    if _alternatives(annotation) == _RULES:
        return KINDS.get(str(part))
    for candidate in _alternatives(annotation):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            for name, field in candidate.model_fields.items():
                if part in {name, field.alias}:
                    return field.annotation
        elif get_origin(candidate) is dict:
            return get_args(candidate)[1]
        elif get_origin(candidate) is tuple:
            return get_args(candidate)[0]
    return None


def _model_of(annotation: Any) -> type[BaseModel] | None:
    models = [one for one in _alternatives(annotation) if isinstance(one, type) and issubclass(one, BaseModel)]
    # Of several, as for a rule whose kind is not known, none is the one.
    return models[0] if len(models) == 1 else None


def _alternatives(annotation: Any) -> list[Any]:
    """The members of a union, without `Annotated`."""
    if get_origin(annotation) is Annotated:
        return _alternatives(get_args(annotation)[0])
    if get_origin(annotation) in {typing.Union, types.UnionType}:
        return [inner for member in get_args(annotation) for inner in _alternatives(member)]
    return [annotation]


_RULES: Final = list(KINDS.values())


_INLINE_SECRETS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "password": "password_file",
        "pass": "password_file",
        "token": "token_file",
        "nkey": "nkey_seed_file",
        "nkey_seed": "nkey_seed_file",
        "seed": "nkey_seed_file",
    }
)
"""Keys people write a secret into, and the field that takes a file's path instead."""

_HINTS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "": {
            "name": "give every rule a name of its own",
            "republish": 'such as republish: {src: "orders.>", dest: "monitor.>"}',
            "dest": "the subject to republish to, with $1 or {{functions}}",
        },
        "RepublishRule": {"stream": "the name of the stream to republish"},
        "SourcesRule": {
            "stream": "the name of the stream that receives",
            "sources": "such as sources: [{name: ORDERS}]",
        },
        "MirrorRule": {
            "stream": "the name of the stream that receives",
            "mirror": "such as mirror: {name: ORDERS}",
        },
        "KvSourcesRule": {
            "bucket": "the name of the bucket that receives",
            "sources": "such as sources: [{bucket: SETTINGS}]",
        },
        "SubjectTransformRule": {
            "stream": "the name of the stream that stores the transformed messages",
            "subject_transform": 'such as subject_transform: {src: "in.*", dest: "stored.{{partition(8,1)}}.$1"}',
        },
        "AdvisoriesRule": {
            "republish": 'such as republish: {src: "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.*.*", dest: "dlq.$1.$2"}'
        },
        "Source": {"name": "the name of the stream that is copied from"},
        "KvSource": {"bucket": "the name of the bucket that is copied from"},
        "External": {"api": "the prefix of the JetStream API there, such as $JS.west.API"},
    }
)
"""What to write for a field that is missing, by the model's name; under the empty name for every model."""

_ONCE: Final = "copies are stored exactly once, and the stream that receives holds the position; remove it"
_ENTRY_START: Final = "each entry says where it begins, with opt_start_seq or opt_start_time"

_ELSEWHERE: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "Settings": {"stream": "write it into a rule"},
        "RuleTest": {"stream": "the stream is that of 'rule'; remove it"},
        "SourcesRule": {
            "from": "each entry of sources has its own from; 'to' is the connection of the stream that receives",
            "start": _ENTRY_START,
            "exclude": "each entry of sources has its own exclude",
            "delivery": _ONCE,
            "durable": _ONCE,
        },
        "MirrorRule": {
            "from": "write it into mirror; 'to' is the connection of the stream that receives",
            "start": "mirror says where it begins, with opt_start_seq or opt_start_time",
            "exclude": "write it into mirror",
            "delivery": _ONCE,
            "durable": _ONCE,
        },
        "KvSourcesRule": {
            "from": "each entry of sources has its own from; 'to' is the connection of the bucket that receives",
            "start": "a bucket is always copied from its beginning; remove it",
            "exclude": "each entry of sources has its own exclude",
            "delivery": _ONCE,
            "durable": _ONCE,
        },
        "SubjectTransformRule": {
            "to": "publishers and stream are on one connection; 'from' names it",
            "start": "messages are transformed as they are published; remove it",
        },
        "AdvisoriesRule": {
            "stream": "the stream is part of the advisories' subjects, put it into republish.src; captured_by"
            " names a stream that stores them",
            "start": "advisories are not stored, a rule receives new ones, or all of a stream (captured_by); remove it",
        },
        "WatchRule": {
            "from": "'connection' names the one whose account is watched",
            "to": "'connection' names the one whose account is watched",
            "stream": "write streams: [NAME]",
            "dialect": "it transforms nothing; remove it",
        },
        "Source": {
            "filter_subjects": 'write subject_transforms: [{src: "a.>"}, {src: "b.>"}]; without dest subjects stay',
            "consumer": "only a server reads by it; the rule makes its own: remove it, select here",
            "start": _ENTRY_START,
        },
        "KvSource": {
            "filter_subject": "keys are selected with key_transforms, without dest they stay as they are",
            "filter_subjects": "keys are selected with key_transforms, without dest they stay as they are",
            "opt_start_seq": "a bucket is always copied from its beginning; remove it",
            "opt_start_time": "a bucket is always copied from its beginning; remove it",
        },
    }
)
"""What to say of a key that is right elsewhere, by the name of the model it stands in."""


def model_problems(errors: Iterable[ErrorDetails]) -> Iterator[Problem]:
    """Pydantic's errors as problems, without the value where it could be a secret."""
    for error in errors:
        # A list whose entries are wrong counts as empty, too.
        if error["type"] != "too_short" or not error.get("input"):
            yield _problem(error)


def _problem(error: ErrorDetails) -> Problem:
    location: Path = error["loc"]
    path = _document_path(location)
    value = error.get("input")
    context = error.get("ctx", {})
    match error["type"]:
        case "extra_forbidden":
            return _unknown_key(location)
        case "missing":
            return Problem(path[:-1], f"'{path[-1]}' is missing{_hint(location)}")
        case "union_tag_not_found":
            return Problem(path, f"'kind' is missing; it is one of {', '.join(KINDS)}")
        case "union_tag_invalid":
            kind = str(context.get("tag"))
            return Problem((*path, "kind"), f"unknown kind '{kind}'; {did_you_mean(kind, KINDS)}")
        case "literal_error" | "enum":
            choices = [choice.strip("'") for choice in context["expected"].replace(" or ", ", ").split(", ")]
            return Problem(path, f"unknown value {shown(value)}; takes: {', '.join(choices)}")
        case "string_type":
            return Problem(path, f"must be text, not {described(value)}{_quote_hint(value)}")
        case "path_type":
            return Problem(path, f"must be the path of a file, not {described(value)}")
        case "string_too_short":
            return Problem(path, "is empty; remove it or give a value")
        case "too_short":
            return Problem(path, f"is empty{_hint(location) or '; give at least one'}")
        case "bool_type" | "bool_parsing" | "flag":
            return Problem(path, f"must be true or false, not {described(value)}")
        case "float_type" | "float_parsing" | "int_type" | "int_parsing":
            return Problem(path, f"must be a number, not {described(value)}")
        case "greater_than":
            return Problem(path, f"must be more than {context['gt']:g}, not {shown(value)}")
        case "greater_than_equal":
            return Problem(path, f"must be at least {context['ge']:g}, not {shown(value)}")
        case "less_than_equal":
            return Problem(path, f"must be at most {context['le']:g}, not {shown(value)}")
        case "finite_number":
            return Problem(path, f"must be a finite number, not {shown(value)}")
        case "model_type" | "model_attributes_type" | "dict_type":
            return Problem(path, f"must be a mapping{_keys_hint(location)}, not {described(value)}")
        case "tuple_type" | "list_type":
            return Problem(path, f"must be a list, not {described(value)}; begin each entry with '- '")
        case _:
            return Problem(path, error["msg"])


def _hint(location: Path) -> str:
    model = _model_at(location[:-1])
    key = str(location[-1])
    hint = _HINTS.get(model.__name__ if model else "", {}).get(key) or _HINTS[""].get(key)
    return f"; {hint}" if hint else ""


def _keys_hint(location: Path) -> str:
    if len(location) == 2 and location[0] == "rules":
        return f" with name, kind ({', '.join(KINDS)}) and what belongs to that kind"
    keys = allowed_keys(location)
    return f" with keys such as {', '.join(keys[:3])}" if keys else " of names to connections"


def _unknown_key(location: Path) -> Problem:
    path, parent, key = _document_path(location), location[:-1], str(location[-1])
    if len(parent) == 2 and parent[0] == "connections" and key in _INLINE_SECRETS:
        field = _INLINE_SECRETS[key]
        return Problem(path, f"secrets are not written here; put it in a file and give its path as {field}", True)
    model = _model_at(parent)
    name = model.__name__ if model else ""
    if elsewhere := _ELSEWHERE.get(name, {}).get(key):
        of = f" in a rule of kind {_kind_of(location)}" if len(parent) == 3 else ""
        return Problem(path, f"cannot stand here{of}: {elsewhere}", True)
    return Problem(path, f"unknown key; {did_you_mean(key, allowed_keys(parent))}", True)


def _quote_hint(value: Any) -> str:
    return "; put it in quotes" if isinstance(value, bool | int | float) else ""
