"""How much is asked for after losses of a connection, and how that grows again."""

from nats_bridge.client.delivery_limit import DeliveryLimit


def lost_soon(limit: DeliveryLimit, now: float) -> bool:
    """Establish the connection, and have the server end it as a slow consumer's."""
    limit.established(now)
    return limit.lost(now + 1) and limit.explained(slow_consumer=True)


def test_no_limit_while_connections_last() -> None:
    limit = DeliveryLimit()
    limit.established(0)
    assert not limit.lost(3600)
    assert not limit.lost(3601), "no connection was there"
    assert limit.messages is None


def test_each_short_connection_asks_for_less_down_to_one_message() -> None:
    limit = DeliveryLimit()
    seen = []
    for number in range(7):
        assert lost_soon(limit, 2.0 * number)
        seen.append(limit.messages)
    assert seen == [1024, 256, 64, 16, 4, 1, 1]


def test_a_connection_that_lasts_asks_for_more_until_there_is_no_limit() -> None:
    limit = DeliveryLimit()
    assert lost_soon(limit, 0)
    assert lost_soon(limit, 2)
    limit.established(10)
    limit.look(11)
    assert limit.messages == 256
    seen = []
    for now in (12, 13, 14, 16):
        limit.look(now)
        seen.append(limit.messages)
    assert seen == [512, 512, 1024, None]


def test_after_a_recovery_that_failed_the_next_one_is_slower() -> None:
    limit = DeliveryLimit()
    assert lost_soon(limit, 0)
    limit.established(10)
    limit.look(12)
    assert limit.messages is None
    assert limit.lost(50), "it asked for more"
    assert limit.explained(slow_consumer=True)
    assert limit.messages == 1024
    limit.established(51)
    limit.look(54)
    assert limit.messages == 1024
    limit.look(55)
    assert limit.messages is None


def test_a_loss_long_after_a_recovery_is_none_of_its() -> None:
    limit = DeliveryLimit()
    assert lost_soon(limit, 0)
    limit.established(10)
    limit.look(12)
    assert not limit.lost(3600)
    assert limit.messages is None


def test_time_without_a_connection_does_not_count() -> None:
    limit = DeliveryLimit()
    assert lost_soon(limit, 0)
    limit.look(1000)
    assert limit.messages == 1024
    limit.established(1000)
    limit.look(1001)
    assert limit.messages == 1024


def test_without_the_permission_there_is_no_limit_ever_again() -> None:
    limit = DeliveryLimit()
    assert lost_soon(limit, 0)
    limit.refused()
    assert not lost_soon(limit, 2)
    assert limit.messages is None


def test_ends_for_other_reasons_ask_for_no_less() -> None:
    limit = DeliveryLimit()
    for number in range(5):
        limit.established(number)
        assert limit.lost(number + 0.5)
        assert not limit.explained(slow_consumer=False)
    assert limit.messages is None


def test_without_a_reason_the_second_end_in_succession_asks_for_less() -> None:
    limit = DeliveryLimit()
    for now in (0, 100, 101, 102):  # the second one lasts
        limit.established(now)
        if limit.lost(now + (50 if now == 100 else 0.5)):
            limit.explained(slow_consumer=None)
        assert limit.messages == (1024 if now == 102 else None)
