import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_transforms.copy_id import LINE_START, CopyId, entry_key, line_pattern, line_template, without_copy_id
from nats_transforms.dialect import dialect
from nats_transforms.sourcing import compile_sourcing

CREATED = "2026-01-01T00:00:00.123456789Z"
ENTRIES: list[dict[str, Any]] = [
    {"name": "S"},
    {"name": "T"},
    {"name": "S", "filter_subject": "a.*"},
    {"name": "S", "filter_subject": "a.b"},
    {"name": "S", "subject_transforms": [{"src": "a.*", "dest": "b.$1"}]},
    {"name": "S", "subject_transforms": [{"src": "a.*", "dest": "b.{{wildcard(1)}}"}]},
    {"name": "S", "subject_transforms": [{"src": "a.*", "dest": "b.$1"}, {"src": "c", "dest": ""}]},
    {"name": "S", "subject_transforms": [{"src": "c", "dest": ""}, {"src": "a.*", "dest": "b.$1"}]},
    {"name": "S", "external": {"api": "JSA.API"}},
    {"name": "S", "external": {"api": "JSB.API"}},
]


def key(entry: dict[str, Any], created: str = CREATED, **more: Any) -> bytes:
    return entry_key(compile_sourcing(entry, **more), created)


def test_entries_that_select_or_name_something_else_have_keys_of_their_own() -> None:
    assert len({key(entry) for entry in ENTRIES}) == len(ENTRIES)


def test_a_new_source_of_the_same_name_has_a_key_of_its_own() -> None:
    assert key(ENTRIES[0]) != key(ENTRIES[0], "2026-01-01T00:00:00.123456790Z")


def test_a_key_lasts_over_changes_that_move_no_message() -> None:
    for entry in ENTRIES:
        # Where to begin and what to leave out are not part of what a copy is.
        assert key(entry) == key({**entry, "opt_start_seq": 17}) == key(entry, exclude=[b"a.x"]) == key(entry)
    assert key({"name": "S"}) == key({"name": "S", "filter_subject": ">"})
    assert key(ENTRIES[4]) == entry_key(compile_sourcing(ENTRIES[4], dialect("2.10.27")), CREATED)


def test_a_key_is_twelve_hexadecimal_digits_and_stays_what_it_is() -> None:
    # Stored in targets indefinitely: another value would copy everything again.
    assert key({"name": "ORDERS"}) == b"71ab1b25b469"
    assert key(ENTRIES[4]) == b"a26804181b21"


def test_texts_do_not_run_into_each_other() -> None:
    a = {"name": "S", "subject_transforms": [{"src": "a", "dest": ""}, {"src": "b", "dest": ""}]}
    b = {"name": "S", "subject_transforms": [{"src": "a", "dest": "b"}]}
    assert key(a) != key(b)


@given(st.sampled_from(ENTRIES), st.integers(0, 2**64 - 1), st.integers(0, 2**63 - 1))
def test_an_id_is_read_as_it_was_written(entry: dict[str, Any], sequence: int, time_ns: int) -> None:
    copy_id = CopyId(key(entry), sequence, time_ns)
    assert CopyId.parse(copy_id.format()) == copy_id
    line = line_template(copy_id.entry) % (b"%d" % sequence, b"%d" % time_ns)
    assert line == b"Nats-Msg-Id: %b\r\n" % copy_id.format()
    assert line.startswith(LINE_START)
    for pattern in (line_pattern(), line_pattern(copy_id.entry)):
        found = re.fullmatch(pattern + rb"\r\n", line)
        assert found is not None
        assert (found["entry"], int(found["sequence"]), int(found["time"])) == (copy_id.entry, sequence, time_ns)
    assert re.search(line_pattern(b"0123456789ab"), line) is None


def test_targets_hold_ids_of_this_form() -> None:
    # Stored in targets indefinitely, as the keys are.
    assert (
        CopyId(b"0123456789ab", 7, 1_700_000_000_000_000_000).format() == b"bridge-0123456789ab-7-1700000000000000000"
    )


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"order-1",
        b"bridge-",
        b"bridge-0123456789ab-7",
        b"bridge-0123456789ab-7-",
        b"bridge-0123456789ab--7-1",
        b"bridge-0123456789a-7-1",
        b"bridge-0123456789abc-7-1",
        b"bridge-0123456789AB-7-1",
        b"bridge-0123456789ab-7-1-2",
        b"bridge-0123456789ab-7-1\n",
        b" bridge-0123456789ab-7-1",
        b"xbridge-0123456789ab-7-1",
        b"bridge-0123456789ab-123456789012345678901-1",
    ],
)
def test_what_a_publisher_gave_is_not_taken_for_ours(value: bytes | None) -> None:
    assert CopyId.parse(value) is None


def test_the_first_half_of_a_key_stays_when_the_source_is_a_new_one() -> None:
    old, new = key(ENTRIES[0]), key(ENTRIES[0], "2027-01-01T00:00:00Z")
    assert CopyId(old, 1, 1).is_of(new)
    assert not CopyId(key(ENTRIES[1]), 1, 1).is_of(new)
    assert len({key(entry)[:6] for entry in ENTRIES}) == len(ENTRIES)


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (b"", b""),
        (b"NATS/1.0\r\nNats-Msg-Id: bridge-0123456789ab-7-1\r\n\r\n", b""),
        (
            b"NATS/1.0\r\nA: 1\r\nNats-Msg-Id: bridge-0123456789ab-7-1\r\nB: 2\r\n\r\n",
            b"NATS/1.0\r\nA: 1\r\nB: 2\r\n\r\n",
        ),
        (b"NATS/1.0\r\nNats-Msg-Id: bridge-to-nowhere\r\n\r\n",) * 2,
        (b"NATS/1.0\r\nNats-Msg-Id: order-1\r\nX: bridge-0123456789ab-7-1\r\n\r\n",) * 2,
    ],
)
def test_the_id_of_an_earlier_copy_is_taken_out_and_a_publishers_is_not(block: bytes, expected: bytes) -> None:
    assert without_copy_id(block) == expected
