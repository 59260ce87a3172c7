import pickle

import pytest

from nats_transforms import TransformError, dialect
from nats_transforms.destination import CUTTING, KEEPING_WHOLE, Kind
from nats_transforms.republish import Refusal, Republished, StoredMessage, compile_republish
from nats_transforms.selection import HeaderCondition, Unselected
from nats_transforms.timestamp import rfc3339_nano

TIME = 1_700_000_000_149_476_940
OLD, MIDDLE, NEW = "2.9.10", "2.10.27", "2.15.1"


def stored(
    subject: bytes = b"foo.a", block: bytes = b"", payload: bytes = b"hello", sequence: int = 17
) -> StoredMessage:
    return StoredMessage(subject, block, payload, sequence, TIME)


def test_a_message_without_headers_gets_a_block() -> None:
    rule = compile_republish("ORDERS", {"src": "foo.*", "dest": "bar.$1"}, dialect(NEW))
    assert rule.apply(stored(), 3) == Republished(
        b"bar.a",
        b"NATS/1.0\r\n"
        b"Nats-Stream: ORDERS\r\n"
        b"Nats-Subject: foo.a\r\n"
        b"Nats-Sequence: 17\r\n"
        b"Nats-Time-Stamp: 2023-11-14T22:13:20.14947694Z\r\n"
        b"Nats-Last-Sequence: 3\r\n"
        b"\r\n",
        b"hello",
    )


def test_2_9_has_no_time_stamp() -> None:
    rule = compile_republish("S", {"src": "foo.*", "dest": "bar.$1"}, dialect("2.9.25"))
    sent = rule.apply(stored(), 0)
    assert sent is not None
    assert sent.header_block == (
        b"NATS/1.0\r\nNats-Stream: S\r\nNats-Subject: foo.a\r\nNats-Sequence: 17\r\nNats-Last-Sequence: 0\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("version", "stamp"), [(OLD, b""), (MIDDLE, b"Nats-Time-Stamp: 2023-11-14T22:13:20.14947694Z\r\n")]
)
def test_headers_only_sends_the_size_in_bytes_instead_of_the_body(version: str, stamp: bytes) -> None:
    rule = compile_republish("S", {"dest": "bar.>", "headers_only": True}, dialect(version))
    sent = rule.apply(stored(block=b"NATS/1.0\r\nA:1\r\n\r\n", payload="h\u00e9".encode()), 0)
    assert sent == Republished(
        b"bar.foo.a",
        b"NATS/1.0\r\nA:1\r\nNats-Stream: S\r\nNats-Subject: foo.a\r\nNats-Sequence: 17\r\n"
        + stamp
        + b"Nats-Last-Sequence: 0\r\nNats-Msg-Size: 3\r\n\r\n",
        b"",
    )


LINES = (
    b"Nats-Stream: S\r\nNats-Subject: foo.a\r\nNats-Sequence: 17\r\n"
    b"Nats-Time-Stamp: 2023-11-14T22:13:20.14947694Z\r\nNats-Last-Sequence: 0\r\n\r\n"
)


@pytest.mark.parametrize(
    "block",
    [
        b"NATS/1.0\r\nx-lower:v\r\nA:  sp \r\nA: 2\r\n\r\n",
        b"NATS/1.0\r\nNats-Stream: FAKE\r\nNats-Sequence: 99\r\n\r\n",
        b"NATS/1.0 503 Text\r\n\r\n",
        b"Foo: bar\r\n\r\n",
        b"NATS/1.0\r\nE: \xc3\xa9\xff\r\nEmpty:\r\n\r\n",
        # What the server left in when it stored the message, it republishes.
        b"NATS/1.0\r\nA: b\r\nNats-Request-Info: {2}\r\n\r\n",
        # Blocks that end otherwise lose their last two bytes.
        b"Foo: bar",
        b"\r\n",
    ],
)
def test_the_stored_block_is_kept_byte_for_byte(block: bytes) -> None:
    rule = compile_republish("S", {"src": "foo.*", "dest": "bar.$1"}, dialect(NEW))
    sent = rule.apply(stored(block=block), 0)
    assert sent is not None
    assert sent.header_block == block[:-2] + LINES


def test_a_block_of_two_bytes_counts_as_none_on_2_9() -> None:
    rule = compile_republish("S", {"src": "foo.*", "dest": "bar.$1"}, dialect(OLD))
    sent = rule.apply(stored(block=b"\r\n"), 0)
    assert sent is not None
    assert sent.header_block.startswith(b"NATS/1.0\r\nNats-Stream")


def test_what_does_not_match_is_not_republished() -> None:
    rule = compile_republish("S", {"src": "foo.*", "dest": "bar.$1"})
    assert rule.apply(stored(b"other"), 0) is None
    assert rule.destination(b"foo.a.b") is None
    assert rule.refusal(b"foo.a.b") is None


def test_what_exclude_and_where_leave_out_is_not_republished() -> None:
    where = HeaderCondition(b"R", b"eu")
    rule = compile_republish("S", {"src": "foo.*", "dest": "{{split(1,-)}}"}, exclude=[b"*.b-"], where=where)
    eu = b"NATS/1.0\r\nR: eu\r\n\r\n"
    rule = pickle.loads(pickle.dumps(rule))
    assert [rule.destination(subject) for subject in (b"foo.a", b"foo.b-", b"other")] == [b"a", None, None]
    assert rule.refusal(b"foo.b-") is None
    assert rule.apply(stored(block=eu), 0) is not None
    assert rule.unselected(stored(block=eu)) is None
    for message, reason in (
        (stored(), "where: its header R is not 'eu'"),
        (stored(b"foo.b-", eu), "exclude: *.b-"),
        (stored(b"other", eu), "'other' does not match foo.*"),
    ):
        assert rule.apply(message, 0) is None
        assert rule.unselected(message) == Unselected(reason)


@pytest.mark.parametrize("version", [MIDDLE, NEW])
def test_an_empty_destination_republishes_nothing_from_2_10(version: str) -> None:
    rule = compile_republish("S", {}, dialect(version))
    assert rule.apply(stored(), 0) is None
    assert rule.refusal(b"foo.a") is None


def test_an_empty_destination_is_refused_by_2_9() -> None:
    with pytest.raises(TransformError):
        compile_republish("S", {"src": "foo"}, dialect(OLD))


@pytest.mark.parametrize("version", [OLD, MIDDLE, NEW])
def test_results_with_empty_tokens_are_withheld(version: str) -> None:
    rule = compile_republish("S", {"src": "foo.*", "dest": "bar.{{split(1,-)}}"}, dialect(version))
    assert rule.destination(b"foo.-") is None
    assert rule.refusal(b"foo.-") == Refusal("empty_token", b"bar.", native=True)


def test_results_with_wildcard_tokens_are_published_by_old_servers_only() -> None:
    fields = {"src": "foo.*", "dest": "bar.{{split(1,-)}}"}
    for version in (OLD, MIDDLE, "2.12.8", "2.14.0"):
        rule = compile_republish("S", fields, dialect(version))
        assert rule.destination(b"foo.a-*") == b"bar.a.*"
        assert rule.refusal(b"foo.a-*") is None
    for version in ("2.12.9", "2.14.1", NEW):
        rule = compile_republish("S", fields, dialect(version))
        assert rule.destination(b"foo.a-*") is None
        assert rule.refusal(b"foo.a-*") == Refusal("wildcard_token", b"bar.a.*", native=True)


def test_results_with_white_space_are_never_published() -> None:
    fields = {"src": "foo.*", "dest": "b r.$1"}
    assert compile_republish("S", fields, dialect(MIDDLE)).destination(b"foo.a") is None
    assert compile_republish("S", fields, dialect(MIDDLE)).refusal(b"foo.a") == Refusal("white_space", b"b r.a", False)
    newest = compile_republish("S", fields, dialect(NEW))
    assert newest.destination(b"foo.a") is None
    assert newest.refusal(b"foo.a") == Refusal("white_space", b"b r.a", True)
    assert newest.refusal(b"foo.a").reason == "'b r.a' has white space, no client can publish it"  # type: ignore[union-attr]


def test_a_form_feed_is_white_space_for_new_servers_only() -> None:
    fields = {"src": "foo.*", "dest": "bar.$1"}
    assert compile_republish("S", fields, dialect(MIDDLE)).destination(b"foo.a\x0cb") == b"bar.a\x0cb"
    assert compile_republish("S", fields, dialect(NEW)).destination(b"foo.a\x0cb") is None


def test_rest_to_rest_keeps_the_subject() -> None:
    rule = compile_republish("S", {"src": ">", "dest": ">"}, dialect(MIDDLE))
    assert rule.destination(b"a.*") == b"a.*"
    assert compile_republish("S", {"src": ">", "dest": ">"}, dialect(NEW)).destination(b"a.*") is None


def test_each_function_is_known_to_cut_or_keep_its_tokens_whole() -> None:
    # Republish checks each result of a function that is not known to keep tokens whole, which takes three times longer.
    assert set(Kind) == CUTTING | KEEPING_WHOLE | {Kind.LEFT, Kind.RIGHT}


@pytest.mark.parametrize("headers_only", [False, True])
@pytest.mark.parametrize("version", [OLD, NEW])
def test_the_form_for_a_hot_loop_makes_the_same_bytes(version: str, *, headers_only: bool) -> None:
    republish = {"src": "foo.*", "dest": "bar.$1", "headers_only": headers_only}
    rule = compile_republish("S%b", republish, dialect(version))
    sent = rule.apply(stored(block=b"NATS/1.0\r\nA: b\r\n\r\n"), 9)
    assert sent is not None
    assert rule.block(b"foo.a", b"NATS/1.0\r\nA: b\r\n\r\n", 17, TIME, 9, 5) == sent.header_block
    form = rule.lines_form(time=b"%b%b")
    begun, ended = rfc3339_nano(TIME)[:20], rfc3339_nano(TIME)[20:]
    times = (begun, ended) if rule.dialect.republish_time_stamp else (b"",)
    made = b"NATS/1.0\r\nA: b\r\n" + form % (b"foo.a", b"17", *times, b"9", b"5")
    assert made == sent.header_block


@pytest.mark.parametrize("fields", [{"src": 1, "dest": "a"}, {"dest": ["a"]}, {"dest": "a.>", "headers_only": "false"}])
def test_members_of_the_wrong_type_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(TypeError, match=r"^republish "):
        compile_republish("S", fields)


def test_rules_are_values() -> None:
    rule = compile_republish("S", {"src": "foo.*", "dest": "bar.$1"}, dialect(MIDDLE))
    again = pickle.loads(pickle.dumps(rule))
    assert again == rule
    assert again.destination(b"foo.a") == b"bar.a"
