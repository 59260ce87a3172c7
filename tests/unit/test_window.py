"""A window that follows the distance, on a model of a target: so far away, and so fast."""

from __future__ import annotations

from collections import deque

import pytest

from nats_bridge.kinds.copying.writing.in_flight import CHECKED_COPIES, GAIN, LEAST, LEAST_SIZE, MOST, MOST_SIZE, Window

BATCH = 256


class Model:
    """A sender that sends whatever the window lets it, and a target that confirms it a round trip later.

    Args:
        round_trip: seconds.
        capacity: messages per second that the target stores.
        size: bytes of a message.
    """

    def __init__(self, round_trip: float, capacity: float, size: int = 200, window: Window | None = None) -> None:
        self.window = window or Window(MOST, MOST_SIZE)
        self.round_trip = round_trip
        self.capacity = capacity
        self.size = size
        self.now = 1.0
        self.stored = 0
        self.widest_in_flight = 0
        self._free = 0.0  # when the target has stored all that it has
        self._in_flight: deque[tuple[float, float]] = deque()  # of each batch: when it was sent, when it is confirmed

    def run(self, seconds: float, *, offered: float = float("inf")) -> float:
        """Run on; messages per second that were stored. `offered`: those that there are to be sent."""
        end, began, before = self.now + seconds, self.now, self.stored
        sent = 0
        while self.now < end:
            room = len(self._in_flight) * BATCH + BATCH <= self.window.messages
            room = room and (len(self._in_flight) + 1) * BATCH * self.size <= self.window.size
            due = began + sent / offered
            if room and due <= self.now:
                self.window.sent(self.now, first=not self._in_flight)
                arrives = max(self.now + self.round_trip / 2, self._free)
                self._free = arrives + BATCH / self.capacity
                self._in_flight.append((self.now, self._free + self.round_trip / 2))
                self.widest_in_flight = max(self.widest_in_flight, len(self._in_flight) * BATCH)
                sent += BATCH
                continue
            following = [self._in_flight[0][1]] if self._in_flight else []
            self.now = max(self.now, min([*following, *([due] if room else [])]))
            while self._in_flight and self._in_flight[0][1] <= self.now:
                since, _ = self._in_flight.popleft()
                self.stored += BATCH
                self.window.confirmed(BATCH, BATCH * self.size, since, self.now)
        return (self.stored - before) / seconds


def test_it_begins_as_wide_as_ever() -> None:
    window = Window(MOST, MOST_SIZE)
    assert (window.messages, window.size, window.round_trip) == (LEAST, LEAST_SIZE, 0)


@pytest.mark.parametrize("milliseconds", [0.2, 1, 20, 100, 200, 400])
def test_the_target_is_what_limits_however_far_it_is(milliseconds: float) -> None:
    model = Model(milliseconds / 1000, 100_000)
    model.run(10 * milliseconds / 1000 + 1)
    assert model.run(5) > 0.97 * 100_000
    in_flight = 100_000 * milliseconds / 1000
    # A message's round trip also has the time in which the target stores its batch.
    least, most = LEAST + 0.9 * GAIN * in_flight, LEAST + GAIN * (1.1 * in_flight + 2 * BATCH)
    assert min(least, MOST) <= model.window.messages <= most


def test_what_waits_in_the_target_widens_nothing() -> None:
    model = Model(0.0005, 20_000)
    model.run(60)
    assert model.window.messages < LEAST + GAIN * 2 * BATCH
    assert model.window.round_trip < 0.02


def test_it_is_never_wider_than_its_bounds() -> None:
    model = Model(2.0, 1_000_000)
    model.run(60)
    assert model.window.messages == model.window.widest == MOST
    assert model.widest_in_flight <= MOST
    large = Model(2.0, 1_000_000, size=10_000)
    large.run(60)
    assert large.window.size == MOST_SIZE
    assert large.widest_in_flight * 10_000 <= MOST_SIZE


def test_it_grows_in_a_few_round_trips() -> None:
    model = Model(0.2, 100_000)
    model.run(1.6)
    assert model.window.messages > LEAST + 0.9 * GAIN * 100_000 * 0.2


def test_it_grows_only_while_it_is_what_limits() -> None:
    model = Model(0.2, 100_000)
    model.run(5, offered=10_000)
    assert model.window.messages < LEAST + 1.2 * GAIN * 10_000 * 0.2


def test_it_is_as_wide_as_before_when_less_is_sent() -> None:
    model = Model(0.2, 100_000)
    model.run(5)
    wide = model.window.messages
    model.run(5, offered=1000)
    assert model.window.messages < LEAST + GAIN * 1000
    assert model.window.widest >= wide


def test_a_longer_path_is_followed_when_nothing_is_in_flight() -> None:
    model = Model(0.02, 100_000)
    model.run(5)
    model.round_trip = 0.2
    model.run(20, offered=1000)  # a batch at a time
    assert model.window.round_trip == pytest.approx(0.2, rel=0.05)
    model.run(3)
    assert model.run(3) > 0.97 * 100_000


def test_a_way_that_has_become_shorter_is_followed_at_the_next_pause() -> None:
    model = Model(0.2, 100_000)
    model.run(5)
    model.round_trip = 0.001
    model.run(5)
    assert model.window.messages > LEAST * 2  # what was in flight waits in the target now
    model.run(1, offered=1000)
    model.run(5)
    assert model.window.messages < LEAST + GAIN * 2 * BATCH


def test_confirmations_that_come_all_at_once_are_no_high_rate() -> None:
    window = Window(MOST, MOST_SIZE)
    now = 1.0
    for _ in range(1000):
        window.sent(now, first=True)
        now += 0.0005
        window.confirmed(LEAST // 2, 200, now - 0.0005, now)
        now += 0.045
    assert window.messages < LEAST + 200


@pytest.mark.parametrize("version", ["2.9.10", "2.10.27", "2.12.15", "2.15.1"])
def test_sources_of_a_rule_share_what_is_more(version: str) -> None:
    alone, one_of_seven = Window.shared(1, version), Window.shared(7, version)
    for window, share in ((alone, 1), (one_of_seven, 7)):
        model = Model(2.0, 1_000_000, window=window)
        model.run(40)
        assert window.messages == LEAST + (MOST - LEAST) // share
        large = Model(2.0, 1_000_000, size=10_000, window=Window.shared(share, version))
        large.run(40)
        assert large.window.size == LEAST_SIZE + (MOST_SIZE - LEAST_SIZE) // share


def test_servers_that_refuse_what_waits_get_no_more() -> None:
    model = Model(0.4, 100_000, window=Window.shared(1, "2.11.17"))
    model.run(10)
    assert (model.window.messages, model.window.size) == (LEAST, LEAST_SIZE)


def test_a_fixed_one_stays_as_it_is() -> None:
    model = Model(0.4, 100_000, window=Window(1000, least=1000))
    model.run(10)
    assert model.window.messages == model.window.widest == 1000


def test_a_start_reads_all_that_two_windows_can_have_left_out() -> None:
    assert CHECKED_COPIES >= 2 * MOST
