"""Messages whose bytes are made together: asked for in the same ways, and one by one when something goes wrong."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from nats_bridge.kinds.copying.counters import CopyCounters
from nats_bridge.kinds.copying.encoder import Operation
from nats_bridge.kinds.copying.writing.in_flight import operations_of, size_of
from nats_bridge.kinds.copying.writing.publishing import LostTrackError, Unconfirmed
from tests.unit.test_unconfirmed import INBOX, asked, duplicate, numbers, operations, refused, stored, take, tracker


@dataclass(frozen=True)
class Rows:
    """A bundle of single operations."""

    held: list[Operation]

    @property
    def names(self) -> list[int]:
        return [int(name) for name, _ in self.held]

    @property
    def size(self) -> int:
        return sum(len(data) for _, data in self.held)

    def __len__(self) -> int:
        return len(self.held)

    def written(self, replies: bytes | list[bytes]) -> bytes:
        each = [replies] * len(self.held) if isinstance(replies, bytes) else replies
        parts = []
        for (_, data), reply in zip(self.held, each, strict=True):
            verb, subject, rest = data.split(b" ", 2)
            parts.append(b" ".join([verb, subject, *([reply] if reply else []), rest]))
        return b"".join(parts)

    def operations(self, start: int, stop: int) -> list[Operation]:
        return self.held[start:stop]


def bundle(first: int, last: int) -> Rows:
    return Rows(operations(*range(first, last + 1)))


def counted(unconfirmed: Unconfirmed) -> CopyCounters:
    return unconfirmed.messages.counters


def test_all_messages_of_a_bundle_ask_with_one_reply_subject() -> None:
    unconfirmed = tracker()
    names = asked(unconfirmed.add(bundle(1, 150), 1.0))
    assert names == [(number, b"g150") for number in range(1, 151)]
    assert (unconfirmed.messages.count, unconfirmed.messages.size) == (150, bundle(1, 150).size)
    assert take(unconfirmed, stored(b"g150", *range(1, 150))) == (False, False)
    assert (unconfirmed.messages.count, unconfirmed.messages.last_confirmed) == (150, 0)
    assert take(unconfirmed, stored(b"g150", 150)) == (False, False)
    messages = unconfirmed.messages
    assert (messages.count, messages.size, messages.last_confirmed, messages.last) == (0, 0, 150, 150)
    assert counted(unconfirmed).copied == 150


def test_alone_only_the_last_of_each_group_of_a_bundle_asks() -> None:
    unconfirmed = tracker(exclusive=True)
    names = asked(unconfirmed.add(bundle(1, 150), 1.0))
    assert [name for _, name in names if name] == [b"64", b"128", b"150"]
    assert [number for number, name in names if name] == [64, 128, 150]
    assert take(unconfirmed, stored(b"64", 64)) == (False, False)
    assert numbers(unconfirmed) == list(range(65, 151))
    assert take(unconfirmed, [*stored(b"128", 128), *stored(b"150", 150)]) == (False, False)
    assert (unconfirmed.messages.count, unconfirmed.messages.size, unconfirmed.messages.last_confirmed) == (0, 0, 150)


def test_lists_and_bundles_follow_one_another() -> None:
    unconfirmed = tracker()
    unconfirmed.add(operations(1, 2), 1.0)
    unconfirmed.add(bundle(3, 5), 1.0)
    unconfirmed.add(operations(6), 1.0)
    assert numbers(unconfirmed) == [1, 2, 3, 4, 5, 6]
    assert unconfirmed.messages.operations[0] == operations(1)[0]
    take(unconfirmed, [*stored(b"g2", 1, 2), *stored(b"g5", 3, 4, 5)])
    assert unconfirmed.messages.operations == operations(6)
    assert unconfirmed.messages.size == size_of(operations(6))


def test_after_a_refusal_each_message_of_a_bundle_is_asked_for_alone() -> None:
    unconfirmed = tracker()
    unconfirmed.add(bundle(1, 3), 1.0)
    assert take(unconfirmed, [*stored(b"g3", 1), refused(b"g3"), *stored(b"g3", 2)]) == (True, True)
    assert asked(unconfirmed.request_again(2.0)) == [(1, b"1"), (2, b"2"), (3, b"3")]
    # What follows asks alone, too, for as long as something is in flight.
    assert asked(unconfirmed.add(bundle(4, 5), 2.0)) == [(4, b"4"), (5, b"5")]
    take(unconfirmed, [duplicate(b"1", 1), refused(b"2"), duplicate(b"3", 2), *stored(b"4", 3), *stored(b"5", 4)])
    assert unconfirmed.each.first_unstored()[0] == operations(2)[0]
    unconfirmed.messages.skip()
    unconfirmed.each.settle(2.0)
    assert (unconfirmed.messages.count, unconfirmed.messages.size, unconfirmed.messages.last_confirmed) == (0, 0, 5)
    assert (counted(unconfirmed).copied, counted(unconfirmed).asked_again) == (4, 3)
    assert asked(unconfirmed.add(bundle(6, 7), 3.0)) == [(6, b"g7"), (7, b"g7")]


def test_confirmed_messages_of_a_bundle_ask_again_after_another_writer() -> None:
    unconfirmed = tracker(exclusive=True)
    unconfirmed.add(bundle(1, 66), 1.0)
    assert take(unconfirmed, stored(b"64", 64)) == (False, False)
    assert take(unconfirmed, stored(b"66", 67)) == (True, False)
    assert asked(unconfirmed.request_again(2.0)) == [(number, b"%d" % number) for number in range(1, 67)]
    assert unconfirmed.messages.size == bundle(1, 66).size
    take(unconfirmed, [duplicate(b"%d" % number, number) for number in range(1, 67)])
    assert (counted(unconfirmed).copied, counted(unconfirmed).duplicates) == (66, 0)
    assert (unconfirmed.messages.count, unconfirmed.messages.size) == (0, 0)


@pytest.mark.parametrize("options", [{"window": 10}, {"keeps_sequence": True}])
def test_each_message_of_a_bundle_asks_if_asking_again_could_be_too_late(options: dict[str, bool]) -> None:
    unconfirmed = tracker(**options)
    assert asked(unconfirmed.add(bundle(1, 2), 1.0)) == [(1, b"1"), (2, b"2")]


def test_a_bundle_that_could_be_stored_twice_is_not_asked_for_again() -> None:
    unconfirmed = tracker()
    unconfirmed.add(bundle(1, 2), 1.0)
    assert take(unconfirmed, [refused(b"g2")]) == (True, True)
    with pytest.raises(LostTrackError, match="may have forgotten the ids"):
        unconfirmed.request_again(32.0)
    assert numbers(unconfirmed) == [1, 2]


def test_what_is_in_flight_can_be_a_list_or_a_bundle() -> None:
    rows = bundle(1, 3)
    assert operations_of(rows) == operations_of(operations(1, 2, 3)) == operations(1, 2, 3)
    assert size_of(rows) == size_of(operations(1, 2, 3)) == rows.size
    assert INBOX not in rows.written(b"")
