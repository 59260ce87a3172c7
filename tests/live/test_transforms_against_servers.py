"""Random transforms and subjects, decided and carried out by the engine and by real servers: the same, each time.

Republish is asked on every version, with the destination's first token fixed so that it forms no cycle; what a
stream's ingress transform stores is asked where there is one (2.10 on). Examples are derived, not drawn anew, so a
run repeats; `NATS_BRIDGE_EXAMPLES` makes more of them, from another seed each time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, TypeAlias

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from conformance.servers import SharedServers
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.sidecar_process import sequence_of
from transforms import StreamConfigError, compile_transform, dialect
from transforms.dialect import Dialect
from transforms.republish import compile_republish
from transforms.stream_config import validate
from transforms.subject import tokens

MORE = int(os.environ.get("NATS_BRIDGE_EXAMPLES", "0"))
BOUNDED = settings(
    max_examples=MORE or 1000,
    derandomize=not MORE,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

Case: TypeAlias = tuple[str, str, list[str]]

PLAIN = st.sampled_from(["foo", "a", "b-c", "$x", "*x", ">x", "é", "{{}}", "日本"])
SOURCE_TOKENS = st.one_of(st.just("*"), st.just("*"), PLAIN)
WORDS = st.text(alphabet="ab-@_é日$*>", min_size=1, max_size=9)
GOOD_NUMBERS = st.integers(-3, 12).map(str)
ODD_NUMBERS = [
    "0",
    "-1",
    "+2",
    "02",
    "x",
    "1.5",
    "2147483647",
    "2147483648",
    "-2147483649",
    "4294967298",
    "99999999999999999999",
]
NUMBERS = st.one_of(GOOD_NUMBERS, GOOD_NUMBERS, GOOD_NUMBERS, st.sampled_from([*ODD_NUMBERS, "", " 2 "]))
GOOD_INDEXES = st.sampled_from(["1", "1", "1", "2"])
INDEXES = st.one_of(GOOD_INDEXES, GOOD_INDEXES, GOOD_INDEXES, st.sampled_from(["2", "3", "0", "-1", " 1", "9", "x"]))
DELIMITERS = st.sampled_from(["-", "--", "@", "é", "ab", "", " ", "_-", "日"])
NAMES = st.sampled_from(
    ["split", "splitFromLeft", "splitFromRight", "sliceFromLeft", "sliceFromRight", "left", "right"]
)


def spelled(name: str) -> st.SearchStrategy[str]:
    return st.sampled_from([*[name] * 6, name[0].upper() + name[1:], name.lower(), name.upper(), name + "s"])


def call(name: st.SearchStrategy[str], arguments: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    forms = [*["{{%s(%s)}}"] * 8, "{{ %s (%s) }}", "{{x%s(%s)}}", "{{%s(%s)}}x", "{%s(%s)}"]
    return st.builds(lambda form, called, given: form % (called, given), st.sampled_from(forms), name, arguments)


def joined(*parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*parts).map(",".join)


FUNCTIONS = st.one_of(
    call(st.just("wildcard").flatmap(spelled), st.one_of(INDEXES, joined(INDEXES, INDEXES))),
    call(
        st.just("partition").flatmap(spelled),
        st.one_of(NUMBERS, joined(NUMBERS, INDEXES), joined(NUMBERS, INDEXES, INDEXES)),
    ),
    call(NAMES.flatmap(spelled), st.one_of(joined(INDEXES, NUMBERS), joined(INDEXES, DELIMITERS), INDEXES)),
    call(st.just("split"), joined(INDEXES, DELIMITERS)),
    call(st.just("random"), st.sampled_from(["0", "1", "-1", "1,1", "x"])),
)
DESTINATION_TOKENS = st.one_of(
    FUNCTIONS, FUNCTIONS, st.sampled_from(["$1", "$2", "$0", "$-1", "$01", "$1a", "$9"]), PLAIN
)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A source, a destination, and subjects most of which match the source."""
    source = draw(st.lists(SOURCE_TOKENS, min_size=1, max_size=3))
    if draw(st.integers(0, 4)):
        source.append("*")
    destination = draw(st.lists(DESTINATION_TOKENS, min_size=1, max_size=3))
    rest = draw(st.sampled_from([0] * 8 + [1] * 5 + [2]))
    if rest:
        source.append(">")
    if rest == 1:
        destination.append(">")
    if draw(st.integers(0, 29)) == 0:
        (source if draw(st.booleans()) else destination).insert(0, draw(st.sampled_from(["", "*", ">"])))
    subjects = []
    for _ in range(draw(st.integers(2, 6))):
        made = [draw(WORDS) if token[0] == "*" else token for token in source if token and token != ">"]
        made += draw(st.lists(WORDS, max_size=3)) if rest else []
        if made and draw(st.integers(0, 5)) == 0:
            made[draw(st.integers(0, len(made) - 1))] = draw(WORDS)
        subjects.append(".".join(["s", *(made or ["x"])]))
    return ".".join(["s", *source]), ".".join(["d", *destination]), subjects


def engine_decision(config: dict[str, Any], server: Dialect) -> dict[str, Any] | None:
    try:
        validate(config, server)
    except StreamConfigError as error:
        return dict(error.as_dict())
    return None


async def server_decision(peer: RawPeer, config: dict[str, Any]) -> dict[str, Any] | None:
    answer = await peer.api(f"STREAM.CREATE.{config['name']}", config)
    error = answer.get("error")
    return {key: error[key] for key in ("code", "err_code", "description")} if error else None


def receivable(subject: bytes | None) -> bytes | None:
    """What a subscriber can get: nothing under a subject with an empty token."""
    return None if subject is None or b"" in tokens(subject) else subject


@BOUNDED
@given(case=cases())
@example(case=("s.*.*", "d.{{partition(10,1,2)}}.$2", ["s.a.b", "s.é.日本", "s.a", "s.*.b"]))
@example(case=("s.*", "d.{{split(1,-)}}", ["s.--a", "s.---", "s.a-b--c-"]))
@example(case=("s.*.*", "d.{{wildcard(1)}}.{{split( 1,0)}}x", ["s.>.>"]))
async def test_republish(
    case: Case, servers: SharedServers, unique_name: Callable[[str], str], raw_peer: OpenPeer
) -> None:
    source, destination, subjects = case
    for version in ("2.9.10", "2.10.27", "2.15.1"):
        peer = await _peer(version, servers, raw_peer)
        server = dialect(version)
        name = unique_name("t")
        prefixed = [subject.replace("s.", f"{name}s.", 1) for subject in subjects]
        republish = {"src": source.replace("s.", f"{name}s.", 1), "dest": destination.replace("d.", f"{name}d.", 1)}
        config = {"name": name, "subjects": [f"{name}s.>"], "storage": "memory", "republish": republish}
        decided = await server_decision(peer, config)
        assert decided == engine_decision(config, server), (version, republish)
        if decided is not None:
            continue
        engine = compile_republish(name, republish, server)
        transform = compile_transform(republish["src"].encode(), republish["dest"].encode(), server)
        # A defect ends the server; old servers send subjects with spaces, which break the protocol for any client.
        end = f"{name}s.the.end"
        broken = any(b" " in (transform.apply(subject.encode()) or b"") for subject in [*prefixed, end])
        if not transform.defects and not (broken and not server.republish_suppresses_invalid_subject):
            seen = await peer.collect(f"{name}d.>")
            for subject in prefixed:
                peer.publish(subject.encode())
            # Republished messages and acknowledgements leave the stream in one order.
            await peer.store(end.encode())
            got = {sequence_of(message): message[0] for message in seen.messages}
            for sequence, subject in enumerate(prefixed, 1):
                expected = receivable(engine.destination(subject.encode()))
                assert got.get(sequence) == expected, (version, republish, subject)
        await peer.api(f"STREAM.DELETE.{name}")


@BOUNDED
@given(case=cases())
async def test_ingress(
    case: Case, servers: SharedServers, unique_name: Callable[[str], str], raw_peer: OpenPeer
) -> None:
    source, destination, subjects = case
    for version in ("2.10.27", "2.15.1"):
        peer = await _peer(version, servers, raw_peer)
        server = dialect(version)
        name = unique_name("i")
        prefixed = [subject.replace("s.", f"{name}s.", 1).encode() for subject in subjects]
        transform = {"src": source.replace("s.", f"{name}s.", 1), "dest": destination.replace("d.", f"{name}d.", 1)}
        config = {"name": name, "subjects": [f"{name}s.>"], "storage": "memory", "subject_transform": transform}
        decided = await server_decision(peer, config)
        assert decided == engine_decision(config, server), (version, transform)
        if decided is not None:
            continue
        engine = compile_transform(transform["src"].encode(), transform["dest"].encode(), server)
        if not engine.defects:
            for subject in prefixed:
                peer.publish(subject)
            await peer.store(f"{name}s.the.end".encode())
            stored = await peer.collect(f"{name}stored")
            consumer = {"deliver_subject": f"{name}stored", "ack_policy": "none"}
            await peer.api(f"CONSUMER.CREATE.{name}", {"stream_name": name, "config": consumer})
            got = [subject for subject, _, _, _ in await stored.count(len(prefixed) + 1)]
            expected = [_transformed(engine.apply(subject), subject) for subject in prefixed]
            assert got[:-1] == expected, (version, transform, prefixed)
        await peer.api(f"STREAM.DELETE.{name}")


async def test_random_stays_in_its_range(
    servers: SharedServers, unique_name: Callable[[str], str], raw_peer: OpenPeer
) -> None:
    peer = await raw_peer(await servers.url("2.15.1"))
    for text, values in (("3", {0, 1, 2}), ("-3", {0, 1, 2}), ("1", {0}), ("0", {0})):
        name = unique_name("r")
        republish = {"src": f"{name}s.*", "dest": f"{name}d.{{{{random({text})}}}}"}
        await peer.create_stream(name=name, subjects=[f"{name}s.>"], storage="memory", republish=republish)
        seen = await peer.collect(f"{name}d.>")
        for _ in range(200):
            peer.publish(f"{name}s.x".encode())
        await peer.store(f"{name}s.the.end".encode())
        engine = compile_republish(name, republish, dialect("2.15.1"))
        ours = [engine.destination(f"{name}s.x".encode()) or b"" for _ in range(200)]
        theirs = [subject for subject, _, _, _ in seen.messages]
        assert len(theirs) == 200
        # All values come up in 200 draws, save with a chance of less than one in 10**34.
        assert {int(subject.rpartition(b".")[2]) for subject in theirs} == values
        assert {int(subject.rpartition(b".")[2]) for subject in ours} == values


async def _peer(version: str, servers: SharedServers, raw_peer: OpenPeer) -> RawPeer:
    """One connection per version for all examples of a test, until an example breaks it."""
    known: dict[str, RawPeer] = _peers.setdefault(id(raw_peer), {})
    if version not in known or known[version].client.is_closed:
        known[version] = await raw_peer(await servers.url(version))
    return known[version]


_peers: dict[int, dict[str, RawPeer]] = {}


def _transformed(result: bytes | None, subject: bytes) -> bytes:
    return subject if result is None else result


def test_cases_are_worth_it() -> None:
    """Most cases are accepted somewhere; a strategy that makes only refusals proves nothing."""
    accepted = 0
    made: list[Case] = []

    @settings(max_examples=200, derandomize=True, database=None)
    @given(case=cases())
    def make(case: Case) -> None:
        made.append(case)

    make()
    for source, destination, _ in made:
        config = {"name": "S", "subjects": ["s.>"], "republish": {"src": source, "dest": destination}}
        accepted += engine_decision(json.loads(json.dumps(config)), dialect("2.15.1")) is None
    assert accepted > len(made) / 3
