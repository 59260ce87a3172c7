"""Whatever stands in a configuration, the answer is `Settings` or a `ConfigError` with one line per problem."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import ConfigError
from bridge.settings import load

GOOD: dict[str, Any] = {
    "name": "n",
    "http": {"listen": ":1"},
    "log": {"format": "json", "level": "info"},
    "dialect": "2.15",
    "connections": {"default": {"servers": ["nats://h:1"], "connect_timeout": 1, "tls": {"insecure": False}}},
    "rules": [
        {
            "name": "a",
            "kind": "republish",
            "stream": "S",
            "republish": {"src": "a.*", "dest": "b.$1", "headers_only": False},
            "from": "default",
            "to": "default",
            "start": {"sequence": 1},
            "delivery": "at_most_once",
            "durable": True,
            "dialect": "2.10",
        }
    ],
}
_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(each for key, inner in below for each in _paths(inner, (*path, key)))]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("robust") / "bridge.yaml"


def _load(file: Path, text: str) -> None:
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    problems: tuple[str, ...] = ()
    try:
        rules = load(file, {}).rules
    except ConfigError as error:
        problems = error.problems
        rules = ()
    assert bool(rules) != bool(problems)
    for line in problems:
        assert line.startswith(str(file))
        assert "\n" not in line


@given(path=st.sampled_from(_paths(GOOD)), value=_VALUES)
def test_any_value_anywhere(file: Path, path: tuple[Any, ...], value: Any) -> None:
    changed = json.loads(json.dumps(GOOD))
    if path:
        place = changed
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
    else:
        changed = value
    _load(file, json.dumps(changed))  # JSON is YAML


@given(path=st.sampled_from(_paths(GOOD)), key=st.text(max_size=8), value=_VALUES)
def test_any_key_anywhere(file: Path, path: tuple[Any, ...], key: str, value: Any) -> None:
    changed = json.loads(json.dumps(GOOD))
    place = changed
    for step in path:
        place = place[step]
    if isinstance(place, dict):
        place[key] = value
    _load(file, json.dumps(changed))


@given(text=st.text(alphabet="ab:-{}[]&*!|>'\"%@`#?, \n\t\r~<=01.\u0085\u2028\ufeff", max_size=60))
def test_any_text(file: Path, text: str) -> None:
    _load(file, text)


@given(source=st.text(max_size=12), destination=st.text(max_size=12))
def test_any_transform(file: Path, source: str, destination: str) -> None:
    changed = json.loads(json.dumps(GOOD))
    changed["rules"][0]["republish"] = {"src": source, "dest": destination}
    _load(file, json.dumps(changed))
