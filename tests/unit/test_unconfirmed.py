"""The answers about messages in flight: every way to ask, and every unexpected answer."""

from __future__ import annotations

from typing import Any

import pytest

from nats_bridge.client.wire import Delivered
from nats_bridge.errors import RuleRefusedError
from nats_bridge.kinds.copying.counters import CopyCounters
from nats_bridge.kinds.copying.encoder import Operation
from nats_bridge.kinds.copying.target import Target
from nats_bridge.kinds.copying.writing.publishing import LostTrackError, Unconfirmed

INBOX = b"_INBOX.x."
SECOND = 1_000_000_000


def tracker(
    *, exclusive: bool = False, keeps_sequence: bool = False, window: float = 120, last: int = 0, **more: Any
) -> Unconfirmed:
    config: dict[str, Any] = {"name": "T", "subjects": ["t.>"], "duplicate_window": int(window * SECOND), **more}
    info = {"config": config, "created": "2026-01-01T00:00:00Z", "state": {"messages": 0, "bytes": 0}}
    found = Unconfirmed(
        Target.of(info, "2.10.27"), INBOX, CopyCounters(), exclusive=exclusive, keeps_sequence=keeps_sequence
    )
    found.messages.last = last
    return found


def operations(*numbers: int) -> list[Operation]:
    return [(b"%d" % number, b"PUB t.%d 1\r\nx\r\n" % number) for number in numbers]


def asked(data: bytes) -> list[tuple[int, bytes]]:
    """Of each written message: its number, and the end of its reply subject; empty where it has none."""
    found = []
    for line in data.split(b"\r\n")[0::2][:-1]:
        fields = line.split(b" ")
        found.append((int(fields[1][2:]), fields[2].removeprefix(INBOX) if len(fields) == 4 else b""))
    return found


def answer(name: bytes, rest: bytes) -> Delivered:
    return (INBOX + name, b"", b"", rest)


def stored(name: bytes, *sequences: int) -> list[Delivered]:
    return [answer(name, b'{"stream":"T", "seq":%d}' % sequence) for sequence in sequences]


def duplicate(name: bytes, sequence: int) -> Delivered:
    return answer(name, b'{"stream":"T", "seq":%d,"duplicate": true}' % sequence)


def refused(name: bytes, code: int = 400, err_code: int = 10054) -> Delivered:
    said = b'{"error":{"code":%d,"err_code":%d,"description":"no"},"stream":"T","seq":0}'
    return answer(name, said % (code, err_code))


def take(unconfirmed: Unconfirmed, answers: list[Delivered], now: float = 1.0) -> tuple[bool, bool]:
    """As a publisher does with a read."""
    done = unconfirmed.take(answers, now)
    return unconfirmed.sort_out(answers[done:], now) if done < len(answers) else (False, False)


def numbers(unconfirmed: Unconfirmed) -> list[int]:
    return [int(name) for name, _ in unconfirmed.messages.operations]


def test_the_messages_of_a_group_ask_with_one_reply_subject() -> None:
    unconfirmed = tracker()
    names = asked(unconfirmed.add(operations(*range(1, 71)), 1.0))
    assert [number for number, _ in names] == list(range(1, 71))
    assert [name for _, name in names] == [b"g64"] * 64 + [b"g70"] * 6
    assert unconfirmed.messages.size == sum(len(data) for _, data in operations(*range(1, 71)))


@pytest.mark.parametrize("learned", [False, True])
def test_a_group_is_confirmed_by_its_last_answer_however_reads_are_cut(learned: bool) -> None:
    unconfirmed = tracker(last=10)
    before = 0
    if learned:
        unconfirmed.add(operations(1), 1.0)
        assert take(unconfirmed, stored(b"g1", 11)) == (False, False)
        before = 1
    unconfirmed.add(operations(2, 3, 4), 1.0)
    unconfirmed.add(operations(5, 6), 1.0)
    assert take(unconfirmed, stored(b"g4", 12, 15)) == (False, False)
    assert (unconfirmed.messages.last_confirmed, unconfirmed.messages.last) == ((1, 11) if learned else (0, 10))
    assert take(unconfirmed, [*stored(b"g4", 16), *stored(b"g6", 17)]) == (False, False)
    assert (unconfirmed.messages.last_confirmed, unconfirmed.messages.last) == (4, 16)
    assert numbers(unconfirmed) == [5, 6]
    assert take(unconfirmed, stored(b"g6", 99)) == (False, False)
    assert (unconfirmed.messages.last_confirmed, unconfirmed.messages.last, unconfirmed.messages.size) == (6, 99, 0)
    counters = unconfirmed.messages.counters
    assert (counters.copied, counters.duplicates, counters.asked_again) == (5 + before, 0, 0)


@pytest.mark.parametrize("answers", [[503], [503, 13], [12, 503], [503, 503]])
def test_no_responders_are_no_confirmation_of_a_message_in_a_group(answers: list[int]) -> None:
    unconfirmed = tracker(last=10)
    unconfirmed.add(operations(1), 1.0)
    assert take(unconfirmed, stored(b"g1", 11)) == (False, False)
    unconfirmed.add(operations(2, 3), 1.0)
    no_responders = (INBOX + b"g3", b"", b"NATS/1.0 503\r\n\r\n", b"")
    with pytest.raises(LostTrackError, match="503"):
        take(unconfirmed, [no_responders if each == 503 else stored(b"g3", each)[0] for each in answers])
    assert numbers(unconfirmed) == [2, 3]


def test_duplicates_in_a_group_are_counted_and_no_reason_to_ask_again() -> None:
    unconfirmed = tracker(last=50)
    unconfirmed.add(operations(1, 2, 3), 1.0)
    assert take(unconfirmed, [duplicate(b"g3", 7), *stored(b"g3", 51), duplicate(b"g3", 8)]) == (False, False)
    counters = unconfirmed.messages.counters
    assert (counters.copied, counters.duplicates) == (1, 2)
    assert (unconfirmed.messages.last_confirmed, unconfirmed.messages.last) == (3, 51)


def test_duplicates_only() -> None:
    unconfirmed = tracker(last=50)
    unconfirmed.add(operations(1, 2), 1.0)
    take(unconfirmed, [duplicate(b"g2", 7), duplicate(b"g2", 8)])
    assert (unconfirmed.messages.counters.copied, unconfirmed.messages.counters.duplicates) == (0, 2)
    assert (unconfirmed.messages.last_confirmed, unconfirmed.messages.last) == (2, 50)


def test_a_later_group_may_be_answered_first() -> None:
    # In a cluster, a duplicate is answered for before what is being replicated.
    unconfirmed = tracker()
    unconfirmed.add(operations(1, 2), 1.0)
    unconfirmed.add(operations(3, 4), 1.0)
    take(unconfirmed, [duplicate(b"g4", 1), duplicate(b"g4", 2)])
    assert numbers(unconfirmed) == [1, 2, 3, 4]
    take(unconfirmed, stored(b"g2", 3, 4))
    assert numbers(unconfirmed) == []
    assert (
        unconfirmed.messages.counters.copied,
        unconfirmed.messages.counters.duplicates,
        unconfirmed.messages.last,
    ) == (2, 2, 4)


def test_after_a_refusal_each_message_is_asked_for_alone() -> None:
    unconfirmed = tracker()
    unconfirmed.add(operations(1, 2), 1.0)
    unconfirmed.add(operations(3, 4, 5), 1.0)
    assert take(unconfirmed, [*stored(b"g2", 1, 2), *stored(b"g5", 3), refused(b"g5")]) == (True, True)
    assert asked(unconfirmed.request_again(2.0)) == [(3, b"3"), (4, b"4"), (5, b"5")]
    assert unconfirmed.messages.counters.asked_again == 3
    # The rest of the first answers belong to no message: they do not show which one is stored.
    assert take(unconfirmed, stored(b"g5", 4)) == (False, False)
    assert numbers(unconfirmed) == [3, 4, 5]
    # While something is in flight, what follows asks for itself, too.
    assert asked(unconfirmed.add(operations(6), 2.0)) == [(6, b"6")]
    assert not unconfirmed.each.all_answered
    take(unconfirmed, [duplicate(b"3", 3), refused(b"4"), duplicate(b"5", 4), *stored(b"6", 5)])
    assert unconfirmed.each.all_answered
    assert numbers(unconfirmed) == [4, 5, 6]
    operation, pub_ack = unconfirmed.each.first_unstored()
    assert (operation, pub_ack.kind) == (operations(4)[0], "refused")
    unconfirmed.messages.skip()
    unconfirmed.each.settle(2.0)
    assert numbers(unconfirmed) == []
    counters = unconfirmed.messages.counters
    assert (counters.copied, counters.duplicates, counters.out_of_order) == (5, 0, 0)
    assert (unconfirmed.messages.last_confirmed, unconfirmed.messages.last, unconfirmed.messages.size) == (6, 5, 0)
    # With nothing in flight, groups begin again.
    assert asked(unconfirmed.add(operations(7, 8), 3.0)) == [(7, b"g8"), (8, b"g8")]


def test_what_was_stored_behind_later_ones_is_counted() -> None:
    unconfirmed = tracker()
    unconfirmed.add(operations(1, 2, 3, 4, 5), 1.0)
    assert take(unconfirmed, [*[refused(b"g5", 503, 10023)] * 3, *stored(b"g5", 1, 2)]) == (True, True)
    unconfirmed.request_again(1.0)
    take(unconfirmed, [*stored(b"1", 3), *stored(b"2", 4)])
    take(unconfirmed, [*stored(b"3", 5), duplicate(b"4", 1), duplicate(b"5", 2)])
    assert numbers(unconfirmed) == []
    counters = unconfirmed.messages.counters
    assert (counters.out_of_order, counters.copied, unconfirmed.messages.last) == (3, 5, 5), "1, 2 and 3"


def test_a_message_behind_later_ones_is_counted_before_their_turn() -> None:
    """The round, or the process, can end before it."""
    unconfirmed = tracker(window=10)
    unconfirmed.add(operations(1, 2, 3, 4), 1.0)
    take(unconfirmed, [refused(b"1", 503, 10023), refused(b"2", 503, 10023), *stored(b"3", 1), *stored(b"4", 2)])
    counted = []
    for name in (b"1", b"2"):
        unconfirmed.each.first_unstored()
        take(unconfirmed, stored(name, 2 + int(name)))
        counted.append(unconfirmed.messages.counters.out_of_order)
    assert (counted, numbers(unconfirmed)) == ([1, 2], [])


def test_each_message_behind_some_of_the_later_ones_is_counted_once() -> None:
    unconfirmed = tracker(window=10)
    unconfirmed.add(operations(1, 2, 3, 4), 1.0)
    take(unconfirmed, [*stored(b"4", 1), *stored(b"3", 2), *stored(b"2", 3)])
    take(unconfirmed, stored(b"1", 4))
    assert numbers(unconfirmed) == []
    assert unconfirmed.messages.counters.out_of_order == 3, "1, 2 and 3"


@pytest.mark.parametrize("options", [{"window": 10}, {"window": 10, "alone": True}, {"keeps_sequence": True}])
def test_each_message_asks_for_itself_if_asking_again_could_be_too_late(options: dict[str, Any]) -> None:
    unconfirmed = tracker(**options)
    assert asked(unconfirmed.add(operations(1, 2), 1.0)) == [(1, b"1"), (2, b"2")]
    assert take(unconfirmed, [*stored(b"1", 1), *stored(b"2", 2)]) == (False, False)
    assert (unconfirmed.messages.last_confirmed, unconfirmed.messages.counters.copied) == (2, 2)


def test_what_could_be_stored_twice_is_not_asked_for_again() -> None:
    unconfirmed = tracker()
    unconfirmed.add(operations(1, 2), 1.0)
    assert take(unconfirmed, [refused(b"g2")]) == (True, True)
    with pytest.raises(LostTrackError, match="may have forgotten the ids"):
        unconfirmed.request_again(32.0)


def test_alone_only_the_last_of_a_group_asks() -> None:
    unconfirmed = tracker(exclusive=True)
    names = asked(unconfirmed.add(operations(*range(1, 67)), 1.0))
    assert [(number, name) for number, name in names if name] == [(64, b"64"), (66, b"66")]
    assert take(unconfirmed, stored(b"64", 64)) == (False, False)
    assert numbers(unconfirmed) == [65, 66]
    # Another client has stored one: then it must be asked what is stored, also of what was confirmed.
    assert take(unconfirmed, stored(b"66", 67)) == (True, False)
    again = asked(unconfirmed.request_again(2.0))
    assert again == [(number, b"%d" % number) for number in range(1, 67)]
    take(unconfirmed, [duplicate(b"%d" % number, number) for number in range(1, 65)])
    take(unconfirmed, [duplicate(b"65", 65), duplicate(b"66", 67)])
    counters = unconfirmed.messages.counters
    assert (counters.copied, counters.duplicates, counters.out_of_order) == (66, 0, 0)
    assert (unconfirmed.messages.last_confirmed, unconfirmed.messages.last) == (66, 67)
    assert asked(unconfirmed.add(operations(67, 68), 3.0)) == [(67, b"g68"), (68, b"g68")]


def test_a_sequence_that_advanced_by_less_than_the_group_confirms_nothing() -> None:
    unconfirmed = tracker(exclusive=True)
    unconfirmed.add(operations(*range(1, 67)), 1.0)
    take(unconfirmed, stored(b"64", 64))
    assert take(unconfirmed, stored(b"66", 65)) == (True, False)
    assert numbers(unconfirmed) == [65, 66]


def test_an_answer_to_a_later_message_confirms_no_earlier_one() -> None:
    unconfirmed = tracker(window=10)
    unconfirmed.add(operations(1, 2, 3), 1.0)
    take(unconfirmed, stored(b"1", 1))  # from now on it is known how the target says "stored"
    take(unconfirmed, stored(b"3", 2))
    assert numbers(unconfirmed) == [2, 3]


@pytest.mark.parametrize("known", [0, 1])
def test_a_stream_that_restarts_is_noticed(known: int) -> None:
    unconfirmed = tracker(last=9)
    if known:
        unconfirmed.add(operations(1), 1.0)
        take(unconfirmed, stored(b"g1", 10))
    unconfirmed.add(operations(2, 3), 1.0)
    with pytest.raises(LostTrackError, match="new stream"):
        take(unconfirmed, stored(b"g3", 1, 2))
    assert numbers(unconfirmed) == [2, 3]


def test_no_listener_and_another_program() -> None:
    unconfirmed = tracker()
    unconfirmed.add(operations(1, 2), 1.0)
    with pytest.raises(LostTrackError, match="503"):
        take(unconfirmed, [(INBOX + b"g2", b"", b"NATS/1.0 503\r\n\r\n", b"")])
    with pytest.raises(RuleRefusedError, match="stream 'OTHER' takes copies meant for 'T'"):
        take(unconfirmed, [answer(b"g2", b'{"stream":"OTHER", "seq":1}')])


def test_a_kept_sequence_that_is_another_one_ends_the_rule() -> None:
    unconfirmed = tracker(keeps_sequence=True)
    unconfirmed.add(operations(1, 2), 1.0)
    with pytest.raises(RuleRefusedError, match="has message 2 of the source as 3"):
        take(unconfirmed, [*stored(b"1", 1), *stored(b"2", 3)])


def test_what_is_no_new_copy_is_not_counted() -> None:
    unconfirmed = tracker(keeps_sequence=True)
    unconfirmed.messages.uncounted.add(b"1")
    unconfirmed.add(operations(1, 2), 1.0)
    take(unconfirmed, [*stored(b"1", 1), *stored(b"2", 2)])
    assert unconfirmed.messages.counters.copied == 1


@pytest.mark.parametrize(
    "fed", [{"subject_delete_marker_ttl": SECOND}, {"allow_msg_schedules": True}, {"sources": [{"name": "O"}]}]
)
def test_where_the_server_itself_stores_messages_every_copy_asks(fed: dict[str, Any]) -> None:
    """A delete marker that no subscriber receives, and a refused copy: the numbers of a group would fit."""
    data = tracker(exclusive=True, **fed).add(operations(1, 2, 3), 1.0)
    assert all(reply for _, reply in asked(data))
    data = tracker(exclusive=True).add(operations(1, 2, 3), 1.0)
    assert [bool(reply) for _, reply in asked(data)] == [False, False, True]


def test_a_message_stored_before_its_first_request_stays_a_duplicate() -> None:
    unconfirmed = tracker(exclusive=True, last=50)
    unconfirmed.add(operations(1, 2, 3, 4), 1.0)
    assert take(unconfirmed, [duplicate(b"4", 7)]) == (True, False)
    unconfirmed.request_again(1.0)
    # 1 and 3 are stored; 2 has the id of an earlier message, and 4 that of 3.
    take(unconfirmed, [duplicate(b"1", 51), duplicate(b"2", 7), duplicate(b"3", 52), duplicate(b"4", 52)])
    counters = unconfirmed.messages.counters
    assert (counters.copied, counters.duplicates, unconfirmed.messages.count) == (2, 2, 0)


def test_a_message_that_was_taken_for_a_copy_is_counted_once() -> None:
    unconfirmed = tracker(exclusive=True, last=50)
    unconfirmed.add(operations(1, 2), 1.0)
    take(unconfirmed, stored(b"2", 52))
    unconfirmed.add(operations(3), 1.0)
    assert asked(unconfirmed.request_again(1.0)) == [(1, b"1"), (2, b"2"), (3, b"3")]
    take(unconfirmed, [duplicate(b"1", 51), duplicate(b"2", 7), *stored(b"3", 53)])
    assert (unconfirmed.messages.counters.copied, unconfirmed.messages.counters.duplicates) == (2, 1)


def test_a_message_that_was_counted_as_a_duplicate_is_not_asked_for_again() -> None:
    unconfirmed = tracker(exclusive=True, last=50)
    unconfirmed.add(operations(1), 1.0)
    take(unconfirmed, [duplicate(b"1", 7)])
    unconfirmed.add(operations(2), 1.0)
    assert asked(unconfirmed.request_again(1.0)) == [(2, b"2")]


def test_names_begin_again() -> None:
    unconfirmed = tracker(exclusive=True)
    unconfirmed.add(operations(1, 2), 1.0)
    take(unconfirmed, stored(b"2", 2))
    unconfirmed.forget_names()
    assert (unconfirmed.messages.last_confirmed, unconfirmed.messages.placed) == (0, (0, 2))
    unconfirmed.add(operations(1), 1.0)
    assert asked(unconfirmed.request_again(1.0)) == [(1, b"1")]
    take(unconfirmed, stored(b"1", 3))
    assert (unconfirmed.messages.counters.copied, unconfirmed.messages.last_confirmed, unconfirmed.messages.count) == (
        3,
        1,
        0,
    )
