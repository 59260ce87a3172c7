"""Rules that copy: servers take them for the same, and they are values."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_bridge.errors import ConfigError
from nats_bridge.settings import Rule, Source, load
from nats_bridge.settings.rule_parts import KvSource, SubjectTransform
from nats_transforms.dialect import Dialect, dialect
from nats_transforms.errors import StreamConfigError
from nats_transforms.sourcing import compile_sourcing
from nats_transforms.stream_config import validate
from nats_transforms.tested_versions import NEWEST_PATCHES

SOURCES = {"name": "a", "kind": "sources", "stream": "T"}
MIRROR = {"name": "a", "kind": "mirror", "stream": "T"}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("copying") / "bridge.yaml"


def _rule(file: Path, rule: dict[str, Any]) -> Rule:
    file.write_text(json.dumps({"rules": [rule]}), encoding="utf-8")  # JSON is YAML
    return load(file, {}).rules[0]


def test_kept_keys_stay_as_they_are() -> None:
    entry = KvSource.model_validate({"bucket": "S", "key_transforms": [{"src": "*.a.*.>"}]}).entry("T")
    copied = compile_sourcing(entry.native()).destination(b"$KV.S.x.a.y.z.z")
    assert copied == b"$KV.T.x.a.y.z.z"


def test_rules_are_values(file: Path) -> None:
    rule = {**SOURCES, "sources": [{"name": "O", "external": {"api": "x"}, "exclude": ["a"]}]}
    one, other = _rule(file, rule), _rule(file, rule)
    assert one == other
    assert hash(one) == hash(other)
    assert Source.model_validate({"name": "O"}) != Source.model_validate({"name": "P"})
    assert SubjectTransform().native() == {"src": "", "dest": ""}


_TEXTS = st.text(alphabet="ab.*> ", max_size=6) | st.lists(
    st.sampled_from(
        ["a", "b", "*", ">", "$1", "$2", "{{wildcard(1)}}", "{{partition(2,1)}}", "{{left(1,1)}}", "{{x}}"]
    ),
    max_size=3,
).map(".".join)
_ENTRIES = st.fixed_dictionaries(
    {"name": st.sampled_from(["O", "P"])},
    optional={
        "filter_subject": _TEXTS,
        "subject_transforms": st.lists(st.fixed_dictionaries({}, optional={"src": _TEXTS, "dest": _TEXTS}), max_size=3),
        "external": st.fixed_dictionaries({"api": st.sampled_from(["$JS.API", "$JS.x.API", "a.*"])}),
    },
)
_VERSIONS = [f"{major}.{minor}" for major, minor in NEWEST_PATCHES if minor > 9] + [
    "2.10.0",
    "2.10.13",
    "2.12.4",
    "2.14.7",
]


@given(entries=st.lists(_ENTRIES, min_size=1, max_size=3), version=st.sampled_from(_VERSIONS), mirrors=st.booleans())
def test_servers_say_the_same(file: Path, entries: list[dict[str, Any]], version: str, mirrors: bool) -> None:
    server = dialect(version)
    native = {"mirror": entries[0]} if mirrors else {"sources": entries}
    code = _refusal({"name": "T", **native}, server)
    problems = _problems(file, {**(MIRROR if mirrors else SOURCES), **native, "dialect": version})
    if code is None:
        # What servers take although no client could publish it.
        assert all("contains white space" in problem for problem in problems)
    else:
        assert problems
        assert mirrors or len(entries) > 1 or f"({code})" in problems[0]
    if not problems:
        for entry in [entries[0]] if mirrors else entries:
            compile_sourcing(Source.model_validate(entry).native(), server, mirrors=mirrors)


def _refusal(config: dict[str, Any], server: Dialect) -> int | None:
    try:
        validate(config, server)
    except StreamConfigError as error:
        return error.err_code
    return None


def _problems(file: Path, rule: dict[str, Any]) -> tuple[str, ...]:
    try:
        _rule(file, rule)
    except ConfigError as error:
        return error.problems
    return ()
