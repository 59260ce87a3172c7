"""Loops through rules and native configuration: which are refused, which are not, and how the path is shown."""

from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nats_bridge.rules.loops.moves import Reach
from nats_bridge.rules.loops.search import find_loops
from nats_bridge.settings import Settings
from nats_transforms.dialect import dialect
from nats_transforms.subject import matches
from nats_transforms.transform import compile_transform

Stream = dict[str, Any]


def stream(name: str, *subjects: str, **more: Any) -> Stream:
    """A stream as servers list it."""
    return {"config": {"name": name, "subjects": list(subjects), **more}, "created": f"2026-11-21T00:00:00Z {name}"}


def rule(name: str, stream: str, src: str, dest: str, **more: Any) -> dict[str, Any]:
    """A republish rule."""
    return {"name": name, "kind": "republish", "stream": stream, "republish": {"src": src, "dest": dest}, **more}


def look(*rules: dict[str, Any], version: str = "2.15", **accounts: list[Stream]) -> dict[str | None, str]:
    """The loops by rule; every keyword is a connection with an account of its own."""
    reaches = {name: Reach(name, streams, dialect(version)) for name, streams in accounts.items()}
    return seen(rules, reaches)


def seen(rules: Any, reaches: Mapping[str, Reach]) -> dict[str | None, str]:
    """The loops by rule."""
    configuration = Settings.model_validate({"rules": rules, "dialect": "native"})
    return {loop.rule: loop.path for loop in find_loops(configuration, reaches)}


# -- lengths -----------------------------------------------------------------------------------------------------------


def test_one_rule_into_its_own_stream() -> None:
    found = look(rule("r", "A", "a.>", "a.again.>"), default=[stream("A", "a.>")])
    assert found == {"r": "stream A → rule 'r' republishes a.> to a.again.> → stream A"}


@pytest.mark.parametrize("length", [2, 3, 4, 9])
def test_rules_in_a_ring(length: int) -> None:
    streams = [stream(f"S{n}", f"s{n}.>") for n in range(length)]
    ring = [rule(f"r{n}", f"S{n}", f"s{n}.>", f"s{(n + 1) % length}.>") for n in range(length)]
    aside = rule("aside", "S0", "s0.>", "no.stream.takes.this.>")
    found = look(*ring, aside, default=streams)
    assert sorted(map(str, found)) == [f"r{n}" for n in range(length)]
    way = [f"stream S{n} → rule 'r{n}' republishes s{n}.> to s{(n + 1) % length}.>" for n in range(length)]
    assert found["r0"] == " → ".join([*way, "stream S0"])
    assert found["r1"] == " → ".join([*way[1:], way[0], "stream S1"]), "shown from where the rule begins"
    assert look(*ring[:-1], aside, default=streams) == {}, "open at one place"


def test_the_sentence() -> None:
    streams = [stream("ORDERS", "orders.>"), stream("COPY", "copy.>", republish={"src": "copy.>", "dest": "orders.>"})]
    configuration = Settings.model_validate({"rules": [rule("a", "ORDERS", "orders.>", "copy.>")]})
    (loop,) = find_loops(configuration, {"default": Reach("default", streams, dialect("2.15"))})
    assert str(loop) == (
        "rule 'a': loop: stream ORDERS → rule 'a' republishes orders.> to copy.> → stream COPY →"
        " native republish copy.> to orders.> → stream ORDERS: choose a destination outside"
    )


def test_the_shortest_path_is_reported() -> None:
    streams = [stream("A", "a.>"), stream("B", "b.>"), stream("C", "c.>")]
    rules = [rule("ab", "A", "a.>", "b.>"), rule("bc", "B", "b.>", "c.>"), rule("ca", "C", "c.>", "a.>")]
    found = look(*rules, rule("ba", "B", "b.>", "a.>"), default=streams)
    assert (
        found["ab"]
        == "stream A → rule 'ab' republishes a.> to b.> → stream B → rule 'ba' republishes b.> to a.> → stream A"
    )
    assert found["ca"].count("stream") == 4


# -- subjects ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("src", "loops"), [("foo.>", False), ("foo.x", False), ("*.y", True), ("foo.y", True)])
def test_subjects_are_followed_around(src: str, loops: bool) -> None:
    """Only what leaves A as `bar.x` comes back, as `foo.y`: whether that leaves A as `bar.x` again decides."""
    a = stream("A", "foo.>", republish={"src": src, "dest": "bar.x" if loops else src.replace("foo", "bar")})
    found = look(rule("r", "B", "bar.x", "foo.y"), default=[a, stream("B", "bar.>")])
    assert bool(found) == loops


@pytest.mark.parametrize(
    ("there", "back"),
    [
        (("a.raw.>", "b.>"), ("b.>", "a.done.>")),  # comes back under subjects that are not taken again
        (("a.*", "b.$1"), ("b.*.*", "a.$1")),  # of another length
        (("a.>", "b.x.>"), ("b.y.>", "a.>")),
        (("a.*", "b.{{partition(8,1)}}"), ("b.orders", "a.x")),  # a number is not a word
        (("a.*", "b.{{partition(8,1)}}"), ("b.8", "a.x")),
        (("a.*", "b.{{left(1,1)}}.x"), ("b.*", "a.$1")),
        (("a.*", "b.{{split(1,-)}}"), ("c.>", "a.>")),
        (("a.x", "b.y"), ("b.x", "a.x")),
    ],
)
def test_what_cannot_loop_is_left_alone(there: tuple[str, str], back: tuple[str, str]) -> None:
    streams = [stream("A", "a.>"), stream("B", "b.>")]
    assert look(rule("there", "A", *there), rule("back", "B", *back), default=streams) == {}


@pytest.mark.parametrize(
    ("there", "back"),
    [
        (("a.*", "b.{{partition(8,1)}}"), ("b.7", "a.x")),
        (("a.*", "b.{{partition(8,1)}}"), ("b.*", "a.$1")),
        (("a.*", "b.{{left(1,2)}}"), ("b.xy", "a.xyz")),
        (("a.*", "b.{{split(1,-)}}.end"), ("b.x.y.end", "a.x-y")),
        (("a.*", "b.{{splitFromRight(1,2)}}"), ("b.x.yz", "a.xyz")),
        ((">", "b.>"), (">", "a.>")),  # grows at every turn
        (("a.*.>", "b.>"), ("b.>", "a.>")),  # shrinks at every turn, which is taken for a loop
        (("a.*.*", "b.$2.$1"), ("b.*.*", "a.$1.$2")),  # changes at every turn, and changes back
        (("*.*", "b.$2"), ("b.>", "a.>")),
        (("a.>", "b.>"), ("b.x", "a.x")),
    ],
)
def test_what_can_loop_is_refused(there: tuple[str, str], back: tuple[str, str]) -> None:
    streams = [stream("A", "a.>"), stream("B", "b.>")]
    assert set(look(rule("there", "A", *there), rule("back", "B", *back), default=streams)) == {"there", "back"}


@pytest.mark.parametrize(
    ("version", "loops"), [("2.14.9", True), ("2.14.10", False), ("2.15.1", True), ("2.15.3", False)]
)
def test_a_token_such_as_star_x_is_a_wildcard_up_to_2_14_9_and_2_15_2(version: str, loops: bool) -> None:
    """`a.*x` takes `a.y` of a rule there; servers that were patched take only `a.*x` itself."""
    streams = [stream("A", "a.>"), stream("B", "b.>")]
    found = look(rule("r", "A", "a.*x", "b.y"), rule("s", "B", "b.y", "a.y"), default=streams, version=version)
    assert bool(found) == loops
    native = stream("A", "a.>", republish={"src": "a.*x", "dest": "b.y"})
    found = look(rule("s", "B", "b.y", "a.y"), default=[native, streams[1]], version=version)
    assert bool(found) == loops


def test_a_turn_is_reported_once_even_if_the_subjects_need_two() -> None:
    streams = [stream("A", "a.>")]
    found = look(rule("swap", "A", "a.*.*.x", "a.$2.$1.x"), default=streams)
    assert found == {"swap": "stream A → rule 'swap' republishes a.*.*.x to a.$2.$1.x → stream A"}


def test_excluded_subjects_break_a_loop() -> None:
    streams = [stream("A", "a.>")]
    assert look(rule("r", "A", ">", "a.again.>", exclude=["a.again.>"]), default=streams) == {}
    assert set(look(rule("r", "A", ">", "a.again.>", exclude=["a.again.x"]), default=streams)) == {"r"}


def test_partitions_next_to_their_source() -> None:
    """One stream holds the subjects before and after, as an ingress transform is used."""
    streams = [stream("EVENTS", "events.>", "*.events.>")]
    into = {"name": "in", "kind": "subject_transform", "stream": "EVENTS"}
    transform = {"src": "events.>", "dest": "{{partition(8)}}.events.>"}
    assert look(into | {"subject_transform": transform}, default=streams) == {}
    found = look(into | {"subject_transform": {"src": "*.>", "dest": "x.$1.>"}}, default=streams)
    assert found == {"in": "subjects *.> → rule 'in' transforms *.> to x.$1.> → subjects *.>"}


def test_a_transform_that_cannot_be_built_moves_nothing() -> None:
    assert look(rule("r", "A", "a.*", "a.{{left(1,1)}}"), version="2.9", default=[stream("A", "a.>")]) == {}


# -- native features ---------------------------------------------------------------------------------------------------


def test_native_sources_lead_on() -> None:
    a, b = stream("A", "a.>"), stream("B", sources=[{"name": "A", "filter_subject": "a.x.>"}])
    found = look(
        rule("r", "B", ">", "copy.>"), rule("back", "C", "copy.>", "$1.>"), default=[a, b, stream("C", "copy.>")]
    )
    assert found == {}
    found = look(rule("r", "B", ">", "a.x.>"), rule("away", "B", ">", "a.y.>"), default=[a, b])
    assert found == {"r": "stream B → rule 'r' republishes > to a.x.> → stream A → native source a.x.> → stream B"}


def test_transforms_of_native_sources() -> None:
    transforms = [{"src": "a.x.>", "dest": "kept.>"}, {"src": "a.>", "dest": "b.>"}, {"src": "z", "dest": ""}]
    b = stream("B", sources=[{"name": "A", "subject_transforms": transforms}])
    source = stream("A", "a.>")
    assert look(rule("r", "B", "b.>", "a.x.>"), default=[source, b]) == {}, "the first transform counts"
    found = look(rule("r", "B", "b.>", "a.>"), rule("kept", "B", "kept.>", "a.>"), default=[source, b])
    assert found["r"] == "stream B → rule 'r' republishes b.> to a.> → stream A → native source a.> to b.> → stream B"


def test_native_mirrors_lead_on() -> None:
    streams = [stream("A", "a.>"), {"config": {"name": "M", "mirror": {"name": "A"}}, "created": "x"}]
    found = look(rule("r", "M", "a.>", "a.>"), default=streams)
    assert found == {"r": "stream M → rule 'r' republishes a.> to a.> → stream A → native mirror > → stream M"}


def test_ingress_transforms_change_what_is_stored() -> None:
    ingress = stream("A", "in.>", subject_transform={"src": "in.>", "dest": "stored.>"})
    assert look(rule("r", "A", "in.>", "in.>"), default=[ingress]) == {}
    found = look(rule("r", "A", "stored.*", "in.$1"), default=[ingress])
    assert found == {
        "r": "stream A → rule 'r' republishes stored.* to in.$1 → native subject_transform in.> to stored.> → stream A"
    }
    found = look(rule("r", "A", "other.*", "other.$1"), default=[stream("A", ">", subject_transform=ingress["config"])])
    assert set(found) == {"r"}, "what the transform does not match is stored as it is"


def test_a_native_loop_is_reported_and_blames_no_rule() -> None:
    a = stream("A", "a.>", republish={"src": "a.>", "dest": "b.>"})
    b = stream("B", "b.>", republish={"src": "b.>", "dest": "a.>"})
    found = look(rule("r", "A", "a.>", "c.>"), default=[a, b])
    assert found == {None: "stream A → native republish a.> to b.> → stream B → native republish b.> to a.> → stream A"}
    found = look(rule("r", "A", "a.>", "b.>"), default=[a, b])
    assert set(found) == {None, "r"}


def test_a_native_transform_of_a_newer_server_may_give_anything() -> None:
    a = stream("A", "a.>", republish={"src": "a.>", "dest": "{{tomorrow(1)}}.>"})
    assert set(look(rule("r", "B", "b.>", "a.>"), default=[a, stream("B", "b.>")])) == {"r", None}
    a = stream("A", "a.>", republish={"src": "a.>", "dest": "c.{{tomorrow(1)}}.>"})
    assert look(rule("r", "B", "b.>", "a.>"), default=[a, stream("B", "b.>")]) == {}


def test_without_a_destination_nothing_is_republished() -> None:
    assert look(default=[stream("A", "a.>", republish={"src": ">", "dest": ""})]) == {}


def test_a_sealed_stream_takes_nothing() -> None:
    assert look(rule("r", "A", "a.>", "a.x.>"), default=[stream("A", "a.>", sealed=True)]) == {}


# -- rules that copy, transform, and listen ----------------------------------------------------------------------------


def copying(name: str, target: str, *sources: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A sources rule."""
    return {"name": name, "kind": "sources", "stream": target, "sources": list(sources), **more}


def test_copies_that_their_own_source_takes() -> None:
    entry = {"name": "A", "subject_transforms": [{"src": "a.>", "dest": "a.copy.>"}]}
    found = look(copying("r", "T", entry), default=[stream("A", "a.>"), stream("T", "t.>")])
    assert found == {"r": "stream A → rule 'r' copies a.> to a.copy.> → stream A"}


def test_copies_without_a_transform() -> None:
    found = look(copying("r", "T", {"name": "A"}), default=[stream("A", "a.>"), stream("T", "t.>")])
    assert found == {"r": "stream A → rule 'r' copies > → stream A"}
    two = {"from": "west", "name": "A"}
    assert look(copying("r", "A", two), default=[stream("A", "a.>")], west=[stream("A", "a.>")]) == {}


def test_copies_that_a_third_stream_takes_which_feeds_the_source() -> None:
    streams = [stream("A", "a.>"), stream("T", "t.>"), stream("X", "x.>", republish={"src": "x.>", "dest": "a.>"})]
    entry = {"name": "A", "subject_transforms": [{"src": "a.>", "dest": "x.>"}]}
    assert set(look(copying("r", "T", entry), default=streams)) == {"r"}


def test_two_streams_that_copy_each_other() -> None:
    one = copying("one", "A", {"name": "B", "filter_subject": "b.>"})
    two = copying("two", "B", {"name": "A", "subject_transforms": [{"src": "a.>", "dest": "b.>"}]})
    streams = [stream("A", "a.>"), stream("B", "b.>")]
    assert look(two, default=streams) == {}
    back = copying("one", "A", {"name": "B", "subject_transforms": [{"src": "b.>", "dest": "a.>"}]})
    assert set(look(back, two, default=streams)) == {"one", "two"}
    assert set(look(one, default=[stream("A", "a.>", "b.>")])) == set()


def test_a_mirror_rule_and_its_fillers() -> None:
    mirror = {"name": "m", "kind": "mirror", "stream": "T", "keep_sequence": True, "filler_subject": "t.fill"}
    entry = {"name": "A", "subject_transforms": [{"src": "a.>", "dest": "t.copy.>"}]}
    streams = [stream("A", "a.>", "rest.>"), stream("T", "t.>")]
    assert look(mirror | {"mirror": entry}, default=streams) == {}
    found = look(mirror | {"mirror": entry}, rule("r", "T", "t.fill", "rest.x"), default=streams)
    assert set(found) == {"m", "r"}, "what is not copied leaves a gap, and that is filled"
    assert "rule 'm' fills gaps with t.fill" in found["m"]
    assert look(mirror | {"mirror": entry}, rule("r", "T", "t.fill", "z.x"), default=streams) == {}
    found = look(mirror | {"mirror": entry}, rule("r", "T", "t.copy.>", "a.>"), default=streams)
    assert set(found) == {"m", "r"}


def test_buckets_that_copy_each_other() -> None:
    def kv(name: str, target: str, source: str, **more: Any) -> dict[str, Any]:
        return {"name": name, "kind": "kv_sources", "bucket": target, "sources": [{"bucket": source, **more}]}

    streams = [stream("KV_ONE", "$KV.ONE.>"), stream("KV_TWO", "$KV.TWO.>")]
    assert look(kv("a", "TWO", "ONE"), default=streams) == {}
    found = look(kv("a", "TWO", "ONE"), kv("b", "ONE", "TWO"), default=streams)
    assert found["a"] == (
        "stream KV_ONE → rule 'a' copies $KV.ONE.> to $KV.TWO.> → stream KV_TWO →"
        " rule 'b' copies $KV.TWO.> to $KV.ONE.> → stream KV_ONE"
    )
    apart = kv("b", "ONE", "TWO", key_transforms=[{"src": "eu.>", "dest": "eu.>"}])
    assert look(kv("a", "TWO", "ONE", key_transforms=[{"src": "us.>", "dest": "us.>"}]), apart, default=streams) == {}
    assert look(kv("a", "TWO", "ONE", exclude=["eu.>"]), apart, default=streams) == {}


def test_dead_letters_that_come_back() -> None:
    entry = {"name": "A", "subject_transforms": [{"src": "a.>", "dest": "t.>"}]}
    streams = [stream("A", "a.>"), stream("T", "t.>")]
    fine = copying("r", "T", entry, on_rejected={"skip": "dead.letters"})
    assert look(fine, default=streams) == {}
    own = copying("r", "T", entry, on_rejected={"skip": "a.dead"})
    assert look(own, default=streams) == {"r": "stream A → rule 'r' puts what is rejected on a.dead → stream A"}
    again = rule("again", "DEAD", "dead.>", "a.again.>")
    found = look(fine, again, default=[*streams, stream("DEAD", "dead.>")])
    assert set(found) == {"r", "again"}


def test_advisories() -> None:
    advisories = {"name": "dlq", "kind": "advisories", "republish": {"src": "$JS.EVENT.ADVISORY.>", "dest": "dlq.>"}}
    streams = [stream("DLQ", "dlq.>"), stream("AUDIT", "$JS.EVENT.ADVISORY.>")]
    assert look(advisories, default=streams) == {}
    found = look(advisories, rule("r", "DLQ", "dlq.>", "$JS.EVENT.ADVISORY.>"), default=streams)
    assert found["dlq"] == (
        "subjects $JS.EVENT.ADVISORY.> → rule 'dlq' republishes the advisories $JS.EVENT.ADVISORY.> to dlq.> →"
        " stream DLQ → rule 'r' republishes dlq.> to $JS.EVENT.ADVISORY.> → subjects $JS.EVENT.ADVISORY.>"
    )
    itself = advisories | {"republish": {"src": "$JS.EVENT.ADVISORY.>", "dest": "$JS.EVENT.ADVISORY.again.>"}}
    assert set(look(itself, default=[])) == {"dlq"}


def test_an_ingress_rule_that_others_feed() -> None:
    into = {"name": "in", "kind": "subject_transform", "stream": "A"}
    into["subject_transform"] = {"src": "in.>", "dest": "a.>"}  # type: ignore[assignment]
    assert look(into, default=[stream("A", "a.>")]) == {}
    found = look(into, rule("back", "A", "a.>", "in.>"), default=[stream("A", "a.>")])
    into_it, out_of_it = "rule 'in' transforms in.> to a.>", "rule 'back' republishes a.> to in.>"
    assert found == {
        "in": f"subjects in.> → {into_it} → stream A → {out_of_it} → subjects in.>",
        "back": f"stream A → {out_of_it} → subjects in.> → {into_it} → stream A",
    }


# -- accounts ----------------------------------------------------------------------------------------------------------


def test_accounts_have_nothing_to_do_with_each_other() -> None:
    across = rule("across", "A", "a.>", "a.>", to="west")
    assert look(across, default=[stream("A", "a.>")], west=[stream("A", "a.>")]) == {}


def test_a_loop_through_two_accounts() -> None:
    there = rule("there", "A", "a.>", "a.>", to="west")
    back = rule("back", "A", "a.>", "a.>", **{"from": "west", "to": "default"})
    found = look(there, back, default=[stream("A", "a.>")], west=[stream("A", "a.>")])
    assert found["there"] == (
        "stream A on 'default' → rule 'there' republishes a.> to a.> → stream A on 'west' →"
        " rule 'back' republishes a.> to a.> → stream A on 'default'"
    )


def test_two_connections_to_one_account() -> None:
    streams = [stream("A", "a.>")]
    reaches = {name: Reach("default", streams, dialect("2.15")) for name in ("default", "second")}
    found = seen([rule("r", "A", "a.>", "a.>", to="second")], reaches)
    assert found == {"r": "stream A → rule 'r' republishes a.> to a.> → stream A"}


def test_two_domains_of_one_account() -> None:
    """They reach the same account, and each has streams of its own, perhaps of the same name."""
    hub, leaf = {"config": {"name": "A", "subjects": ["hub.>"]}, "created": "1"}, stream("A", "leaf.>")
    reaches = {"hub": Reach("hub", [hub], dialect("2.15")), "leaf": Reach("hub", [leaf], dialect("2.15"))}
    there = rule("there", "A", "hub.>", "leaf.>", **{"from": "hub", "to": "hub"})
    back = rule("back", "A", "leaf.>", "hub.>", **{"from": "leaf", "to": "leaf"})
    assert set(seen([there, back], reaches)) == {"there", "back"}
    assert seen([there], reaches) == {}


def test_an_external_source_is_looked_for_on_the_other_connections() -> None:
    external = {"name": "A", "external": {"api": "$JS.west.API"}}
    default = [stream("T", "t.>", sources=[external]), stream("A", "x.>")]
    back = rule("back", "T", "a.>", "a.>", to="west")
    assert set(look(back, default=default, west=[stream("A", "a.>")])) == {"back"}
    assert look(back, default=default, west=[stream("B", "a.>")]) == {}


def test_a_rule_with_a_connection_that_is_not_there_is_left_out() -> None:
    assert look(rule("r", "A", "a.>", "a.>", to="west"), default=[stream("A", "a.>")]) == {}


# -- against a simulation ----------------------------------------------------------------------------------------------

NAMES = "AB"
TRANSFORMS = [
    ("*.*", "$2.$1"),
    ("a.*", "b.$1"),
    ("b.*", "a.$1"),
    ("*.a", "b.$1"),
    ("a.b", "b.a"),
    ("b.a", "a.c"),
    ("*.c", "c.$1"),
    ("c.*.*", "a.$2"),
    ("a.*", "c.$1.a"),
]
RULES = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(TRANSFORMS)), min_size=1, max_size=5)
SUBJECTS = st.fixed_dictionaries(
    {name: st.lists(st.sampled_from(["a.*", "b.*", "*.a", "c.>", "a.b"]), max_size=2) for name in NAMES}
)


@given(RULES, SUBJECTS)
@settings(max_examples=4 * settings.default.max_examples)
def test_a_loop_is_found_where_a_message_loops_and_nowhere_else(
    rules: list[tuple[str, tuple[str, str]]], subjects: dict[str, list[str]]
) -> None:
    """These transforms take every wildcard at most once, so that patterns say exactly what can occur."""
    transforms = [compile_transform(src.encode(), dest.encode()) for _, (src, dest) in rules]
    tokens = ("a", "b", "c", "z")
    alphabet = [".".join(row) for length in (1, 2, 3) for row in product(tokens, repeat=length)]
    after: dict[tuple[str, str], set[tuple[str, str, int]]] = {}
    for name, subject in product(NAMES, alphabet):
        after[name, subject] = set()
        for number, (source, _) in enumerate(rules):
            result = transforms[number].apply(subject.encode()) if source == name else None
            for taker in NAMES if result is not None else ():
                if any(matches(result or b"", pattern.encode()) for pattern in subjects[taker]):
                    after[name, subject].add((taker, (result or b"").decode(), number))
    looping = {
        f"r{number}"
        for start, steps in after.items()
        for taker, result, number in steps
        if start in reached(after, (taker, result))
    }
    found = look(
        *(rule(f"r{number}", name, src, dest) for number, (name, (src, dest)) in enumerate(rules)),
        default=[stream(name, *subjects[name]) for name in NAMES],
    )
    assert set(found) == looping


def reached(after: Mapping[tuple[str, str], set[tuple[str, str, int]]], begin: tuple[str, str]) -> set[tuple[str, str]]:
    """All that a stored message leads to, itself included."""
    known, waiting = {begin}, [begin]
    while waiting:
        for taker, result, _ in after.get(waiting.pop(), ()):
            if (taker, result) not in known:
                known.add((taker, result))
                waiting.append((taker, result))
    return known
