"""Reads YAML as plain values that remember their line and column.

PyYAML composes the text, and this module turns it into values, for three reasons: errors need the line and column of
any key or value later; a duplicate key is an error; and YAML 1.1 reads `no`, `010`, `12:30:00` and unquoted times as
something other than the written text. Only `true`, `false`, `null`, decimal numbers and strings exist here.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Self, TypeAlias

import yaml

Path: TypeAlias = tuple[str | int, ...]
"""The way from the top of a document to a value: keys and list positions."""

_MAX_VALUES: Final = 100_000  # aliases multiply values; a hand-written configuration is far below
LINE_BREAK: Final = re.compile("\r\n|[\n\r\x85\u2028\u2029]")  # the line breaks of PyYAML
_INTEGER: Final = re.compile(r"[-+]?[0-9]+")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_TAGS: Final = frozenset(
    f"tag:yaml.org,2002:{kind}"
    for kind in ("map", "seq", "str", "int", "float", "bool", "null", "timestamp", "merge", "value")
)
_CONSTANTS: Final[Mapping[str, Any]] = MappingProxyType(
    {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
    | dict.fromkeys(("", "~", "null", "Null", "NULL"))
)


class _WrittenFloat(float):
    """A number that is shown as written: `2.10` must not become `2.1` if it is a version."""

    _text: str

    def __new__(cls, text: str) -> Self:
        number = super().__new__(cls, text)
        number._text = text
        return number

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A place in a text, both counted from 1."""

    line: int
    column: int

    @classmethod
    def behind(cls, text: str) -> Self:
        """Return the place directly after this beginning of a text."""
        lines = LINE_BREAK.split(text)
        return cls(len(lines), len(lines[-1]) + 1)


class DocumentError(Exception):
    """The text is not a YAML document that can be used.

    Attributes:
        mark: the place, if known.
        reason: the reason, and a correct alternative.
    """

    def __init__(self, mark: Mark | None, reason: str) -> None:
        super().__init__(reason)
        self.mark = mark
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Document:
    """Plain values with the place of each.

    Attributes:
        value: dicts, lists, strings, numbers, booleans and None; None for an empty document.
        keys: the place of the key, for each value in a mapping.
        values: the place where each value begins.
    """

    value: Any
    keys: Mapping[Path, Mark]
    values: Mapping[Path, Mark]

    def key_mark(self, path: Path) -> Mark | None:
        """Return the place of the key at `path`; if it is missing, that of the closest value around it."""
        return self.keys.get(path) or self.value_mark(path)

    def value_mark(self, path: Path) -> Mark | None:
        """Return the place of the value at `path`; if it is missing, that of the closest value around it."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.values:
                return self.values[path[:length]]
        return None


def compose(text: str) -> Document:
    """Read one YAML document.

    Raises:
        DocumentError: it is not one document of valid YAML, or a mapping has the same key twice.
    """
    try:
        node = _composed(text)
    except yaml.MarkedYAMLError as error:
        raise _explained(error, text) from None
    except yaml.reader.ReaderError as error:
        raise DocumentError(
            Mark.behind(text[: error.position]), f"character U+{ord(text[error.position]):04X} is not allowed in YAML"
        ) from None
    if node is None:
        return Document(None, {}, {})
    builder = _Builder()
    value = builder.build(node, (), ())
    return Document(value, builder.keys, builder.values)


def _composed(text: str) -> yaml.Node | None:
    """The tree of nodes. libyaml is ten times as fast, PyYAML's own errors are the ones that can be explained."""
    fast = getattr(yaml, "CSafeLoader", None)
    if fast is not None:
        with contextlib.suppress(yaml.YAMLError):
            return yaml.compose(text, Loader=fast)
    return yaml.compose(text, Loader=yaml.SafeLoader)


class _Builder:
    """Turns nodes into values, and records their places."""

    def __init__(self) -> None:
        self.keys: dict[Path, Mark] = {}
        self.values: dict[Path, Mark] = {}

    def build(self, node: yaml.Node, path: Path, inside: tuple[int, ...]) -> Any:
        mark = _mark(node.start_mark)
        if id(node) in inside:
            raise DocumentError(mark, "an alias refers to the mapping or list that contains it")
        self.values[path] = mark
        if len(self.values) > _MAX_VALUES:
            raise DocumentError(mark, f"more than {_MAX_VALUES} values; aliases multiply them")
        if node.tag not in _TAGS:
            raise DocumentError(mark, f"tag '{node.tag}' is not supported; remove it")
        within = (*inside, id(node))
        match node:
            case yaml.MappingNode():
                built: dict[str, Any] = {}
                for key, key_node, value_node in self._entries(node, within):
                    self.keys[(*path, key)] = _mark(key_node.start_mark)
                    built[key] = self.build(value_node, (*path, key), within)
                return built
            case yaml.SequenceNode():
                return [self.build(item, (*path, at), within) for at, item in enumerate(node.value)]
            case yaml.ScalarNode():
                return _scalar(node)
            case _:
                raise DocumentError(mark, "this is not allowed here")

    def _entries(self, node: yaml.MappingNode, inside: tuple[int, ...]) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
        """Yield the entries of a mapping.

        Those merged by `<<` come last, and only if the mapping does not have them.
        """
        seen: dict[str, Mark] = {}
        merged: list[yaml.Node] = []
        for key_node, value_node in node.value:
            mark = _mark(key_node.start_mark)
            if not isinstance(key_node, yaml.ScalarNode):
                raise DocumentError(mark, "a key must be a string; put quotes around a string with { or [")
            key = _text(key_node)
            if key_node.tag == "tag:yaml.org,2002:merge":
                merged += value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]
                continue
            if key in seen:
                raise DocumentError(mark, f"key '{key}' is a duplicate, first used in line {seen[key].line}; keep one")
            seen[key] = mark
            yield key, key_node, value_node
        for source in merged:
            if not isinstance(source, yaml.MappingNode) or id(source) in inside:
                raise DocumentError(_mark(source.start_mark), "'<<' needs a mapping or a list of mappings")
            for key, key_node, value_node in self._entries(source, (*inside, id(source))):
                if key not in seen:
                    seen[key] = _mark(key_node.start_mark)
                    yield key, key_node, value_node


def _scalar(node: yaml.ScalarNode) -> Any:
    text = _text(node)
    if node.style or node.tag == "tag:yaml.org,2002:str":  # quoted, block, or !!str
        return text
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        return int(text) if len(text) < 40 else text
    if _FLOAT.fullmatch(text):
        return _WrittenFloat(text)
    return text


def _text(node: yaml.ScalarNode) -> str:
    """Return the text of a scalar, with surrogate pairs as in JSON (`\\ud83d\\ude00`) joined into characters."""
    text: str = node.value
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise DocumentError(
            _mark(node.start_mark), "the string contains half a surrogate pair (\\ud800 to \\udfff)"
        ) from None


def _mark(mark: Any) -> Mark:
    return Mark(mark.line + 1, mark.column + 1)


def _explained(error: yaml.MarkedYAMLError, text: str) -> DocumentError:
    """Return PyYAML's error in one line, with a remedy for usual causes."""
    place = error.problem_mark or error.context_mark
    mark = _mark(place) if place else None
    problem = error.problem or "not valid YAML"
    line = LINE_BREAK.split(text)[place.line] if place else ""
    here = line[place.column : place.column + 1] if place else ""
    indent = line[: len(line) - len(line.lstrip())]
    if "\t" in indent or here == "\t":
        return DocumentError(mark, "a tab cannot indent in YAML; use spaces")
    if "another document" in problem or "single document" in (error.context or ""):
        return DocumentError(mark, "a second document begins here; keep one per file (remove the '---')")
    if "mapping values are not allowed" in problem:
        return DocumentError(mark, "a ':' where no key is allowed; check the indentation, or put the string in quotes")
    if "cannot start any token" in problem:
        return DocumentError(mark, f"a string cannot begin with {here or 'this'}; put it in quotes")
    if "quoted scalar" in (error.context or "") and error.context_mark:
        return DocumentError(_mark(error.context_mark), "this quote is not closed")
    if "undefined alias" in problem:
        return DocumentError(mark, f'{problem}; a string that begins with * needs quotes, such as "*.orders"')
    if "expected alphabetic or numeric character" in problem:
        return DocumentError(mark, 'a string that begins with * or & needs quotes, such as ">" or "*.orders"')
    if "duplicate anchor" in problem:
        return DocumentError(mark, problem)
    if problem.startswith("expected <block end>"):
        return DocumentError(mark, "the indentation does not match the lines above, or a quote above is not closed")
    if problem.startswith("expected ',' or"):
        what = "'}'" if "mapping" in (error.context or "") else "']'"
        return DocumentError(mark, f"a ',' or {what} is missing before this; a string with {{ }} [ ] , : needs quotes")
    if "could not find expected ':'" in problem:
        return DocumentError(mark, "a key without ':' before this; write key: value")
    context = f" {error.context}" if error.context else ""
    return DocumentError(mark, f"not valid YAML: {problem}{context}")
