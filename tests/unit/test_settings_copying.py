"""Good rules of the kinds that copy: what they become, and that servers take them for the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_bridge.errors import ConfigError
from nats_bridge.settings import (
    KvSource,
    KvSourcesRule,
    MirrorRule,
    OnRejected,
    Rule,
    Source,
    SourcesRule,
    SubjectTransform,
    load,
)
from nats_transforms.dialect import Dialect, dialect
from nats_transforms.errors import StreamConfigError
from nats_transforms.sourcing import compile_sourcing
from nats_transforms.stream_config import validate
from nats_transforms.tested_versions import NEWEST_PATCHES

SOURCES = {"name": "a", "kind": "sources", "stream": "T"}
MIRROR = {"name": "a", "kind": "mirror", "stream": "T"}
KV = {"name": "a", "kind": "kv_sources", "bucket": "T"}
WEST = {"connections": {"default": {"servers": ["h"]}, "west": {"servers": ["i"]}}}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("copying") / "bridge.yaml"


def _rule(file: Path, rule: dict[str, Any], **more: Any) -> Rule:
    file.write_text(json.dumps({"rules": [rule], **more}), encoding="utf-8")  # JSON is YAML
    return load(file, {}).rules[0]


def test_the_smallest_sources_take_all_defaults(file: Path) -> None:
    rule = _rule(file, {**SOURCES, "sources": [{"name": "O"}]})
    assert isinstance(rule, SourcesRule)
    assert (rule.target_stream, rule.target_connection) == ("T", "default")
    assert (rule.on_rejected, rule.on_recreated) == (OnRejected(None), "stop")
    assert rule.dialect is None
    (entry,) = rule.entries
    assert entry.native() == {"name": "O"}
    assert (entry.exclude, entry.connection) == ((), "default")
    assert rule.connections == ("default", "default")


def test_everything_can_be_said_of_sources(file: Path) -> None:
    rule = _rule(
        file,
        {
            **SOURCES,
            "to": "west",
            "on_rejected": {"skip": "dead.letters"},
            "on_recreated": "restart",
            "dialect": "2.10.27",
            "sources": [
                {"name": "O", "filter_subject": "o.>", "opt_start_seq": 7, "exclude": ["o.x", "o.*.y"]},
                {
                    "name": "P",
                    "subject_transforms": [{"src": "p.*", "dest": "q.$1"}, {"src": "r.>"}, {"dest": ""}],
                    "opt_start_time": "2026-01-01T00:00:00Z",
                    "external": {"api": "$JS.west.API", "deliver": "deliver.west"},
                    "from": "west",
                },
            ],
        },
        **WEST,
    )
    assert isinstance(rule, SourcesRule)
    assert rule.on_rejected == OnRejected("dead.letters")
    assert rule.on_recreated == "restart"
    assert rule.connections == ("west", "default", "west")
    one, two = rule.entries
    assert one.native() == {"name": "O", "opt_start_seq": 7, "filter_subject": "o.>"}
    assert one.exclude == ("o.x", "o.*.y")
    assert two.native() == {
        "name": "P",
        "opt_start_time": "2026-01-01T00:00:00Z",
        "subject_transforms": [
            {"src": "p.*", "dest": "q.$1"},
            {"src": "r.>", "dest": ""},
            {"src": "", "dest": ""},
        ],
        "external": {"api": "$JS.west.API", "deliver": "deliver.west"},
    }
    validate({"name": "T", "sources": [one.native(), two.native()]}, dialect("2.10.27"))


def test_a_native_entry_can_be_pasted(file: Path) -> None:
    # What a server sends back for an entry, `written` as it is.
    native = {"name": "O", "opt_start_seq": 4, "subject_transforms": [{"src": "a.*", "dest": "b.$1"}]}
    rule = _rule(file, {**SOURCES, "sources": [native]})
    assert isinstance(rule, SourcesRule)
    assert rule.sources[0].native() == native


def test_a_sequence_and_a_time_to_start_at_may_stand_together(file: Path) -> None:
    entry = {"name": "O", "opt_start_seq": 4, "opt_start_time": "2026-01-01T00:00:00Z"}
    rule = _rule(file, {**SOURCES, "sources": [entry]})
    assert isinstance(rule, SourcesRule)
    assert rule.sources[0].native() == entry


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ({**SOURCES, "sources": [{"name": "O", "acknowledge": True, "opt_start_seq": 4}]}, "remove the start, or this"),
        ({**MIRROR, "mirror": {"name": "O", "acknowledge": True}, "keep_sequence": True}, "is the position"),
    ],
)
def test_what_is_acknowledged_has_no_other_position(rule: dict[str, Any], reason: str, file: Path) -> None:
    with pytest.raises(ConfigError, match=reason):
        _rule(file, rule)


def test_servers_do_not_know_what_is_acknowledged(file: Path) -> None:
    rule = _rule(file, {**SOURCES, "sources": [{"name": "O", "acknowledge": True}]})
    assert isinstance(rule, SourcesRule)
    assert (rule.sources[0].acknowledge, rule.sources[0].native()) == (True, {"name": "O"})


def test_a_mirror(file: Path) -> None:
    rule = _rule(
        file,
        {
            **MIRROR,
            "to": "west",
            "mirror": {"name": "O", "subject_transforms": [{"src": "o.>", "dest": "c.>"}]},
            "keep_sequence": True,
            "filler_subject": "c.gap",
        },
        **WEST,
    )
    assert isinstance(rule, MirrorRule)
    assert (rule.target_stream, rule.entries, rule.connections) == ("T", (rule.mirror,), ("west", "default"))
    assert (rule.keep_sequence, rule.filler_subject) == (True, "c.gap")
    assert rule.mirror.native() == {"name": "O", "subject_transforms": [{"src": "o.>", "dest": "c.>"}]}


@pytest.mark.parametrize(
    "rule",
    [
        {**SOURCES, "stream": "O", "sources": [{"name": "O", "from": "west"}]},
        {**MIRROR, "stream": "O", "mirror": {"name": "O", "from": "west"}},
        {**KV, "bucket": "O", "sources": [{"bucket": "O", "from": "west"}]},
        {**SOURCES, "stream": "O", "to": "west", "sources": [{"name": "O"}, {"name": "P", "from": "west"}]},
    ],
    ids=["sources", "mirror", "kv", "to"],
)
def test_streams_of_the_same_name_on_two_connections_are_no_cycle(file: Path, rule: dict[str, Any]) -> None:
    assert _rule(file, rule, **WEST).name == "a"


def test_the_same_name_from_two_connections_is_distinguished_by_an_api_prefix(file: Path) -> None:
    entries = [{"name": "O"}, {"name": "O", "from": "west", "external": {"api": "$JS.west.API"}}]
    assert _rule(file, {**SOURCES, "sources": entries}, **WEST).name == "a"


@pytest.mark.parametrize("version", ["2.10", "2.15", "native"])
def test_a_stream_may_be_there_twice_where_records_name_filters(file: Path, version: str) -> None:
    entries = [{"name": "O", "filter_subject": "a"}, {"name": "O", "filter_subject": "b"}]
    assert _rule(file, {**SOURCES, "sources": entries, "dialect": version}).name == "a"


@pytest.mark.parametrize("version", ["2.9", "2.9.10", "2.10.0", "native", "2.15"])
def test_transforms_are_there_in_every_dialect(file: Path, version: str) -> None:
    entries = [{"name": "O", "subject_transforms": [{"src": "a.*", "dest": "b.$1"}, {"src": "c.>", "dest": "c.>"}]}]
    assert _rule(file, {**SOURCES, "sources": entries, "dialect": version}).name == "a"
    assert _rule(file, {**MIRROR, "mirror": entries[0], "dialect": version}).name == "a"


def test_the_native_dialect_takes_what_one_version_takes(file: Path) -> None:
    entry = {"name": "O", "subject_transforms": [{"src": "a.*", "dest": "b.{{random(3)}}.$1"}]}
    assert _rule(file, {**SOURCES, "sources": [entry], "dialect": "native"}).name == "a"
    with pytest.raises(ConfigError, match="newer servers take it"):
        _rule(file, {**SOURCES, "sources": [entry], "dialect": "2.11"})


def test_filters_that_overlap_in_part_are_for_servers_to_decide(file: Path) -> None:
    transforms = [{"src": "a.*.b"}, {"src": "a.c.*"}]
    assert _rule(file, {**SOURCES, "sources": [{"name": "O", "subject_transforms": transforms}]}).name == "a"
    with pytest.raises(ConfigError, match="10152"):
        _rule(file, {**MIRROR, "mirror": {"name": "O", "subject_transforms": transforms}})
    mirror = {**MIRROR, "mirror": {"name": "O", "subject_transforms": transforms}, "dialect": "2.10.13"}
    assert _rule(file, mirror).name == "a"


def test_a_token_that_only_begins_with_a_star_excludes_itself_only(file: Path) -> None:
    # The server's own comparison of patterns would take it for a wildcard.
    entry = {"name": "O", "filter_subject": "a.b", "exclude": ["*x.b"]}
    assert _rule(file, {**SOURCES, "sources": [entry]}).name == "a"


def test_a_bucket_without_transforms_gives_all_its_keys() -> None:
    entry = KvSource.model_validate({"bucket": "S"}).entry("T")
    assert entry.native() == {"name": "KV_S", "subject_transforms": [{"src": "$KV.S.>", "dest": "$KV.T.>"}]}


@pytest.mark.parametrize(
    ("key", "subject"),
    [
        ({"src": "a.*", "dest": "b.$1"}, {"src": "$KV.S.a.*", "dest": "$KV.T.b.$1"}),
        ({"src": "a.>", "dest": "b.>"}, {"src": "$KV.S.a.>", "dest": "$KV.T.b.>"}),
        ({"src": "a.>"}, {"src": "$KV.S.a.>", "dest": "$KV.T.a.>"}),
        ({"src": "*.a.*"}, {"src": "$KV.S.*.a.*", "dest": "$KV.T.{{wildcard(1)}}.a.{{wildcard(2)}}"}),
        ({"src": "a"}, {"src": "$KV.S.a", "dest": "$KV.T.a"}),
        ({"dest": "b.>"}, {"src": "$KV.S.>", "dest": "$KV.T.b.>"}),
        ({}, {"src": "$KV.S.>", "dest": "$KV.T.>"}),
    ],
)
def test_transforms_of_keys_are_transforms_of_subjects(key: dict[str, str], subject: dict[str, str]) -> None:
    entry = KvSource.model_validate({"bucket": "S", "key_transforms": [key]}).entry("T")
    assert entry.native()["subject_transforms"] == [subject]


def test_kept_keys_stay_as_they_are() -> None:
    entry = KvSource.model_validate({"bucket": "S", "key_transforms": [{"src": "*.a.*.>"}]}).entry("T")
    copied = compile_sourcing(entry.native()).destination(b"$KV.S.x.a.y.z.z")
    assert copied == b"$KV.T.x.a.y.z.z"


def test_everything_can_be_said_of_buckets(file: Path) -> None:
    rule = _rule(
        file,
        {
            **KV,
            "sources": [
                {"bucket": "S", "exclude": ["secret.>"]},
                {
                    "bucket": "S",
                    "from": "west",
                    "external": {"api": "$JS.west.API"},
                    "key_transforms": [{"src": "w.>"}],
                },
            ],
        },
        **WEST,
    )
    assert isinstance(rule, KvSourcesRule)
    assert (rule.target_stream, rule.connections) == ("KV_T", ("default", "default", "west"))
    one, two = rule.entries
    assert (one.name, one.exclude, one.connection) == ("KV_S", ("$KV.S.secret.>",), "default")
    assert two.native() == {
        "name": "KV_S",
        "subject_transforms": [{"src": "$KV.S.w.>", "dest": "$KV.T.w.>"}],
        "external": {"api": "$JS.west.API"},
    }
    assert two.connection == "west"


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
        assert all("holds white space" in problem for problem in problems)
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
