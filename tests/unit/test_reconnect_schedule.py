"""When a connection tries again: in virtual time, on many seeds."""

import pytest

from nats_bridge.client.reconnect_schedule import LONGEST_WAIT, ReconnectSchedule

SEEDS = range(200)


def lost(seed: int, longest_wait: float = LONGEST_WAIT) -> ReconnectSchedule:
    """The schedule of a connection that lasted for an hour, and is lost at this moment."""
    schedule = ReconnectSchedule(longest_wait, seed)
    assert schedule.wait() == 0.0, "the first attempt of all is made at once"
    schedule.established(0)
    schedule.lost(3600)
    return schedule


def attempts(schedule: ReconnectSchedule, seconds: float) -> list[float]:
    """The times of the attempts in an outage, each of which fails at once."""
    times: list[float] = []
    now = schedule.wait()
    while now < seconds:
        times.append(now)
        now += schedule.wait()
    return times


def test_after_ten_seconds_at_most_an_attempt_in_two_seconds() -> None:
    for seed in SEEDS:
        times = attempts(lost(seed), 1000)
        assert sum(time > 10 for time in times) / 990 <= 0.5
    later = [time for seed in SEEDS for time in attempts(lost(seed), 40) if time > 10]
    assert len(later) / len(SEEDS) / 30 <= 0.5


def test_a_restart_of_a_second_is_noticed_within_a_second() -> None:
    late = [min(time for time in attempts(lost(seed), 10) if time > 1) - 1 for seed in SEEDS]
    assert max(late) <= 1
    assert all(attempts(lost(seed), 10)[0] <= 0.1 for seed in SEEDS)


def test_two_connections_do_not_try_together() -> None:
    one, other = attempts(ReconnectSchedule(), 100), attempts(ReconnectSchedule(), 100)
    assert len({*one, *other}) == len(one) + len(other) - 1, "only the first attempts of all are at once"


@pytest.mark.parametrize("longest_wait", [0.05, 1.0, 60.0])
def test_no_wait_is_longer_than_the_longest(longest_wait: float) -> None:
    schedule = lost(0, longest_wait)
    waits = [schedule.wait() for _ in range(2000)]
    assert longest_wait / 2 < max(waits) <= longest_wait


def test_an_outage_after_a_stable_connection_begins_with_short_waits() -> None:
    schedule = lost(1)
    attempts(schedule, 60)
    schedule.established(60)
    schedule.lost(61)
    assert max(schedule.wait() for _ in range(20)) > 1, "a connection that lasts a second is not stable"
    schedule.established(100)
    schedule.lost(106)
    assert max(schedule.wait() for _ in range(5)) <= 0.1 * 1.15**4


def test_refused_credentials_wait_longer() -> None:
    schedule = lost(2)
    waits = []
    for _ in range(100):
        schedule.refused()
        waits.append(schedule.wait())
    assert max(waits[:3]) <= 4
    assert 4 * LONGEST_WAIT < max(waits) <= 6 * LONGEST_WAIT
    assert schedule.wait() <= LONGEST_WAIT, "the next server has not refused"


def test_a_connection_with_a_refused_inbox_is_kept_longer_each_time() -> None:
    schedule = lost(3)
    now, kept = 0.0, []
    for _ in range(100):
        kept.append(schedule.keep(now))
        now += kept[-1]
    assert max(kept[:3]) <= 4
    assert 4 * LONGEST_WAIT < max(kept) <= 6 * LONGEST_WAIT
    assert schedule.keep(now + 13 * LONGEST_WAIT) <= 1, "it was accepted for a while"
