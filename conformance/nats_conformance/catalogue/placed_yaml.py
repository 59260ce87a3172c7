"""The values of a case file and the line of each, for errors that name the place.

PyYAML composes the text. YAML 1.1 reads `no`, `010` and `12:30:00` as something else than a reader sees, so only
`true`, `false`, `null` and decimal numbers are not texts here.
"""

import re
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import yaml

YamlPath: TypeAlias = tuple[str | int, ...]
"""The way from the top of a file to a value: keys and list positions."""

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml, if PyYAML was built with it
_CONSTANTS: Final[dict[str, Any]] = {"true": True, "false": False, "null": None, "~": None, "": None}
_INTEGER: Final = re.compile(r"[-+]?[0-9]{1,40}")
_FLOAT: Final = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?")


class PlacedYamlError(Exception):
    """The text cannot be used. `line` counts from 1; 0 means the whole text."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


@dataclass(frozen=True, slots=True)
class PlacedYaml:
    """One YAML document.

    Attributes:
        value: dicts, lists, strings, numbers, booleans and None; None for an empty document.
        key_lines: the line of each key of a mapping, from 1.
        value_lines: the line on which each value begins, from 1.
    """

    value: Any = None
    key_lines: dict[YamlPath, int] = field(default_factory=dict)
    value_lines: dict[YamlPath, int] = field(default_factory=dict)

    def key_line(self, path: YamlPath) -> int:
        """Return the line of the key at `path`, or of the closest value around it; 0 if there is none."""
        return self.key_lines.get(path) or self.value_line(path)

    def value_line(self, path: YamlPath) -> int:
        """Return the line of the value at `path`, or of the closest value around it; 0 if there is none."""
        return next(
            (self.value_lines[path[:at]] for at in range(len(path), -1, -1) if path[:at] in self.value_lines), 0
        )


def read_yaml(text: str) -> PlacedYaml:
    """Read one YAML document.

    Raises:
        PlacedYamlError: it is not one valid document, a key is duplicated, or an alias refers to a value around it.
    """
    try:
        node = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise PlacedYamlError(mark.line + 1 if mark else 0, f"not valid YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise PlacedYamlError(0, f"not valid YAML: {error}") from None
    lines = PlacedYaml()
    return PlacedYaml(node and _value(node, (), lines, ()), lines.key_lines, lines.value_lines)


def _value(node: yaml.Node, path: YamlPath, lines: PlacedYaml, around: tuple[yaml.Node, ...]) -> Any:
    line = lines.value_lines[path] = node.start_mark.line + 1
    if any(node is each for each in around):
        raise PlacedYamlError(line, "an alias refers to the mapping or list that contains it")
    if isinstance(node, yaml.SequenceNode):
        return [_value(each, (*path, at), lines, (*around, node)) for at, each in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        built: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key, at = key_node.value, key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise PlacedYamlError(at, "a key must be a string; put quotes around a string with { or [")
            if key in built:
                first = lines.key_lines[(*path, key)]
                raise PlacedYamlError(at, f"key '{key}' is a duplicate, first used in line {first}; keep one")
            lines.key_lines[(*path, key)] = at
            built[key] = _value(value_node, (*path, key), lines, (*around, node))
        return built
    assert isinstance(node, yaml.ScalarNode)
    text: str = node.value
    if node.style or node.tag == "tag:yaml.org,2002:str":
        return text
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    return int(text) if _INTEGER.fullmatch(text) else float(text) if _FLOAT.fullmatch(text) else text
