"""Where replicas differ: in what they lack, have alone, or hold in another way."""

from __future__ import annotations

from nats_bridge.bridge.jobs.replica_diff.comparing import Comparing, Difference, Held

A, B, C = "abc"


def held(payload: bytes = b"x", time: int = 1) -> Held:
    return Held(b"s", b"", payload, time)


def compared(**replicas: dict[int, Held]) -> list[tuple[int, Difference]]:
    comparing = Comparing(list(replicas))
    for server, messages in replicas.items():
        comparing.take(server, messages.items(), None)
    return list(comparing.differences())


def test_what_one_of_three_lacks_has_alone_or_holds_in_another_way() -> None:
    usual = {1: held(), 2: held(), 3: held()}
    odd = {1: held(), 3: held(b"y", 2), 4: held()}
    assert compared(a=usual, b=usual, c=odd) == [
        (2, Difference("missing", (C,))),
        (3, Difference("different", (C,), ("payload", "time"))),
        (4, Difference("extra", (C,))),
    ]
    assert compared(a=usual, b=usual, c=usual) == compared(a={}, b={}) == []


def test_of_two_none_is_right() -> None:
    assert compared(a={1: held(), 2: held()}, b={2: held(b"y"), 3: held()}) == [
        (1, Difference("missing", (B,))),
        (2, Difference("different", (A, B), ("payload",))),
        (3, Difference("missing", (A,))),
    ]
    assert compared(a={1: held(b"1")}, b={1: held(b"2")}, c={}) == [
        (1, Difference("missing", (C,))),
        (1, Difference("different", (A, B), ("payload",))),
    ]


def test_only_what_all_have_passed_is_compared() -> None:
    comparing = Comparing([A, B])
    comparing.take(A, [(1, held()), (3, held())], 3)
    assert (comparing.next_server, comparing.passed, list(comparing.differences())) == (B, 0, [])
    comparing.take(B, [(1, held())], 2)
    assert (comparing.passed, list(comparing.differences())) == (2, [])
    comparing.take(B, [], None)
    assert (comparing.next_server, comparing.passed) == (A, 3)
    assert list(comparing.differences()) == [(3, Difference("missing", (B,)))]


def test_a_server_that_cannot_be_read_is_left_out() -> None:
    comparing = Comparing([A, B, C])
    for server in (A, B):
        comparing.take(server, [(1, held())], None)
    comparing.take(C, [], 0)
    comparing.leave_out(C)
    assert list(comparing.differences()) == []
    assert comparing.passed > 1
