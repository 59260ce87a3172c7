"""Turns pydantic's errors into problems of the configuration, with the value and a correct alternative."""

import types
import typing
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, NamedTuple, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from nats_bridge.marked_yaml import Path
from nats_bridge.rule_kinds import KINDS, rule_models
from nats_bridge.settings.base import Hint, InsteadOf
from nats_bridge.settings.models import Settings
from nats_bridge.settings.problems import Problem, closest, described, did_you_mean, shown
from nats_bridge.settings.rules import Rule


class ErrorPlace(NamedTuple):
    """A place in the configuration, found by walking the models' annotations from the top.

    Attributes:
        path: the way to it in the document.
        kind: the kind of the rule around it; None outside of rules, or if the kind is unknown.
        field: the field at this place; None for an entry of a list or mapping, or an unknown key.
        model: the model of the mapping at this place; None for others, or for a rule whose kind is unknown.
        around: the model of the mapping that it is in.
    """

    path: Path
    kind: str | None
    field: FieldInfo | None
    model: type[BaseModel] | None
    around: type[BaseModel] | None

    @property
    def hint(self) -> str:
        """Return the text to write there, after a semicolon."""
        metadata = self.field.metadata if self.field else ()
        return next((f"; {each.text}" for each in metadata if isinstance(each, Hint)), "")


def place_of(location: Path) -> ErrorPlace:
    """Return the place at a path. As in pydantic's errors, a rule's kind may follow its position."""
    annotation: Any = Settings
    path: Path = ()
    kind, field, around = None, None, None
    for part in location:
        models = _models(annotation)
        if models == [Rule]:
            kind = str(part)
            annotation = rule_models().get(kind)
            continue
        path = (*path, part)
        around, field = models[0] if models else None, None
        if around is not None:
            field = next((each for name, each in around.model_fields.items() if part in {name, each.alias}), None)
            annotation = field.annotation if field else None
        else:
            annotation = _entry_of(annotation)
    models = _models(annotation)
    return ErrorPlace(path, kind, field, models[0] if models and models != [Rule] else None, around)


def _entry_of(annotation: Any) -> Any:
    """Return the annotation of a dict's values, or of a tuple's entries."""
    for each in _members(annotation):
        if (origin := get_origin(each)) in {dict, tuple}:
            return get_args(each)[-1 if origin is dict else 0]
    return None


def _models(annotation: Any) -> list[type[BaseModel]]:
    return [each for each in _members(annotation) if isinstance(each, type) and issubclass(each, BaseModel)]


def _members(annotation: Any) -> list[Any]:
    """Return the members of a union, without `Annotated`."""
    if get_origin(annotation) is Annotated:
        return _members(get_args(annotation)[0])
    if get_origin(annotation) in {typing.Union, types.UnionType}:
        return [inner for member in get_args(annotation) for inner in _members(member)]
    return [annotation]


def keys_of(model: type[BaseModel] | None) -> tuple[str, ...]:
    """Return the keys of a mapping, as written; none if its model is unknown."""
    if model is None:
        return ()
    # The fields of a rule's kind come before those that all rules share.
    fields = sorted(model.model_fields.items(), key=lambda field: field[0] not in model.__annotations__)
    return tuple(field.alias or name for name, field in fields)


def model_problems(errors: Iterable[ErrorDetails]) -> Iterator[Problem]:
    """Yield pydantic's errors as problems, without values that could be secrets."""
    for error in errors:
        # pydantic also reports a list of wrong entries as empty.
        if error["type"] != "too_short" or not error.get("input"):
            yield _problem(error)


def _problem(error: ErrorDetails) -> Problem:
    place = place_of(error["loc"])
    path = place.path
    value = error.get("input")
    context = error.get("ctx", {})
    match error["type"]:
        case "extra_forbidden":
            return _unknown_key(place)
        case "missing":
            return Problem(path[:-1], f"'{path[-1]}' is missing{place.hint}", missing=str(path[-1]))
        case "union_tag_not_found":
            return Problem(path, f"'kind' is missing; allowed: {', '.join(KINDS)}", missing="kind")
        case "union_tag_invalid":
            kind = str(context.get("tag"))
            return Problem((*path, "kind"), f"unknown kind '{kind}'; {did_you_mean(kind, KINDS)}")
        case "literal_error" | "enum":
            choices = [choice.strip("'") for choice in context["expected"].replace(" or ", ", ").split(", ")]
            return Problem(path, f"unknown value {shown(value)}; allowed: {', '.join(choices)}")
        case "string_type":
            hint = "; put it in quotes" if isinstance(value, bool | int | float) else ""
            return Problem(path, f"must be a string, not {described(value)}{hint}")
        case "path_type":
            return Problem(path, f"must be the path of a file, not {described(value)}")
        case "string_too_short":
            return Problem(path, "must not be empty; remove it or set a value")
        case "too_short":
            return Problem(path, f"is empty{place.hint or '; give at least one'}")
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
            return Problem(path, f"must be a mapping{_keys_hint(place)}, not {described(value)}")
        case "tuple_type" | "list_type":
            return Problem(path, f"must be a list, not {described(value)}; begin each entry with '- '")
        case _:
            return Problem(path, error["msg"])


def _keys_hint(place: ErrorPlace) -> str:
    if place.path[:-1] == ("rules",):
        return f" with name, kind ({', '.join(KINDS)}) and the keys of that kind"
    if keys := keys_of(place.model):
        return f" with keys such as {', '.join(keys[:3])}"
    return f" of names to {'connections' if place.path == ('connections',) else 'strings'}"


def _unknown_key(place: ErrorPlace) -> Problem:
    path, model, key = place.path, place.around, str(place.path[-1])
    for name, field in model.model_fields.items() if model else ():
        if any(key in each.keys for each in field.metadata if isinstance(each, InsteadOf)):
            reason = f"plaintext secrets are not allowed; put the secret in a file and set {name}"
            return Problem(path, reason, at_key=True)
    if elsewhere := getattr(model, "misplaced", {}).get(key):
        where = f"in a rule of kind {place.kind}" if model in rule_models().values() else "here"
        return Problem(path, f"is not allowed {where}: {elsewhere}", at_key=True)
    known = keys_of(model)
    return Problem(path, f"unknown key; {did_you_mean(key, known)}", at_key=True, suggests=closest(key, known))
