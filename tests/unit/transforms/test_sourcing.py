from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nats_transforms.dialect import dialect
from nats_transforms.errors import TransformError
from nats_transforms.header_block import append
from nats_transforms.republish import Refusal, StoredMessage
from nats_transforms.source_record import HEADER, TWIN_HEADER, first_record
from nats_transforms.sourcing import Copied, Sourcing, compile_sourcing
from nats_transforms.subject import is_valid_publish, matches

PLAIN: dict[str, Any] = {"name": "S"}


def entry(*transforms: tuple[str, str], **more: Any) -> dict[str, Any]:
    return {"name": "S", "subject_transforms": [{"src": src, "dest": dest} for src, dest in transforms], **more}


def message(subject: bytes, block: bytes = b"", payload: bytes = b"p") -> StoredMessage:
    return StoredMessage(subject, block, payload, 7, 10**18)


@pytest.mark.parametrize("subject", [b"a", b"a.b.c", b"$KV.B.k", b"\xff", b"a b", b"a..b", b"a.*"])
def test_an_entry_without_anything_copies_everything_as_it_is(subject: bytes) -> None:
    assert compile_sourcing(PLAIN).destination(subject) == subject
    assert compile_sourcing({**PLAIN, "filter_subject": ">"}).destination(subject) == subject


def test_a_filter_selects_and_changes_nothing() -> None:
    sourcing = compile_sourcing({**PLAIN, "filter_subject": "a.*"})
    assert [sourcing.destination(subject) for subject in (b"a.b", b"a", b"a.b.c", b"b.b", b"A.b")] == [
        b"a.b",
        None,
        None,
        None,
        None,
    ]
    assert sourcing.filters == (b"a.*",)


def test_the_first_transform_that_matches_wins() -> None:
    sourcing = compile_sourcing(entry(("a.x", "one"), ("a.*", "two.$1"), ("a.>", "three.>")))
    assert [sourcing.destination(subject) for subject in (b"a.x", b"a.y", b"a.y.z", b"b")] == [
        b"one",
        b"two.y",
        b"three.y.z",
        None,
    ]


def test_a_transform_without_a_destination_leaves_subjects_to_the_others() -> None:
    # Filters that overlap in part work from 2.15 on; seen on 2.15.1.
    sourcing = compile_sourcing(entry(("a.*.x", ""), ("a.b.*", "two.$1")))
    subjects = (b"a.c.x", b"a.b.x", b"a.b.y", b"b.x.x")
    assert [sourcing.destination(subject) for subject in subjects] == [b"a.c.x", b"two.x", b"two.y", None]
    assert sourcing.record_destinations == (b">", b"two.$1")


@pytest.mark.parametrize("subject", [b"a.*", b"a.>", b"a."])
def test_a_filtered_subject_that_no_transform_matches_keeps_its_name(subject: bytes) -> None:
    # A client can publish `a.*`, which matches as a filter does and never as a transform's source does.
    sourcing = compile_sourcing(entry((">", "t.>"), ("a.*", "u.$1")))
    assert sourcing.destination(subject) == subject


@pytest.mark.parametrize(
    "filters", [{"filter_subject": "a.>"}, {"subject_transforms": [{"src": "a.>", "dest": "b.>"}]}]
)
def test_what_is_excluded_is_left_out_before_any_transform(filters: dict[str, Any]) -> None:
    sourcing = compile_sourcing({**PLAIN, **filters}, exclude=[b"a.secret.>", b"*.x", b"b.y"])
    assert sourcing.destination(b"a.secret.key") is None
    assert sourcing.destination(b"a.x") is None
    # `b.y` is the name of the copy, not of the message.
    assert sourcing.destination(b"a.y") is not None
    assert sourcing.destination(b"a.secret") is not None


def test_a_transform_without_a_source_means_everything() -> None:
    assert compile_sourcing(entry(("", "t.>"))).destination(b"a.b") == b"t.a.b"
    assert compile_sourcing(entry(("", ""))).destination(b"a.b") == b"a.b"
    assert compile_sourcing(entry(("", ""))).filters == ()


@pytest.mark.parametrize(
    ("dest", "subject", "code"),
    [
        ("t.{{split(1,-)}}", b"a.--", "empty_token"),
        ("t.{{splitfromleft(1,1)}}", b"a.*b", "wildcard_token"),
        ("t.{{splitfromleft(1,1)}}", b"a.>b", "wildcard_token"),
        ("t.$1", b"a.b\tc", "white_space"),
    ],
)
def test_what_no_client_can_publish_is_refused_with_its_reason(dest: str, subject: bytes, code: str) -> None:
    sourcing = compile_sourcing(entry(("a.*", dest)))
    refusal = sourcing.refusal(subject)
    assert refusal is not None
    assert refusal.code == code
    # A server stores it.
    assert not refusal.native
    assert sourcing.apply(message(subject)) == refusal
    assert sourcing.destination(subject) == refusal.destination


def test_what_is_copied_or_not_selected_has_no_refusal() -> None:
    sourcing = compile_sourcing(entry(("a.*", "t.$1")))
    assert sourcing.refusal(b"a.b") is None
    assert sourcing.refusal(b"b") is None
    assert sourcing.apply(message(b"b")) is None


@pytest.mark.parametrize(
    ("given_entry", "source", "filters", "destinations"),
    [
        (PLAIN, b"S", (b">",), (b">",)),
        ({**PLAIN, "filter_subject": "a.*"}, b"S", (b"a.*",), (b">",)),
        (entry(("a.*", "b.$1"), ("c", "")), b"S", (b"a.*", b"c"), (b"b.$1", b">")),
        (entry(("", "b.>")), b"S", (b">",), (b"b.>",)),
        # Field 4 ends at the first space, whatever comes behind it.
        (entry(("a.*", "b.{{split(1, -)}}.$1")), b"S", (b"a.*",), (b"b.{{split(1,",)),
        (
            entry(("a.*", "b.$1"), ("c.*", "{{ wildcard(1)}}"), ("d", "e")),
            b"S",
            (b"a.*", b"c.*", b"d"),
            (b"b.$1", b"{{"),
        ),
        ({**PLAIN, "external": {"api": "JSA.API"}}, b"S:4i8oqjfX", (b">",), (b">",)),
        ({**PLAIN, "external": {"api": "JSA.API", "deliver": "d"}}, b"S:4i8oqjfX", (b">",), (b">",)),
        ({**PLAIN, "external": None, "subject_transforms": None}, b"S", (b">",), (b">",)),
    ],
)
def test_the_record_names_what_is_configured(
    given_entry: dict[str, Any], source: bytes, filters: tuple[bytes, ...], destinations: tuple[bytes, ...]
) -> None:
    sourcing = compile_sourcing(given_entry)
    assert (sourcing.source, sourcing.record_filters, sourcing.record_destinations) == (source, filters, destinations)
    record = first_record(append(b"", [(HEADER, sourcing.record(3, b"x"))]))
    assert record is not None
    assert sourcing.is_own(record)
    assert (record.sequence, record.subject) == (3, b"x")


@pytest.mark.parametrize(
    ("version", "mirrors", "kept"),
    [
        ("2.9.10", False, b"Nats-Expected-Stream: S\r\nNats-Batch-Id: 1\r\n"),
        ("2.10.13", False, b"Nats-Expected-Stream: S\r\nNats-Batch-Id: 1\r\n"),
        ("2.10.27", False, b"Nats-Batch-Id: 1\r\n"),
        ("2.10.27", True, b"Nats-Expected-Stream: S\r\nNats-Batch-Id: 1\r\n"),
        ("2.11.4", True, b"Nats-Expected-Stream: S\r\nNats-Batch-Id: 1\r\n"),
        ("2.11.5", True, b"Nats-Batch-Id: 1\r\n"),
        ("2.12.0", False, b""),
        ("2.15.1", True, b""),
    ],
)
def test_what_may_not_travel_is_taken_out_as_in_the_dialect(version: str, mirrors: bool, kept: bytes) -> None:
    sourcing = compile_sourcing(PLAIN, dialect(version), mirrors=mirrors)
    lines = b"Nats-Expected-Stream: S\r\nNats-Batch-Id: 1\r\n"
    block = b"NATS/1.0\r\nA: 1\r\n" + lines + b"B:2\r\n\r\n"
    assert sourcing.bare(block) == b"NATS/1.0\r\nA: 1\r\n" + kept + b"B:2\r\n\r\n"
    assert sourcing.bare(b"NATS/1.0\r\n" + lines + b"\r\n") == (b"NATS/1.0\r\n" + kept + b"\r\n" if kept else b"")


def test_each_time_that_a_message_is_stored_it_loses_one_request_info() -> None:
    # Publishing took out the first of three; each copy takes out another one (2.9.10 to 2.11.17).
    block = b"NATS/1.0\r\nNats-Request-Info: 2\r\nA: 1\r\nNats-Request-Info: 3\r\n\r\n"
    for version, mirrors in (("2.9.10", True), ("2.10.27", True), ("2.10.27", False)):
        once = compile_sourcing(PLAIN, dialect(version), mirrors=mirrors).bare(block)
        assert once == b"NATS/1.0\r\nA: 1\r\nNats-Request-Info: 3\r\n\r\n"


@pytest.mark.parametrize(
    "line",
    [
        b"nats-expected-stream: S",
        b"Nats-Expected: S",
        b"X: Nats-Expected-Stream: S",
        b"Nats-Msg-Id: 1",
        b"Nats-Rollup: sub",
        b"Nats-TTL: 5",
        b"Nats-Stream: S",
        b"KV-Operation: DEL",
        b"A:  spaces  ",
    ],
)
def test_everything_else_travels(line: bytes) -> None:
    block = b"NATS/1.0\r\n" + line + b"\r\n\r\n"
    sourcing = compile_sourcing(PLAIN)
    assert sourcing.bare(block) == block
    assert sourcing.without_records(block) == block


def test_of_a_chain_of_copies_only_the_last_record_stays() -> None:
    earlier = b"Nats-Stream-Source: X 7 > >\r\nNats-Bridge-Source: Y 8 > >\r\nNats-Stream-Source: Z 9 > >\r\n"
    block = b"NATS/1.0\r\nA: 1\r\n" + earlier + b"Nats-Stream-Sourced: no\r\n\r\n"
    copy = compile_sourcing(PLAIN).apply(message(b"s", block))
    assert isinstance(copy, Copied)
    assert copy.header_block == b"NATS/1.0\r\nA: 1\r\nNats-Stream-Sourced: no\r\nNats-Stream-Source: S 7 > > s\r\n\r\n"
    only = b"NATS/1.0\r\nNats-Stream-Source: X 7 > >\r\n\r\n"
    assert compile_sourcing(PLAIN).without_records(only) == b""
    assert compile_sourcing(PLAIN).block(only, b"r") == b"NATS/1.0\r\nNats-Stream-Source: r\r\n\r\n"


@pytest.mark.parametrize(
    ("version", "left"), [("2.9.10", b"Y 8"), ("2.10.27", b"Y 8"), ("2.11.17", b""), ("2.15.1", b"")]
)
def test_old_servers_take_out_the_first_earlier_record_alone(version: str, left: bytes) -> None:
    block = b"NATS/1.0\r\nNats-Stream-Source: X 7\r\nA: 1\r\nNats-Stream-Source: Y 8\r\n\r\n"
    second = b"Nats-Stream-Source: %b\r\n" % left if left else b""
    expected = b"NATS/1.0\r\nA: 1\r\n" + second + b"Nats-Stream-Source: r\r\n\r\n"
    assert compile_sourcing(PLAIN, dialect(version)).block(block, b"r") == expected


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (b"", b"NATS/1.0\r\n"),
        (b"NATS/1.0\r\n\r\n", b"NATS/1.0\r\n"),
        (b"NATS/1.0 503 No\r\nA: 1\r\n\r\n", b"NATS/1.0 503 No\r\nA: 1\r\n"),
        (b"Foo: bar\r\n\r\n", b"Foo: bar\r\n"),
        # The server cuts two bytes, whatever they are.
        (b"Foo: bar", b"Foo: b"),
        (b"NATS/1.0\r\nNats-Expected-Stream: S\r\n\r\n", b"NATS/1.0\r\n"),
        (b"NATS/1.0 503 No\r\nNats-Expected-Stream: S\r\n\r\n", b"NATS/1.0 503 No\r\n"),
    ],
)
def test_the_record_stands_behind_what_was_there(stored: bytes, expected: bytes) -> None:
    assert compile_sourcing(PLAIN).block(stored, b"r") == expected + b"Nats-Stream-Source: r\r\n\r\n"


def test_an_identity_stands_in_the_record_where_it_is_known() -> None:
    for version, expected in (("2.15.1", b"S 7 > > s IDENTITY"), ("2.14.5", b"S 7 > > s"), ("2.9.10", b"S 7")):
        copy = compile_sourcing(PLAIN, dialect(version)).apply(message(b"s"), b"IDENTITY")
        assert isinstance(copy, Copied)
        assert copy.header_block == b"NATS/1.0\r\nNats-Stream-Source: %b\r\n\r\n" % expected


@pytest.mark.parametrize(
    "bad", [("a.*", "b.{{wildcard(2)}}"), ("a..b", "x"), ("a.*", "b.{{nothing(1)}}"), ("a.>", "b")]
)
def test_what_the_server_refuses_is_refused(bad: tuple[str, str]) -> None:
    with pytest.raises(TransformError):
        compile_sourcing(entry(bad))


def test_left_and_right_in_sources_are_refused_where_servers_do() -> None:
    each = entry(("a.*", "b.{{left(1,2)}}"))
    with pytest.raises(TransformError):
        compile_sourcing(each, dialect("2.10.27"))
    assert compile_sourcing(each, dialect("2.10.27"), mirrors=True).destination(b"a.xyz") == b"b.xy"
    assert compile_sourcing(each, dialect("2.15.1")).destination(b"a.xyz") == b"b.xy"


@pytest.mark.parametrize("wrong", [{"name": 3}, {"name": "S", "filter_subject": ["a"]}])
def test_members_of_a_wrong_type_are_errors(wrong: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        compile_sourcing(wrong)


TOKENS = st.sampled_from([b"a", b"b", b"x-y", b"*", b">", b"--", b"\xff", b"a b", b""])
SUBJECTS = st.lists(TOKENS, min_size=1, max_size=4).map(b".".join)
TRANSFORMS = st.lists(
    st.sampled_from(
        [
            ("a.*", "t.$1"),
            ("a.>", "t.>"),
            ("a.*", "t.{{split(1,-)}}"),
            ("*.*", "t.{{partition(3,1,2)}}.$2"),
            ("b.>", ""),
            (">", "t.>"),
            ("", ""),
            ("x-y", "t.{{partition(5)}}"),
        ]
    ),
    max_size=4,
)
LINES = st.lists(
    st.sampled_from(
        [
            b"A: 1",
            b"A:",
            b"Nats-Msg-Id: i",
            b"Nats-Expected-Stream: S",
            b"Nats-Expected-Last-Sequence: 4",
            b"Nats-Batch-Id: 1",
            b"Nats-Stream-Source: X 7 > >",
            b"Nats-Bridge-Source: X 7 > >",
            b"X: Nats-Stream-Source: X 7 > >",
            b"Nats-Rollup: sub",
        ]
    ),
    max_size=5,
)
DIALECTS = st.sampled_from(["2.9.10", "2.10.13", "2.10.27", "2.11.17", "2.12.15", "2.15.1"]).map(dialect)


def compiled(transforms: Sequence[tuple[str, str]], chosen: Any, **more: Any) -> Sourcing | None:
    try:
        return compile_sourcing(entry(*transforms), chosen, **more)
    except TransformError:
        return None


@given(TRANSFORMS, DIALECTS, st.booleans(), st.lists(st.sampled_from([b"a.>", b"b", b"*.b"]), max_size=2), SUBJECTS)
def test_destination_refusal_and_copy_agree(
    transforms: list[tuple[str, str]], chosen: Any, mirrors: bool, exclude: list[bytes], subject: bytes
) -> None:
    sourcing = compiled(transforms, chosen, mirrors=mirrors, exclude=exclude)
    if sourcing is None:
        return
    destination, refusal = sourcing.destination(subject), sourcing.refusal(subject)
    copy = sourcing.apply(message(subject))
    if destination is None:
        assert refusal is None
        assert copy is None
    elif refusal is not None:
        assert isinstance(copy, Refusal)
        assert copy == refusal
        assert refusal.destination == destination
        assert not is_valid_publish(destination)
    else:
        assert isinstance(copy, Copied)
        assert (copy.subject, copy.payload) == (destination, b"p")
        assert is_valid_publish(destination)
    selected = not sourcing.filters or any(matches(subject, pattern) for pattern in sourcing.filters)
    assert (destination is not None) == (selected and not any(matches(subject, pattern) for pattern in exclude))


@given(TRANSFORMS, DIALECTS, LINES)
def test_a_copy_holds_its_record_and_the_lines_that_travel_in_their_order(
    transforms: list[tuple[str, str]], chosen: Any, lines: list[bytes]
) -> None:
    sourcing = compiled(transforms, chosen)
    if sourcing is None:
        return
    block = b"NATS/1.0\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n" if lines else b""
    copy = sourcing.block(block, sourcing.record(9, b"a.b"))
    stays = [line for line in lines if not line.startswith((HEADER, TWIN_HEADER))]
    if not chosen.copies_lose_every_earlier_record:
        assume(sum(HEADER in line for line in lines) < 2)  # tests of their own, above
    if chosen.sourcing_strips_expectations:
        stays = [line for line in stays if not line.startswith(b"Nats-Expected-")]
    if chosen.copies_lose_batch_headers:
        stays = [line for line in stays if not line.startswith(b"Nats-Batch-")]
    assert copy.split(b"\r\n")[1:-3] == stays
    record = first_record(copy)
    assert record is not None
    assert record.sequence == 9
    assert sourcing.is_own(record)


@given(st.binary(max_size=60), DIALECTS)
def test_blocks_of_any_bytes_end_in_their_record(block: bytes, chosen: Any) -> None:
    sourcing = compile_sourcing(PLAIN, chosen)
    record = sourcing.record(9, b"a.b")
    copy = sourcing.block(block, record)
    assert copy.endswith(b"Nats-Stream-Source: " + record + b"\r\n\r\n")
    if b"Nats-" not in block and len(block) > 1:
        assert copy.startswith(block[:-2])
