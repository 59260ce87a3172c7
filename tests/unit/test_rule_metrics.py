"""A rule's metrics from its runs' reports."""

import time
from itertools import accumulate

import pytest

from nats_bridge.client.wire import Delivered
from nats_bridge.kinds.republish.counters import RuleCounters
from nats_bridge.observability.latency import BOUNDS, Latencies, quantile
from nats_bridge.observability.rule_metrics import Backlog, InFlight, RuleMetrics

SECOND = 1_000_000_000


def delivered(sequence: int, time_ns: int, pending: int, *, domain: bool = False) -> Delivered:
    opening = b"$JS.ACK.hub.ACCOUNTHASH.S.c" if domain else b"$JS.ACK.S.c"
    closing = b".token" if domain else b""
    reply = b"%b.1.%d.%d.%d.%d%b" % (opening, sequence, sequence, time_ns, pending, closing)
    return b"s.a", reply, b"NATS/1.0\r\n\r\n", b"payload"


@pytest.mark.parametrize("domain", [False, True])
def test_a_batch_reports_its_bytes_and_the_lag_after_it(domain: bool) -> None:
    metrics = RuleMetrics()
    metrics.follow("republish", RuleCounters())
    backlog = metrics.backlog()
    assert (metrics.lag_messages(), metrics.lag_seconds()) == (None, None)
    oldest = metrics.took([delivered(n, n * SECOND, 9 - n, domain=domain) for n in (1, 2, 3)], backlog)
    assert oldest == SECOND
    assert metrics.bytes_in == 3 * (12 + 7)
    assert backlog == Backlog(6, 3 * SECOND, 1)
    assert metrics.lag_messages() == 6
    assert metrics.took([delivered(9, time.time_ns(), 0, domain=domain)], backlog) == backlog.since_ns
    assert (metrics.lag_messages(), metrics.lag_seconds()) == (0, 0.0)


def test_lag_is_that_of_all_streams_and_of_what_is_in_flight() -> None:
    metrics, in_flight_now = RuleMetrics(), InFlight(0)
    metrics.follow("sources", RuleCounters(), lambda: in_flight_now)
    first, second = metrics.backlog(), metrics.backlog()
    now = time.time_ns()
    first.messages, first.since_ns = 3, now - 20 * SECOND
    second.messages, second.since_ns = 4, now - 10 * SECOND
    assert metrics.lag_messages() == 7
    assert metrics.lag_seconds() == pytest.approx(20, abs=5)
    in_flight_now = InFlight(5, now - 100 * SECOND)
    assert metrics.in_flight() == 5
    assert metrics.lag_seconds() == pytest.approx(100, abs=5)
    metrics.ended()
    assert (metrics.in_flight(), metrics.lag_messages(), metrics.lag_seconds()) == (0, None, None)


def test_a_clock_that_is_behind_makes_no_negative_lag() -> None:
    assert Backlog(1, 10 * SECOND).seconds(9 * SECOND) == 0.0
    latencies = Latencies()
    latencies.record(-1)
    assert (latencies.counts[0], latencies.total) == (1, 0.0)


def test_totals_continue_when_a_run_is_replaced() -> None:
    metrics = RuleMetrics()
    metrics.follow("republish", before := RuleCounters(received=10, lost=1))
    before.received += 1
    metrics.follow("republish", after := RuleCounters())
    assert metrics.totals()["received"] == 11
    after.received += 5
    metrics.follow("republish", after)
    assert metrics.totals()["received"] == 16
    assert metrics.totals()["lost"] == 1
    assert metrics.as_dict()["messages_in"] == 16
    # A rule of the same name that does something else counts from zero.
    metrics.follow("mirror", RuleCounters(received=2))
    assert metrics.totals()["received"] == 2


def test_before_anything_happens_nothing_is_claimed() -> None:
    assert RuleMetrics().as_dict() == {
        "messages_in": 0,
        "messages_out": 0,
        "bytes_in": 0,
        "bytes_out": 0,
        "lag_messages": None,
        "lag_seconds": None,
        "seconds_since_progress": None,
        "in_flight": 0,
        "rate_in": 0.0,
        "rate_out": 0.0,
        "end_to_end_ms": None,
        "publish_ms": None,
        "history": {"interval_s": 2.0, "rate_in": [], "rate_out": [], "lag_messages": [], "end_to_end_ms": []},
    }


def test_rates_and_history_come_from_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: clock)
    metrics = RuleMetrics()
    metrics.follow("republish", counters := RuleCounters())
    backlog = metrics.backlog()
    for second in range(1, 5):
        clock = 100.0 + 2 * second
        counters.received += 100
        counters.republished += 50
        backlog.messages = second
        metrics.end_to_end.record(0.004 * second)
        metrics.sample()
    clock += 1
    reported = metrics.as_dict()
    assert reported["history"] == {
        "interval_s": 2.0,
        "rate_in": [50.0] * 3,
        "rate_out": [25.0] * 3,
        "lag_messages": [2, 3, 4],
        "end_to_end_ms": [9.95, 24.85, 24.85],
    }
    # The last three intervals and the second since.
    assert (reported["rate_in"], reported["rate_out"]) == (40.0, 20.0)
    assert reported["end_to_end_ms"] is not None
    for _ in range(1000):
        metrics.sample()
    assert len(metrics.as_dict()["history"]["rate_in"]) == 150
    assert "history" not in metrics.as_dict(history=False)


def test_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 5.0
    monkeypatch.setattr(time, "monotonic", lambda: clock)
    metrics = RuleMetrics()
    metrics.progressed()
    clock = 7.5
    assert metrics.seconds_since_progress() == 2.5
    assert metrics.progress_ns > 0


def test_latencies_fall_into_buckets_that_hold_their_bound() -> None:
    latencies = Latencies()
    for seconds in (0.0005, 0.0006, 0.001, 3600.0, 3600.1):
        latencies.record(seconds)
    assert list(accumulate(latencies.counts))[:2] == [1, 3]
    assert latencies.counts[-2:] == [1, 1]
    assert latencies.total == pytest.approx(7200.1021)


def test_quantiles_are_estimated_within_a_bucket() -> None:
    counts = [0] * (len(BOUNDS) + 1)
    assert quantile(counts, 0.5) is None
    counts[BOUNDS.index(0.1)] = 10
    assert quantile(counts, 0.5) == pytest.approx(0.075)
    assert quantile(counts, 1.0) == pytest.approx(0.1)
    counts[-1] = 990
    assert quantile(counts, 0.5) == BOUNDS[-1]
