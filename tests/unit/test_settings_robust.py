"""Whatever stands in a configuration, the answer is `Settings` or a `ConfigError` with one line per problem."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from nats_bridge.errors import ConfigError
from nats_bridge.settings import load

GOOD: dict[str, Any] = yaml.safe_load("""
name: n
http: {listen: ":1"}
log: {format: json, level: info}
dialect: "2.15"
connections: {default: {servers: ["nats://h:1"], connect_timeout: 1, tls: {insecure: false}}}
rules:
  - {name: a, kind: republish, stream: S, republish: {src: "a.*", dest: "b.$1", headers_only: false}, from: default,
     to: default, start: {sequence: 1}, delivery: at_most_once, durable: true, dialect: "2.10"}
  - name: b
    kind: sources
    stream: T
    sources:
      - {name: S, subject_transforms: [{src: "a.*", dest: "b.$1"}, {src: "c.>", dest: ""}],
         external: {api: "$JS.x.API", deliver: d}, exclude: [a.b], from: default}
      - {name: R, filter_subject: a, opt_start_seq: 1, opt_start_time: "2026-01-01T00:00:00Z"}
    on_rejected: {skip: x}
    on_recreated: stop
    dialect: native
  - {name: c, kind: mirror, stream: T, mirror: {name: S, filter_subject: "a.>"}, keep_sequence: true, filler_subject: f}
  - {name: d, kind: kv_sources, bucket: T,
     sources: [{bucket: S, key_transforms: [{src: "a.*", dest: "b.$1"}], exclude: [a.b]}]}
  - {name: e, kind: subject_transform, stream: T, subject_transform: {src: "a.*", dest: "b.$1"}}
  - {name: f, kind: advisories, republish: {src: "$JS.EVENT.ADVISORY.CONSUMER.>", dest: "adv.>"}, attach_message: true}
""")
_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(each for key, inner in below for each in _paths(inner, (*path, key)))]


@pytest.fixture(scope="module", autouse=True)
def without_certificates() -> Iterator[None]:
    """The machine's certificates, which a connection with `tls` loads each time, are most of what a load costs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", os.devnull)
        patch.setenv("SSL_CERT_DIR", os.devnull)
        yield


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


_TRANSFORMS = (
    (0, "republish"),
    (1, "sources", 0, "subject_transforms", 0),
    (2, "mirror", "subject_transforms", 0),
    (3, "sources", 0, "key_transforms", 0),
    (4, "subject_transform"),
    (5, "republish"),
)
_SUBJECTS = st.text(max_size=12) | st.text(alphabet="ab.*> $12{}(,)", max_size=20)


@given(place=st.sampled_from(_TRANSFORMS), source=_SUBJECTS, destination=_SUBJECTS)
def test_any_transform(file: Path, place: tuple[Any, ...], source: str, destination: str) -> None:
    changed = json.loads(json.dumps(GOOD))
    changed["rules"][2]["mirror"] = {"name": "S", "subject_transforms": [None]}
    inner = changed["rules"]
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = {"src": source, "dest": destination}
    if place[0] != 2:
        del changed["rules"][2]
    _load(file, json.dumps(changed))


def test_what_is_changed_is_good_itself(file: Path) -> None:
    file.write_text(json.dumps(GOOD), encoding="utf-8")
    assert len(load(file, {}).rules) == 6
