"""A problem of a configuration, and pydantic's errors told as problems: value, and what would be right."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Final, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from bridge.settings.document import Path
from bridge.settings.models import Settings
from bridge.settings.rules import KINDS

__all__ = ["Problem", "allowed_keys", "did_you_mean", "from_pydantic", "is_close", "one_line", "path_text"]

_MAX_SHOWN: Final = 60

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

_OTHER_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "url": "servers",
        "urls": "servers",
        "server": "servers",
        "source": "src",
        "destination": "dest",
        "subject": "src",
        "timeout": "connect_timeout",
        "insecure_skip_verify": "insecure",
        "ca_file": "ca",
        "cert_file": "cert",
        "key_file": "key",
        "tls_first": "handshake_first",
    }
)
"""Words from elsewhere for the same thing; offered when the mapping has that key."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong in a configuration.

    Attributes:
        path: the way to it from the top.
        message: the value and what would be right; no place in it.
        at_key: whether the key is wrong (its place is shown) rather than the value.
    """

    path: Path
    message: str
    at_key: bool = False


def path_text(path: Path) -> str:
    """`rules[0].republish.dest`; keys that are no plain words are quoted."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            plain = part.replace("_", "").replace("-", "").isalnum()
            text += ("." if text else "") + (part if plain else f"'{part}'")
    return text


def one_line(text: str) -> str:
    """Text of a configuration for a screen: line ends and control characters are escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`did you mean 'x'?` for a word close to a known one, else the list of what is known."""
    choices = list(known)
    lowered = {choice.lower(): choice for choice in choices}
    other = _OTHER_WORDS.get(word.lower())
    if other in choices:
        return f"did you mean '{other}'?"
    close = difflib.get_close_matches(word.lower(), lowered, n=1, cutoff=0.6)
    if not close:  # two letters swapped in a short word
        close = [low for low in lowered if sorted(low) == sorted(word.lower())]
    if close:
        return f"did you mean '{lowered[close[0]]}'?"
    return "known: " + ", ".join(choices) if choices else "nothing can stand here"


def is_close(word: str, known: Iterable[str]) -> bool:
    """Whether `word` is almost certainly a misspelling of a known one."""
    return bool(difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=0.75))


def allowed_keys(path: Path) -> tuple[str, ...]:
    """The keys that the mapping at `path` takes, as they are written."""
    model = _model_at(path)
    return tuple(field.alias or name for name, field in model.model_fields.items()) if model else ()


def from_pydantic(error: ErrorDetails) -> Problem:
    """One of pydantic's errors as a problem, without the value where it could be a secret."""
    path = _document_path(error["loc"])
    value = error.get("input")
    context = error.get("ctx", {})
    match error["type"]:
        case "extra_forbidden":
            return _unknown_key(path)
        case "missing":
            return Problem(path[:-1], f"'{path[-1]}' is missing{_HINTS.get(str(path[-1]), '')}")
        case "union_tag_not_found":
            return Problem(path, "'kind' is missing; write kind: republish")
        case "union_tag_invalid":
            return Problem((*path, "kind"), _kind_message(str(context.get("tag"))))
        case "literal_error" | "enum":
            choices = [choice.strip("'") for choice in context["expected"].replace(" or ", ", ").split(", ")]
            return Problem(path, f"unknown value {shown(value)}; takes: {', '.join(choices)}")
        case "string_type":
            return Problem(path, f"must be text, not {described(value)}{_quote_hint(value)}")
        case "path_type":
            return Problem(path, f"must be the path of a file, not {described(value)}")
        case "string_too_short":
            return Problem(path, "is empty; remove it or give a value")
        case "bool_type" | "bool_parsing":
            return Problem(path, f"must be true or false, not {described(value)}")
        case "flag":
            return Problem(path, f"must be true or false, not {described(value)}")
        case "float_type" | "float_parsing" | "int_type" | "int_parsing":
            return Problem(path, f"must be a number, not {described(value)}")
        case "greater_than":
            return Problem(path, f"must be more than {context['gt']:g}, not {shown(value)}")
        case "less_than_equal":
            return Problem(path, f"must be at most {context['le']:g}, not {shown(value)}")
        case "finite_number":
            return Problem(path, f"must be a finite number, not {shown(value)}")
        case "model_type" | "model_attributes_type" | "dict_type":
            keys = allowed_keys(path)
            of = f" with keys such as {', '.join(keys[:3])}" if keys else " of names to connections"
            return Problem(path, f"must be a mapping{of}, not {described(value)}")
        case "tuple_type" | "list_type":
            return Problem(path, f"must be a list, not {described(value)}; begin each entry with '- '")
        case _:
            return Problem(path, error["msg"])


_HINTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "name": "; give every rule a name of its own",
        "stream": "; the name of the stream to republish",
        "republish": '; such as republish: {src: "orders.>", dest: "monitor.>"}',
        "dest": "; the subject to republish to, with $1 or {{functions}}",
        "kind": "; write kind: republish",
    }
)


def _kind_message(kind: str) -> str:
    return f"unknown kind '{kind}'; {did_you_mean(kind, KINDS)}"


def _unknown_key(path: Path) -> Problem:
    parent, key = path[:-1], str(path[-1])
    if len(parent) == 2 and parent[0] == "connections" and key in _INLINE_SECRETS:
        field = _INLINE_SECRETS[key]
        return Problem(path, f"secrets are not written here; put it in a file and give its path as {field}", True)
    return Problem(path, f"unknown key; {did_you_mean(key, allowed_keys(parent))}", True)


def shown(value: Any) -> str:
    """A value in quotes, cut where it is long."""
    text = value if isinstance(value, str) else repr(value)
    cut = text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"
    return f"'{cut}'" if isinstance(value, str) else cut


def described(value: Any) -> str:
    """A value with what it is, as YAML names it."""
    match value:
        case None:
            return "nothing"
        case bool():
            return f"{str(value).lower()} (a boolean)"
        case int() | float():
            return f"{value!s} (a number)"
        case str():
            return f"{shown(value)} (a text)"
        case dict():
            return "a mapping"
        case _:
            return "a list"


def _quote_hint(value: Any) -> str:
    return "; put it in quotes" if isinstance(value, bool | int | float) else ""


def _document_path(location: tuple[int | str, ...]) -> Path:
    """Pydantic's location without the rule's kind, which it puts behind a rule's position."""
    if len(location) > 2 and location[0] == "rules" and location[2] in KINDS:
        return (*location[:2], *location[3:])
    return location


def _model_at(path: Path) -> type[BaseModel] | None:
    """The model of the mapping at `path`, found by walking the annotations from the top."""
    annotation: Any = Settings
    for part in path:
        annotation = _step(annotation, part)
    return _model_of(annotation)


def _step(annotation: Any, part: str | int) -> Any:
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
    for candidate in _alternatives(annotation):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _alternatives(annotation: Any) -> list[Any]:
    """The members of a union, without `Annotated`."""
    if get_origin(annotation) is Annotated:
        return _alternatives(get_args(annotation)[0])
    if get_origin(annotation) in {typing.Union, types.UnionType}:
        return [inner for member in get_args(annotation) for inner in _alternatives(member)]
    return [annotation]
