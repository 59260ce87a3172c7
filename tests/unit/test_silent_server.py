"""When the leases leave a server that does not answer about them."""

from nats_bridge.rules.leadership.silent_server import SilentServer


def test_the_server_is_left_after_five_times_the_time_of_a_lease() -> None:
    silent = SilentServer(3.0)
    assert [silent.unanswered("a", now) for now in (100.0, 107.0, 114.9, 115.0, 116.0)] == [
        *(False, False, False),
        True,
        False,
    ]


def test_one_rule_without_an_answer_is_enough() -> None:
    silent = SilentServer(3.0)
    assert not silent.unanswered("a", 0.0)
    silent.answered("b")
    assert silent.unanswered("a", 15.0)


def test_an_answer_begins_the_time_again() -> None:
    silent = SilentServer(3.0)
    assert not silent.unanswered("a", 0.0)
    silent.answered("a")
    assert not silent.unanswered("a", 15.0)
    assert silent.unanswered("a", 30.0)


def test_the_time_without_a_connection_does_not_count() -> None:
    silent = SilentServer(3.0)
    assert not silent.unanswered("a", 0.0)
    silent.reconnected(14.0)
    assert not silent.unanswered("a", 28.9)
    assert silent.unanswered("a", 29.0)


def test_it_waits_longer_after_each_move_until_all_are_answered() -> None:
    silent = SilentServer(1.0)
    moves = [now for now in range(200) if silent.unanswered("a", float(now))]
    assert moves == [5, 15, 35, 75, 115, 155, 195]
    silent.answered("a")
    assert not silent.unanswered("a", 200.0)
    assert silent.unanswered("a", 205.0)
