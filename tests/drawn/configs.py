"""Random stream configurations: good ones with a few odd members, values and types, and updates of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, TypeAlias

from tests.drawn.transforms import draw_filter, draw_transform

OTHERS: tuple[Mapping[str, Any], ...] = (
    {"name": "A", "subjects": ["a.>"], "storage": "memory"},
    {"name": "B", "subjects": ["b.*", "c"], "storage": "memory", "sources": [{"name": "S", "filter_subject": "s.b"}]},
    {"name": "M", "mirror": {"name": "A"}, "storage": "memory"},
    {"name": "D", "subjects": ["e.>"], "storage": "memory", "allow_direct": True, "max_msg_size": 1000},
)
"""Streams that are there before: two with subjects, one that may close a cycle, a mirror, one with direct access."""

_Draw: TypeAlias = Callable[[Random], Any]

_NAMES = ("A", "A", "B", "M", "D", "S", "GONE", "", "a b", "x.y", "x/y", "é")
_SUBJECTS: tuple[list[str], ...] = (
    ["s.>"], ["s.*"], ["s.a", "s.b"], ["s.a"], ["s.*.x", "t.>"], [], ["s.a", "s.a"], ["s.>", "s.a"], ["a.x"], ["d.>"],
    [""], ["s..a"], ["s .a"], ["s.>.a"], ["*.s"], ["*"], [">"], ["$JS.x"], ["$SYS.x"], ["$KV.b.>"], ["s.*x"], ["é.日"],
    ["$JS.EVENT.>"], ["$SYS.ACCOUNT.>"], ['s"q'], ["$NRG.x"], ["s.$1"],
)  # fmt: skip
_WRONG_TYPES: tuple[Any, ...] = (0, 1, -1, 1.5, "", "x", True, False, None, [], {}, ["x"], {"x": 1}, 2**63, [None], "1")
_DURATIONS = (0, 1, 99_999_999, 100_000_000, 1_000_000_000, 120_000_000_000, 10**13, -1, -(10**9))
_LIMITS = (0, -1, -2, 1, 5, 1000, -1000)
_TIMES = (
    "2024-01-02T03:04:05Z", "2024-01-02T03:04:05.120Z", "2024-01-02T03:04:05+02:00", "2024-02-30T00:00:00Z",
    "yesterday", "2024-01-02 03:04:05Z", "2024-01-02T03:04:05.123456789123Z", "2024-13-02T03:04:05Z",
    "2024-01-02T24:04:05Z", "",
)  # fmt: skip


def draw_config(random: Random) -> dict[str, Any]:
    """A configuration of the stream S, accepted more often than not."""
    config: dict[str, Any] = {"name": "S" if random.random() < 0.97 else random.choice(_ODD_NAMES), "storage": "memory"}
    chance = random.random()
    if chance < 0.18:
        config["mirror"] = _source(random)
    elif chance < 0.42:
        config["sources"] = [_source(random) for _ in range(random.choice((1, 1, 2, 3)))]
        if random.random() < 0.4:
            config["subjects"] = ["s.>"]
    else:
        config["subjects"] = ["s.>"] if random.random() < 0.6 else list(random.choice(_SUBJECTS))
    if random.random() < 0.4:
        config["republish"] = _republish(random)
    if random.random() < 0.35:
        config["subject_transform"] = _pair(random)
    for _ in range(random.choice((0, 0, 1, 1, 2, 3))):
        _set(random, config)
    if random.random() < 0.4:
        _add_later_members(random, config)
    return config


def draw_previous(random: Random) -> dict[str, Any]:
    """A configuration that most servers accept, to be updated."""
    config: dict[str, Any] = {"name": "S", "storage": "memory"}
    chance = random.random()
    if chance < 0.15:
        config["mirror"] = {"name": random.choice(("A", "D", "GONE")), **random.choice(_SELECTIONS)}
    elif chance < 0.4:
        names = random.sample(("A", "B", "D", "GONE"), random.choice((1, 1, 2)))
        config["sources"] = [{"name": name, **random.choice(_SELECTIONS)} for name in names]
    if "mirror" not in config and (chance >= 0.4 or random.random() < 0.5):
        config["subjects"] = random.choice((["s.>"], ["s.>"], ["s.*"], ["s.a", "s.b"]))
    if random.random() < 0.4 and "subjects" in config:
        config["republish"] = dict(random.choice(_GOOD_RULES))
    if random.random() < 0.3:
        config["subject_transform"] = dict(random.choice(_GOOD_PAIRS))
    for name in random.sample(list(_GOOD_MEMBERS), random.choice((0, 0, 1, 1, 2))):
        if name not in ("retention", "first_seq") or "mirror" not in config:
            config[name] = _GOOD_MEMBERS[name](random)
    if random.random() < 0.4:
        config |= random.choice(_GOOD_LATER_MEMBERS)
    return config


def draw_update(random: Random, config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration like another one, a few members changed, added or taken out."""
    changed = dict(config)
    for _ in range(random.choice((0, 1, 1, 2, 3))):
        chance = random.random()
        if chance < 0.25 and len(changed) > 1:
            del changed[random.choice([name for name in changed if name != "name"])]
        elif chance < 0.4:
            changed["republish"] = _republish(random)
        elif chance < 0.5:
            changed["subject_transform"] = _pair(random)
        elif chance < 0.6:
            changed["sources"] = [_source(random) for _ in range(random.choice((0, 1, 2)))]
        elif chance < 0.65:
            changed["mirror"] = _source(random)
        elif chance < 0.72:
            changed["subjects"] = list(random.choice(_SUBJECTS))
        else:
            _set(random, changed)
    if random.random() < 0.3:
        _add_later_members(random, changed)
    return changed


_SELECTIONS: tuple[Mapping[str, Any], ...] = (
    {},
    {},
    {"filter_subject": "a.x"},
    {"subject_transforms": [{"src": "a.*", "dest": "t.$1"}]},
    {"subject_transforms": [{"src": "a.x", "dest": ""}, {"src": "a.y.>", "dest": "t.>"}]},
    {"opt_start_seq": 3},
)
_GOOD_PAIRS: tuple[Mapping[str, Any], ...] = (
    {"src": "s.>", "dest": "t.>"},
    {"src": "s.*", "dest": "t.{{wildcard(1)}}"},
    {"src": "s.*", "dest": "t.{{partition(3,1)}}.$1"},
)
_GOOD_RULES: tuple[Mapping[str, Any], ...] = (
    *_GOOD_PAIRS,
    {"src": "", "dest": "t.>"},
    {"src": "s.>", "dest": "t.>", "headers_only": True},
)
_ODD_NAMES = ("", "*", ">", "x/y", "x\\y", "é", "n" * 256, "n" * 255, "$x", "a b", "x.y")


def _pair(random: Random) -> Any:
    if random.random() < 0.03:
        return random.choice(_WRONG_TYPES)
    drawn = draw_transform(random)
    return _with_odd_member(random, {"src": drawn.source, "dest": drawn.destination})


def _republish(random: Random) -> Any:
    pair = _pair(random)
    if not isinstance(pair, dict):
        return pair
    if random.random() < 0.3:
        pair["headers_only"] = random.choice((True, True, False, "yes", 1, None))
    chance = random.random()
    if chance < 0.06:
        return {"src": ">", "dest": ">"}
    if chance < 0.12:
        pair["dest"] = random.choice(("s.x", "s.>", "s.*", "", "a.>", "s.{{partition(3,1)}}", "$1.b"))
    elif chance < 0.16:
        pair["src"] = random.choice(("zzz.*", "s.a", "", "s.*.*.*"))
    elif chance < 0.2:
        return {}
    return pair


def _source(random: Random) -> Any:
    if random.random() < 0.04:
        return random.choice(_WRONG_TYPES)
    source: dict[str, Any] = {"name": random.choice(_NAMES)}
    chance = random.random()
    if chance < 0.25:
        source["filter_subject"] = _filter(random)
    elif chance < 0.6:
        source["subject_transforms"] = [_source_pair(random) for _ in range(random.choice((1, 1, 1, 2, 2, 3)))]
    elif chance < 0.65:
        source |= {"filter_subject": _filter(random), "subject_transforms": [_source_pair(random)]}
    if random.random() < 0.1:
        source["opt_start_seq"] = random.choice((0, 1, 7, -1, "1", 2**64 - 1, 2**64, 1.5))
    if random.random() < 0.1:
        source["opt_start_time"] = random.choice(_TIMES)
    if random.random() < 0.12:
        source["external"] = _external(random)
    if random.random() < 0.04:
        source["consumer"] = random.choice(
            ({"name": "c", "deliver_subject": "x.c"}, {"name": "c"}, {}, {"name": "a b", "deliver_subject": "y"})
        )
    return _with_odd_member(random, source)


def _source_pair(random: Random) -> Any:
    if random.random() < 0.3:
        source = random.choice(("a.*", "a.x.*", "a.>", "b.x", "", "a.*.y", "e.*"))
        return {"src": source, "dest": random.choice(("t.$1", "t.x", "", "t.>", "t.{{wildcard(1)}}"))}
    pair = _pair(random)
    return pair if not isinstance(pair, dict) else {**pair, "src": str(pair.get("src", "")).replace("s", "a", 1)}


def _filter(random: Random) -> str:
    return (
        random.choice(("a.*", "a.x", "b.x", "zzz", "s.b", "", "a..b", "a b", ">"))
        if random.random() < 0.7
        else draw_filter(random, head="a")
    )


def _external(random: Random) -> Any:
    if random.random() < 0.1:
        return random.choice(_WRONG_TYPES)
    return _with_odd_member(
        random,
        {
            "api": random.choice(("JSA.API", "JSA.API", "$JS.API", "$JS.*", "x y", "", "$JS.hub.API")),
            "deliver": random.choice(("", "", "x.y", "x.*", "a", "*", "x y")),
        },
    )


def _with_odd_member(random: Random, record: dict[str, Any]) -> dict[str, Any]:
    chance = random.random()
    if chance < 0.02:
        record[random.choice(("zzz", "SRC", "Name", "dst"))] = random.choice(("x", 1, None))
    elif chance < 0.04 and record:
        record[random.choice(list(record))] = random.choice(_WRONG_TYPES)
    elif chance < 0.055 and record:
        del record[random.choice(list(record))]
    return record


def _set(random: Random, config: dict[str, Any]) -> None:
    name = random.choice(list(_MEMBERS))
    value = random.choice(_WRONG_TYPES) if random.random() < 0.12 else _MEMBERS[name](random)
    if random.random() < 0.03:
        name = random.choice((name.upper(), name + "s", "unknown"))
    config[name] = value


def _add_later_members(random: Random, config: dict[str, Any]) -> None:
    """Several members at once of those that 2.11 and newer servers weigh against each other."""
    for name in random.sample(list(_LATER_MEMBERS), random.choice((1, 2, 2, 3, 4))):
        config[name] = _LATER_MEMBERS[name](random)


def _one_of(*values: Any) -> _Draw:
    return lambda random: random.choice(values)


_FLAG = _one_of(True, True, False)
_GOOD_MEMBERS: Mapping[str, _Draw] = {
    "description": _one_of("about"),
    "retention": _one_of("interest", "workqueue"),
    "max_consumers": _one_of(5),
    "max_msgs": _one_of(5, 1000),
    "max_age": _one_of(10**9, 10**13),
    "max_msgs_per_subject": _one_of(1, 5),
    "max_msg_size": _one_of(1000, 5000),
    "discard": _one_of("new"),
    "no_ack": _one_of(True),
    "duplicate_window": _one_of(10**9),
    "compression": _one_of("s2"),
    "first_seq": _one_of(100),
    "allow_direct": _one_of(True),
    "deny_delete": _one_of(True),
    "deny_purge": _one_of(True),
    "allow_rollup_hdrs": _one_of(True),
    "metadata": _one_of({"k": "v"}),
}
_GOOD_LATER_MEMBERS: tuple[Mapping[str, Any], ...] = (
    {"allow_msg_ttl": True},
    {"allow_msg_ttl": True, "subject_delete_marker_ttl": 10**9},
    {"subject_delete_marker_ttl": 10**10},
    {"allow_msg_counter": True},
    {"allow_msg_counter": True, "subject_delete_marker_ttl": 10**9},
    {"allow_msg_schedules": True},
    {"allow_msg_schedules": True, "allow_msg_ttl": True},
    {"allow_atomic": True},
    {"allow_batched": True, "allow_atomic": True},
    {"persist_mode": "async", "storage": "file"},
    {"consumer_limits": {"inactive_threshold": 10**9, "max_ack_pending": 10}},
    {"discard": "new", "discard_new_per_subject": True, "max_msgs_per_subject": 5},
    {"storage": "file"},
)
_LATER_MEMBERS: Mapping[str, _Draw] = {
    "retention": _one_of("limits", "interest", "workqueue"),
    "discard": _one_of("old", "new"),
    "storage": _one_of("memory", "file"),
    "deny_purge": _FLAG,
    "allow_rollup_hdrs": _FLAG,
    "sealed": _one_of(True, False, False),
    "pedantic": _FLAG,
    "allow_msg_ttl": _FLAG,
    "subject_delete_marker_ttl": _one_of(0, 1, -1, -(10**9), 999_999_999, 10**9, 10**9, 10**13),
    "allow_msg_counter": _FLAG,
    "allow_atomic": _FLAG,
    "allow_batched": _FLAG,
    "allow_msg_schedules": _FLAG,
    "persist_mode": _one_of("async", "async", "default", "", "Async"),
}
_MEMBERS: Mapping[str, _Draw] = {
    **_LATER_MEMBERS,
    "description": _one_of("about", "", "é", "x" * 4096, "x" * 4097),
    "retention": _one_of("limits", "interest", "workqueue", "Limits", "x", ""),
    "max_consumers": _one_of(*_LIMITS),
    "max_msgs": _one_of(*_LIMITS),
    "max_bytes": _one_of(0, -1, -2, 4096, 1_000_000),
    "max_age": _one_of(*_DURATIONS),
    "max_msgs_per_subject": _one_of(*_LIMITS),
    "max_msg_size": _one_of(0, -1, -2, 10, 1000, 5000, 2**31, -(2**31)),
    "discard": _one_of("old", "new", "Old", "NEW", "x"),
    "storage": _one_of("memory", "memory", "Memory", "tape", ""),
    "num_replicas": _one_of(0, 1, 6, -1),
    "no_ack": _FLAG,
    "duplicate_window": _one_of(*_DURATIONS),
    "compression": _one_of("none", "s2", "S2", "x", ""),
    "first_seq": _one_of(0, 1, 100, -1),
    "allow_direct": _FLAG,
    "mirror_direct": _FLAG,
    "discard_new_per_subject": _FLAG,
    "sealed": _FLAG,
    "deny_delete": _FLAG,
    "deny_purge": _FLAG,
    "allow_rollup_hdrs": _FLAG,
    "metadata": _one_of({}, {"k": "v"}, {"k": 1}, {"k": None}, {"é": ""}),
    "pedantic": _FLAG,
    "consumer_limits": _one_of(
        {}, {"inactive_threshold": 10**9}, {"max_ack_pending": 5}, {"inactive_threshold": -1, "max_ack_pending": -5}
    ),
    "placement": _one_of({}, {"cluster": "C"}, {"tags": []}, {"tags": ["t"]}, {"preferred": "n"}, {"cluster": ""}),
    "template_owner": _one_of("", "T"),
}
"""Members and the values drawn for them. More than one replica is not drawn: how many servers there are is outside of
what the engine decides."""
