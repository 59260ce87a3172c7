"""How long a leaf connection waits before it tries again."""

from __future__ import annotations

import pytest
from tenacity import AsyncRetrying, RetryCallState

from nats_bridge.bridge.client.leaf_connection import _wait


def wait_after(failure: BaseException, seconds: float, attempt: int) -> float:
    state = RetryCallState(AsyncRetrying(), None, (), {})
    state.set_exception((type(failure), failure, None))
    state.start_time, state.outcome_timestamp, state.attempt_number = 100.0, 100.0 + seconds, attempt
    return _wait(state)


@pytest.mark.parametrize("attempt", [1, 2, 400])
def test_a_server_that_may_be_starting_again_is_tried_at_once(attempt: int) -> None:
    # 2.10 asks its sources once, 0.1 s after it has read its streams, and then pauses.
    assert wait_after(ConnectionRefusedError(), 20, attempt) < 0.05


def test_a_server_that_stays_away_or_refuses_is_tried_less_and_less_often() -> None:
    assert wait_after(ConnectionRefusedError(), 60, 400) == 0.5
    assert wait_after(ConnectionResetError(), 1, 1) < wait_after(ConnectionResetError(), 1, 20) == 0.5
