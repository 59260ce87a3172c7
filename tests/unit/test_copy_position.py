"""Where copying resumes, from what a target holds and what the source holds."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_bridge.kinds.copying.position.comparing import (
    Resume,
    SourceMessage,
    after_confirmed,
    compare,
)
from nats_bridge.kinds.copying.position.entry_streams import StoredCopy, is_of_this_source
from nats_bridge.kinds.copying.target import Target
from nats_transforms.source_record import SourceRecord
from nats_transforms.timestamp import nanoseconds_of

KEY = b"012345abcdef"
OTHER = b"012345ffffff"  # the same entry, with an earlier source
ELSEWHERE = b"999999abcdef"  # another entry's
START = 1_000_000  # when the source's first message was stored, in these tests' nanoseconds
STORED = 2_000_000  # when the first copy was


def source_time(sequence: int) -> int:
    return START + sequence


def copy(
    sequence: int,
    subject: bytes | None = None,
    *,
    key: bytes = KEY,
    own_id: bytes | None = None,
    time: int | None = None,
    stored: int = STORED,
) -> StoredCopy:
    """A copy of the source's message `sequence`; `own_id` is its publisher's, `b""` for no id at all."""
    message_id = own_id
    if own_id is None:
        message_id = b"bridge-%b-%d-%d" % (key, sequence, source_time(sequence) if time is None else time)
    record = SourceRecord(b"S", sequence, (b">",), (b">",), b"s")
    return StoredCopy(subject or b"s.%d" % sequence, stored, record, message_id or None)


def message(sequence: int, subject: bytes | None = None, message_id: bytes | None = None) -> SourceMessage:
    return SourceMessage(source_time(sequence), subject or b"s.%d" % sequence, message_id)


def source(*sequences: int) -> dict[int, SourceMessage]:
    return {sequence: message(sequence) for sequence in sequences}


def compared(
    copies: list[StoredCopy],
    held: dict[int, SourceMessage],
    *,
    has_gaps: bool = False,
    forgets: bool = False,
    remembered_since_ns: int = 0,
) -> Resume:
    ids = {copy.message_id for copy in copies if copy.message_id is not None}
    return compare(
        copies,
        held,
        ids=ids,
        has_gaps=has_gaps,
        max_msgs_per_subject=int(forgets),
        remembered_since_ns=remembered_since_ns,
    )


def test_normally_the_highest_is_the_place() -> None:
    assert compared([copy(n) for n in range(1, 6)], source(*range(1, 6))) == Resume(5)
    assert compared([copy(7)], source(7)) == Resume(7)


def test_holes_of_the_source_are_no_missing_copies() -> None:
    # Deleted there, or not selected by the entry.
    assert compared([copy(2), copy(5), copy(9)], source(2, 5, 9)) == Resume(9)


def test_a_message_that_the_source_lost_since_is_no_problem() -> None:
    assert compared([copy(1), copy(2), copy(3)], source(1)) == Resume(3)
    assert compared([copy(1), copy(2), copy(3)], {}) == Resume(3)


def test_what_an_interruption_left_out_is_sent_and_what_came_behind_is_not() -> None:
    resume = compared([copy(1), copy(2), copy(4), copy(5), copy(7)], source(*range(1, 8)))
    assert resume == Resume(2, frozenset({4, 5, 7}), missing=2)


def test_the_order_in_which_copies_are_stored_does_not_matter() -> None:
    held = source(*range(1, 8))
    for order in ((1, 2, 4, 5, 7), (7, 1, 5, 4, 2), (4, 5, 7, 1, 2)):
        assert compared([copy(n) for n in order], held) == Resume(2, frozenset({4, 5, 7}), missing=2)
    assert compared([copy(n) for n in (3, 1, 2)], source(1, 2, 3)) == Resume(3)


def test_what_is_before_the_oldest_copy_that_was_read_is_settled() -> None:
    assert compared([copy(100), copy(101)], source(100, 101)) == Resume(101)


def test_a_copy_that_a_later_one_of_its_subject_replaced_is_not_missing() -> None:
    held = {n: message(n, b"k") for n in (1, 2, 3)}
    copies = [copy(1, b"x"), copy(3, b"k")]
    held[1] = message(1, b"x")
    assert compared(copies, held, forgets=True) == Resume(3)
    assert compared(copies, held, forgets=False) == Resume(1, frozenset({3}), missing=1)


def test_a_copy_is_only_replaced_by_a_later_one() -> None:
    held = {1: message(1, b"k"), 2: message(2, b"x"), 3: message(3, b"k"), 4: message(4, b"y")}
    # 3 is on subject k as well, but the copy of k that is there is older.
    copies = [copy(1, b"k"), copy(2, b"x"), copy(4, b"y")]
    assert compared(copies, held, forgets=True) == Resume(2, frozenset({4}), missing=1)


def test_copies_deleted_in_the_target_long_ago_are_not_made_again() -> None:
    copies = [copy(1, stored=STORED), copy(2, stored=STORED + 10), copy(5, stored=STORED + 20)]
    held = source(*range(1, 6))
    # The ids of 3 and 4 may be forgotten: sending them again would store what a client deleted.
    assert compared(copies, held, has_gaps=True, remembered_since_ns=STORED + 21) == Resume(5, assumed=2)
    # Here they are remembered: nothing that was deleted can come back, and what is missing does.
    expected = Resume(2, frozenset({5}), missing=2)
    assert compared(copies, held, has_gaps=True, remembered_since_ns=STORED + 20) == expected
    # A target without gaps has deleted nothing.
    assert compared(copies, held, has_gaps=False, remembered_since_ns=STORED + 21) == expected


def test_a_message_with_an_id_that_is_there_was_skipped_by_the_target() -> None:
    held = {n: message(n, message_id=b"order-1" if n in (2, 3) else None) for n in range(1, 5)}
    copies = [copy(1), copy(2, own_id=b"order-1"), copy(4)]
    assert compared(copies, held) == Resume(4)
    held[3] = message(3, message_id=b"order-2")
    assert compared(copies, held) == Resume(2, frozenset({4}), missing=1)


def test_the_first_of_two_with_one_id_may_be_the_one_that_is_missing() -> None:
    held = {n: message(n, message_id=b"order-1" if n in (2, 3) else None) for n in range(1, 5)}
    assert compared([copy(1), copy(3, own_id=b"order-1"), copy(4)], held) == Resume(4)


def test_copies_of_messages_that_the_source_lost_do_not_count() -> None:
    # Its server lost 4 and 5 and gave these sequences again, to other messages.
    copies = [copy(1), copy(2), copy(3), copy(4, time=17), copy(5, time=18)]
    resume = compared(copies, source(*range(1, 6)))
    assert resume == Resume(3, foreign=2)


def test_a_publishers_id_shows_that_the_source_still_has_a_copied_message() -> None:
    # It lost 3, and gave 3 to 5 to other messages. 4 and 5 have ids of their publisher.
    held = {n: message(n, message_id=b"order-%d" % n if n > 3 else None) for n in range(2, 7)}
    copies = [copy(2), copy(3, time=17), copy(3), copy(4, own_id=b"order-4"), copy(5, own_id=b"order-5")]
    resume = compared(copies, held)
    assert (resume.resume_after, resume.foreign, resume.recognised) == (5, 1, 5)
    assert compared([copy(2), copy(3, own_id=b"")], held).recognised == 0


def test_if_all_copies_are_of_lost_messages_the_whole_source_is_sent() -> None:
    copies = [copy(4, time=17), copy(5, time=18)]
    assert compared(copies, source(4, 5)) == Resume(3, foreign=2, all_lost=True)


def test_a_removed_message_older_than_one_before_it_was_lost_as_well() -> None:
    # 4 was lost and given again. 5 is gone, and its copy is older than the new 4: it was lost, too.
    copies = [copy(4, time=17), copy(5, time=18)]
    assert compared(copies, source(4)) == Resume(3, foreign=2, all_lost=True)
    assert compared([copies[0], copy(5)], source(4)) == Resume(3, frozenset({5}), missing=1, foreign=1)


def test_new_messages_behind_lost_ones_are_recognised() -> None:
    # 4 was lost and given again; its copy was made, and an interruption left 5 out.
    copies = [copy(3), copy(4, time=17), copy(4), copy(6)]
    assert compared(copies, source(3, 4, 5, 6)) == Resume(4, frozenset({6}), missing=1, foreign=1)


def test_a_copy_of_a_lost_message_behind_its_successor_does_not_hide_it() -> None:
    copies = [copy(3), copy(4), copy(4, time=17)]
    assert compared(copies, source(3, 4)) == Resume(4, foreign=1)


def test_a_message_with_another_id_is_another_message() -> None:
    # Its server lost 2 and gave the sequence again.
    held = {n: message(n, message_id=b"new-%d" % n) for n in (1, 2)}
    assert compared([copy(1, own_id=b"new-1"), copy(2, own_id=b"new-2")], held) == Resume(2)
    assert compared([copy(1, own_id=b"new-1"), copy(2, own_id=b"old-2")], held) == Resume(1, foreign=1)
    assert compared([copy(1, own_id=b"new-1"), copy(2, own_id=b"")], held) == Resume(1, foreign=1)
    held[2] = message(2)
    assert compared([copy(1, own_id=b"new-1"), copy(2, own_id=b"old-2")], held) == Resume(1, foreign=1)


def test_a_message_that_is_a_copy_itself_may_have_its_id_or_ours() -> None:
    inherited = b"bridge-aaaaaabbbbbb-40-77"
    held = {n: message(n, message_id=inherited if n == 2 else None) for n in (1, 2, 3)}
    assert compared([copy(1), copy(2), copy(3)], held) == Resume(3)
    # Made by the server, which keeps every id.
    assert compared([copy(1), copy(2, own_id=inherited), copy(3)], held) == Resume(3)


def test_copies_without_any_id_count() -> None:
    assert compared([copy(1, own_id=b""), copy(3, own_id=b"")], source(1, 2, 3)) == Resume(1, frozenset({3}), missing=1)


SEQUENCES = st.sets(st.integers(1, 30), min_size=1, max_size=20)


@given(held=SEQUENCES, lost=st.sets(st.integers(1, 30)), gone=st.sets(st.integers(1, 30)), data=st.data())
def test_nothing_is_sent_twice_and_nothing_between_two_copies_is_left_out(
    held: set[int], lost: set[int], gone: set[int], data: st.DataObject
) -> None:
    """`lost`: not stored by the target; `gone`: deleted in the source since."""
    stored = sorted(held - lost)
    if not stored:
        return
    order = data.draw(st.permutations(stored))
    read = {n for n in held - gone if stored[0] <= n <= stored[-1]}
    resume = compared([copy(n) for n in order], source(*read))
    behind = {n for n in held - gone if n > resume.resume_after and n not in resume.already_stored}
    sent_again = behind & set(stored)
    assert not sent_again
    left_out = {n for n in read - set(stored) if n not in behind}
    assert not left_out
    assert resume.missing == len(read - set(stored))
    assert resume.already_stored <= set(stored)
    assert all(n > resume.resume_after for n in resume.already_stored)


SINCE = START  # when the newest copy of an earlier source was stored


def of_this_source(*copies: StoredCopy) -> list[StoredCopy]:
    return [copy for copy in copies if is_of_this_source(copy, KEY, SINCE)]


def test_copies_of_earlier_sources_are_left_out() -> None:
    old = [copy(8, key=OTHER), copy(9, own_id=b"order-9", stored=SINCE), copy(9, own_id=b"", stored=SINCE)]
    new = [copy(1), copy(2, own_id=b"order-2", stored=SINCE + 1), copy(3, own_id=b"", stored=SINCE + 5)]
    assert of_this_source(*old, *new) == new
    assert of_this_source(*old) == []
    # A copy made under the present key stays, whatever the clocks say.
    early = copy(1, stored=SINCE)
    assert of_this_source(early) == [early]


def test_copies_with_foreign_ids_count_unless_their_record_is_ambiguous() -> None:
    inherited = copy(2, key=ELSEWHERE, stored=SINCE + 1)
    assert of_this_source(copy(1), inherited) == [copy(1), inherited]
    # The records of 2.9 name the stream only: here the id shows that it is another entry's copy.
    open_record = StoredCopy(b"s.2", SINCE + 1, SourceRecord(b"S", 2), inherited.message_id)
    assert of_this_source(copy(1), open_record) == [copy(1)]


def test_behind_what_is_confirmed_each_hole_is_reported_once() -> None:
    copies = [copy(n) for n in (9, 10, 12, 15, 16)]
    newer = [one for one in copies if one.record.sequence > 10]
    found = compared(newer, source(11, 12, 14, 15, 16))  # 13 is deleted there, or not selected by the entry
    resume = after_confirmed(10, copies, found, ())
    assert resume == Resume(10, frozenset({12, 15, 16}), missing=2)
    assert resume.missing_sequences == {11, 14}
    assert after_confirmed(10, copies, found, resume.missing_sequences).missing == 0
    further = compared([*newer, copy(18)], source(11, 12, 14, 15, 16, 17, 18))
    assert after_confirmed(10, [*copies, copy(18)], further, resume.missing_sequences).missing == 1


def test_replaced_copies_behind_the_confirmed_ones_are_not_missing() -> None:
    held = {11: message(11, b"s.x"), 12: message(12, b"s.x")}
    found = compared([copy(12, b"s.x")], held, forgets=True)
    assert after_confirmed(10, [copy(12, b"s.x")], found, ()) == Resume(10, frozenset({12}))


def test_what_counts_as_deleted_follows_the_targets_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"name": "T", "subjects": ["t.>"]}
    info = {"config": config, "created": "2026-01-01T00:00:00Z", "state": {"messages": 0, "bytes": 0}}
    days_ahead = nanoseconds_of("2026-01-04T00:00:00Z")
    monkeypatch.setattr(time, "time_ns", lambda: days_ahead)
    assert Target.of({**info, "ts": "2026-01-01T00:00:05Z"}, "2.15.1").now_ns == nanoseconds_of("2026-01-01T00:00:05Z")
    assert Target.of(info, "2.9.10").now_ns == days_ahead


@pytest.mark.parametrize(
    ("config", "state", "may_have"),
    [
        ({}, {"first_seq": 2}, True),
        ({"max_msgs_per_subject": 1}, {"first_seq": 2}, False),
        ({"allow_rollup_hdrs": True}, {"first_seq": 2}, False),
        ({"max_msgs_per_subject": 1, "max_age": 1}, {"first_seq": 1}, False),
        ({"max_msgs_per_subject": 1, "max_age": 1}, {"first_seq": 2}, True),
        ({"max_msgs_per_subject": 1, "allow_msg_ttl": True}, {"first_seq": 2}, True),
        ({"max_msgs_per_subject": 1, "max_msgs": 5}, {"first_seq": 2, "messages": 4}, False),
        ({"max_msgs_per_subject": 1, "max_msgs": 5}, {"first_seq": 2, "messages": 5}, True),
        ({"max_msgs_per_subject": 1, "max_bytes": 500}, {"first_seq": 2, "bytes": 100}, False),
        ({"max_msgs_per_subject": 1, "max_bytes": 500}, {"first_seq": 2, "bytes": 400}, True),
    ],
)
def test_whether_a_target_may_have_removed_its_first_messages(
    config: dict[str, object], state: dict[str, int], may_have: bool
) -> None:
    info = {"config": config, "state": {"messages": 0, "bytes": 0, **state}}
    assert Target.may_have_removed_first(info) == may_have
