"""Finding the model behind a place of the configuration, and the keys that can stand there.

A place is given as pydantic's errors give it: behind a rule's position stands the rule's kind, which says what else
the rule may hold.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, get_args, get_origin

from pydantic import BaseModel

from nats_bridge.bridge.settings.models import Settings
from nats_bridge.bridge.settings.rules import KINDS, Rule
from nats_bridge.marked_yaml import Path

__all__ = ["allowed_keys", "document_path", "kind_of", "model_at"]


def kind_of(location: Path) -> str | None:
    """The kind of the rule that a location is in; None outside of rules, and where the kind is not known."""
    if len(location) > 2 and location[0] == "rules" and location[2] in KINDS:
        return str(location[2])
    return None


def document_path(location: Path) -> Path:
    """The place in the document: the location without the rule's kind."""
    return location if kind_of(location) is None else (*location[:2], *location[3:])


def allowed_keys(location: Path) -> tuple[str, ...]:
    """The keys that the mapping at `location` takes, as they are written."""
    model = model_at(location)
    if model is None:
        return ()
    # What a rule has of its own comes before what it shares with others.
    fields = sorted(model.model_fields.items(), key=lambda field: field[0] not in model.__annotations__)
    return tuple(field.alias or name for name, field in fields)


def model_at(location: Path) -> type[BaseModel] | None:
    """The model of the mapping at `location`, found by walking the annotations from the top."""
    annotation: Any = Settings
    for part in location:
        annotation = _step(annotation, part)
    return _model_of(annotation)


def _step(annotation: Any, part: str | int) -> Any:
    if _alternatives(annotation) == _RULES:
        return _KIND_MODELS.get(str(part))
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


_RULES: Final = _alternatives(Rule)
_KIND_MODELS: Final[Mapping[str, type[BaseModel]]] = MappingProxyType(
    {get_args(model.model_fields["kind"].annotation)[0]: model for model in _RULES}
)
