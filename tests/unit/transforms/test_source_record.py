import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_transforms.dialect import NEWEST, dialect
from nats_transforms.source_record import (
    HEADER,
    TWIN_HEADER,
    SourceRecord,
    consumed_name,
    external_name,
    first_record,
    last_record,
)

FULL = SourceRecord(b"SRC", 4, (b"foo.*",), (b"bar.$1",), b"foo.k4", b"dIAxtmQ4")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"SRC 4", SourceRecord(b"SRC", 4)),
        (b"SRC 4 foo.* bar.$1", SourceRecord(b"SRC", 4, (b"foo.*",), (b"bar.$1",))),
        (b"SRC 4 foo.* bar.$1 foo.k4", SourceRecord(b"SRC", 4, (b"foo.*",), (b"bar.$1",), b"foo.k4")),
        (b"SRC 4 foo.* bar.$1 foo.k4 dIAxtmQ4", FULL),
        # What a later version may add does not hide what is known.
        (b"SRC 4 foo.* bar.$1 foo.k4 dIAxtmQ4 and more", FULL),
        (b"SRC:4i8oqjfX 18446744073709551615 > >", SourceRecord(b"SRC:4i8oqjfX", 2**64 - 1, (b">",), (b">",))),
        (
            b"SRC 3 foo.a\x0cfoo.b.>\x0cfoo.c ta\x0c>\x0ctc",
            SourceRecord(b"SRC", 3, (b"foo.a", b"foo.b.>", b"foo.c"), (b"ta", b">", b"tc")),
        ),
        (b"SRC 3 a {{wildcard(1)}}", SourceRecord(b"SRC", 3, (b"a",), (b"{{wildcard(1)}}",))),
        ("Ströme 3 a b é".encode(), SourceRecord("Ströme".encode(), 3, (b"a",), (b"b",), "é".encode())),
        (b"S 3 a b \xff\xfe", SourceRecord(b"S", 3, (b"a",), (b"b",), b"\xff\xfe")),
    ],
)
def test_every_number_of_fields_is_read(value: bytes, expected: SourceRecord) -> None:
    assert SourceRecord.parse(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"$JS.ACK.SRC.cons.1.17.3.1700000000000000000.0", SourceRecord(b"SRC", 17)),
        (b"$JS.ACK.hub.AbC123.SRC.cons.1.17.3.1700000000000000000.0", SourceRecord(b"SRC", 17)),
        (b"$JS.ACK._.AbC123.SRC.cons.1.17.3.1700000000000000000.0.token", SourceRecord(b"SRC", 17)),
        (b"$JS.ACK.SRC.cons.1.17.3", None),
        (b"$JS.ACK.SRC.cons.1.x.3.1700000000000000000.0", None),
        (b"$JS.ACK..cons.1.17.3.1700000000000000000.0", None),
        (b"$JS.ACK.", None),
    ],
)
def test_the_reply_subjects_of_very_old_servers_are_read(value: bytes, expected: SourceRecord | None) -> None:
    assert SourceRecord.parse(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b" ",
        b"SRC",
        b"SRC ",
        b" 4",
        b"SRC x",
        b"SRC -4",
        b"SRC 4.0",
        b"SRC +4",
        b"SRC  4",
        b"SRC \xb24",
        b"\xff",
        b"SRC 4 foo.*",
    ],
)
def test_what_is_no_record_is_none(value: bytes) -> None:
    assert SourceRecord.parse(value) is None


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2.9.10", b"SRC 4"),
        ("2.9.25", b"SRC 4"),
        ("2.10.0", b"SRC 4 foo.* bar.$1"),
        ("2.11.17", b"SRC 4 foo.* bar.$1"),
        ("2.12.0", b"SRC 4 foo.* bar.$1 foo.k4"),
        ("2.14.5", b"SRC 4 foo.* bar.$1 foo.k4"),
        ("2.15.1", b"SRC 4 foo.* bar.$1 foo.k4 dIAxtmQ4"),
    ],
)
def test_each_dialect_writes_the_fields_that_its_server_writes(version: str, expected: bytes) -> None:
    assert FULL.value(dialect(version)) == expected


def test_what_is_empty_shows_as_everything() -> None:
    assert SourceRecord(b"SRC", 4).value(NEWEST) == b"SRC 4 > >"
    assert SourceRecord(b"SRC", 4, (b"",), (b"",), b"s").value(NEWEST) == b"SRC 4 > > s"
    assert SourceRecord(b"SRC", 4, (b"a", b""), (b"", b"b"), b"s").value(NEWEST) == b"SRC 4 a\x0c> >\x0cb s"


def test_an_identity_that_would_be_read_as_a_subject_is_left_out() -> None:
    assert SourceRecord(b"SRC", 4, identity=b"dIAxtmQ4").value(NEWEST) == b"SRC 4 > >"


def test_a_record_is_of_the_entry_with_the_same_texts() -> None:
    assert FULL.is_of(b"SRC", (b"foo.*",), (b"bar.$1",))
    assert not FULL.is_of(b"src", (b"foo.*",), (b"bar.$1",))
    assert not FULL.is_of(b"SRC:4i8oqjfX", (b"foo.*",), (b"bar.$1",))
    assert not FULL.is_of(b"SRC", (b"foo.>",), (b"bar.$1",))
    # The same function written differently is another text, for servers too.
    assert not FULL.is_of(b"SRC", (b"foo.*",), (b"bar.{{wildcard(1)}}",))


def test_an_empty_text_and_the_sign_for_everything_are_the_same_entry() -> None:
    record = SourceRecord(b"SRC", 4, (b">",), (b">",))
    assert record.is_of(b"SRC", (b"",), (b"",))
    assert SourceRecord(b"SRC", 4, (b"",), (b"",)).is_of(b"SRC", (b">",), (b">",))


def test_several_filters_are_compared_in_their_order() -> None:
    record = SourceRecord(b"SRC", 4, (b"a", b"b"), (b"x", b">"))
    assert record.is_of(b"SRC", (b"a", b"b"), (b"x", b""))
    assert not record.is_of(b"SRC", (b"b", b"a"), (b"", b"x"))
    assert not record.is_of(b"SRC", (b"a",), (b"x",))


@pytest.mark.parametrize("value", [b"SRC 4", b"$JS.ACK.SRC.cons.1.17.3.1700000000000000000.0"])
def test_the_oldest_forms_belong_to_every_entry_of_their_stream(value: bytes) -> None:
    record = SourceRecord.parse(value)
    assert record is not None
    assert record.is_of(b"SRC", (b"foo.*",), (b"bar.$1",))
    assert record.is_of(b"SRC", (b">",), (b">",))
    assert not record.is_of(b"OTHER", (b">",), (b">",))


@pytest.mark.parametrize(
    ("stream", "api", "expected"),
    [
        # As 2.9.10, 2.10.27 and 2.15.1 wrote it for a stream of another account.
        (b"SRC", b"JSA.API", b"SRC:4i8oqjfX"),
        (b"", b"JSA.API", b":4i8oqjfX"),
    ],
)
def test_an_external_source_carries_the_hash_of_its_prefix(stream: bytes, api: bytes, expected: bytes) -> None:
    assert external_name(stream, api) == expected


def test_a_source_that_is_read_by_a_consumer_carries_the_hash_of_its_name() -> None:
    # As 2.14.9 and 2.15.1 wrote it.
    assert consumed_name(b"O", b"c") == b"O:C=k1i3jIye"


def test_the_hash_is_of_the_text_and_not_of_what_it_reaches() -> None:
    names = {external_name(b"S", api) for api in (b"", b"JSA.API", b"JSA.API.", b"jsa.api", b"$JS.hub.API")}
    assert len(names) == 5
    assert all(len(name) == 10 and name[2:].isalnum() for name in names)


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (b"", None),
        (b"NATS/1.0\r\n\r\n", None),
        (b"NATS/1.0\r\nNats-Stream-Source: S 4 > >\r\n\r\n", 4),
        (b"NATS/1.0\r\nNats-Stream-Source:S 4 > >\r\n\r\n", 4),
        (b"NATS/1.0\r\nNats-Stream-Source: \tS 4\t\r\n\r\n", 4),
        (b"NATS/1.0\r\nNats-Stream-Source: S 4", 4),
        # The first one counts, even if it is none.
        (b"NATS/1.0\r\nNats-Stream-Source: S 4\r\nNats-Stream-Source: S 5\r\n\r\n", 4),
        (b"NATS/1.0\r\nNats-Stream-Source: ?\r\nNats-Stream-Source: S 5\r\n\r\n", None),
        # Names are case-sensitive and whole.
        (b"NATS/1.0\r\nnats-stream-source: S 4\r\n\r\n", None),
        (b"NATS/1.0\r\nNats-Stream-Source : S 4\r\n\r\n", None),
        (b"NATS/1.0\r\nNats-Stream-Sourced: S 4\r\n\r\n", None),
        (b"NATS/1.0\r\nMy-Nats-Stream-Source: S 4\r\n\r\n", None),
        (b"NATS/1.0\r\nX: Nats-Stream-Source: S 4\r\nNats-Stream-Source: S 5\r\n\r\n", 5),
        # The first line is never a header.
        (b"Nats-Stream-Source: S 4\r\n\r\n", None),
        (b"Foo: bar\r\nNats-Stream-Source: S 4\r\n\r\n", 4),
        (b"NATS/1.0\r\nNats-Bridge-Source: S 4\r\n\r\n", None),
    ],
)
def test_the_first_line_of_the_name_counts(block: bytes, expected: int | None) -> None:
    record = first_record(block)
    assert (record and record.sequence) == expected
    twin = first_record(block.replace(HEADER, TWIN_HEADER), TWIN_HEADER)
    if TWIN_HEADER not in block:
        assert (twin and twin.sequence) == expected


def test_the_bridges_own_name_is_another_header() -> None:
    block = b"NATS/1.0\r\nNats-Bridge-Source: S 4 > >\r\nNats-Stream-Source: T 9 > >\r\n\r\n"
    assert first_record(block) == SourceRecord(b"T", 9, (b">",), (b">",))
    assert first_record(block, TWIN_HEADER) == SourceRecord(b"S", 4, (b">",), (b">",))


NAMES = st.from_regex(rb"\A[A-Za-z_-]{1,8}(:[0-9A-Za-z]{8})?\Z")
TEXTS = st.from_regex(rb"\A[!-~]{1,8}\Z")
SUBJECTS = st.from_regex(rb"\A[!-~\x80-\xff]{1,8}\Z")
RECORDS = st.builds(
    SourceRecord,
    NAMES,
    st.integers(0, 2**64 - 1),
    st.lists(TEXTS, min_size=1, max_size=3).map(tuple),
    st.lists(TEXTS, min_size=1, max_size=3).map(tuple),
    SUBJECTS,
    st.from_regex(rb"\A([0-9A-Za-z]{8})?\Z"),
)


@given(RECORDS)
def test_what_is_written_is_read_again(record: SourceRecord) -> None:
    assert SourceRecord.parse(record.value(NEWEST)) == record
    for version in ("2.9.10", "2.10.27", "2.12.15"):
        read = SourceRecord.parse(record.value(dialect(version)))
        assert read is not None
        assert (read.source, read.sequence) == (record.source, record.sequence)
        assert record.filters is not None
        assert record.destinations is not None
        assert read.is_of(record.source, record.filters, record.destinations)


@given(RECORDS, st.sampled_from([HEADER, TWIN_HEADER]))
def test_what_is_appended_to_a_block_is_found_there(record: SourceRecord, header: bytes) -> None:
    block = b"NATS/1.0\r\nA: 1\r\n%b: %b\r\n\r\n" % (header, record.value(NEWEST))
    assert first_record(block, header) == record


@given(st.binary(max_size=40))
def test_every_strange_value_is_checked(value: bytes) -> None:
    record = SourceRecord.parse(value)
    assert record is None or record.sequence >= 0
    first_record(value)
    first_record(b"NATS/1.0\r\nNats-Stream-Source:" + value)


RECORD = b"S 7 > > s.a"
FIRED = b"Nats-Scheduler: t.every\r\nNats-Schedule-Next: purge\r\n"
REPUBLISHED = b"Nats-Stream: T\r\nNats-Subject: t.a\r\nNats-Sequence: 3\r\nNats-Last-Sequence: 2\r\n"


@pytest.mark.parametrize("name", [HEADER, TWIN_HEADER])
@pytest.mark.parametrize(
    ("before", "behind", "counts"),
    [
        (b"", b"", True),
        (b"A: 1\r\nNats-Msg-Id: x\r\n", b"", True),
        (b"Nats-Stream-Source: X 9\r\nNats-Bridge-Source: Y 9\r\n", b"", True),
        (b"", b'Nats-Counter-Sources: {"S":{"s.a":"5"}}\r\n', True),
        (b"", b"Nats-Msg-Size: 5\r\n", True),
        (b"", b"Nats-Request-Info: {}\r\nNats-Msg-Size: 5\r\n", True),
        (b"", FIRED, False),
        (b"", FIRED + b"Nats-TTL: 1h\r\nNats-Rollup: sub\r\n", False),
        (b"", REPUBLISHED, False),
        (b"", REPUBLISHED + b"Nats-Msg-Size: 5\r\n", False),
        (b"", b"Nats-Stream-Source: T 1 > >\r\n", False),
        (b"", b"A: 1\r\n", False),
    ],
)
def test_a_record_before_lines_of_another_server_is_of_another_copy(
    name: bytes, before: bytes, behind: bytes, counts: bool
) -> None:
    found = last_record(b"NATS/1.0\r\n" + before + name + b": " + RECORD + b"\r\n" + behind + b"\r\n")
    assert (found == SourceRecord.parse(RECORD)) is counts


@pytest.mark.parametrize(
    "block", [b"", b"\r\n", b"X", b"NATS/1.0\r\n\r\n", b"NATS/1.0\r\nA: 1\r\n\r\n", b"Foo: bar\r\n\r\n"]
)
def test_without_a_record_there_is_no_last_one(block: bytes) -> None:
    assert last_record(block) is None
