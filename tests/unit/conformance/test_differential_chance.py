"""Random functions are judged by range and distribution."""

from random import Random

import pytest

from tests.differential.chance import DRAWS, drawn_limits, verdict

LIMITS = [2, 3, 7, 10, 16, 17, 100, 1000, -10, 2**31 - 1]


def uniform(limit: int, seed: int = 1) -> list[bytes]:
    random = Random(seed)
    return [b"%d" % random.randrange(max(abs(limit), 1)) for _ in range(DRAWS)]


@pytest.mark.parametrize("limit", [*LIMITS, 0, 1, -1])
def test_uniform_values_are_right(limit: int) -> None:
    assert [verdict(limit, uniform(limit, seed)) for seed in range(30)] == [""] * 30


@pytest.mark.parametrize("limit", LIMITS)
def test_a_range_that_is_one_too_long_is_wrong(limit: int) -> None:
    assert "not within" in verdict(limit, [*uniform(limit)[:-1], b"%d" % abs(limit)])


@pytest.mark.parametrize("limit", LIMITS)
def test_always_the_same_value_is_wrong(limit: int) -> None:
    assert "expected" in verdict(limit, [b"0"] * DRAWS)


@pytest.mark.parametrize("limit", [3, 7, 10, 100, 2**31 - 1])
def test_a_range_that_is_too_short_is_wrong(limit: int) -> None:
    assert "expected" in verdict(limit, uniform(limit * 2 // 3))


@pytest.mark.parametrize("limit", [2, 10, 1000])
def test_values_that_lean_to_one_side_are_wrong(limit: int) -> None:
    random = Random(3)
    assert "expected" in verdict(limit, [b"%d" % int(limit * random.random() ** 2) for _ in range(DRAWS)])


@pytest.mark.parametrize("strange", [b"", b"x", b"-1", b"01", b"+1", b"1.5"])
def test_what_is_no_plain_number_is_wrong(strange: bytes) -> None:
    assert "not within" in verdict(10, [strange])


def test_zero_one_and_negative_limits_are_always_judged() -> None:
    for seed in range(20):
        limits = drawn_limits(seed)
        assert limits == drawn_limits(seed)
        assert {0, 1, -1} < set(limits)
        assert min(limits) < -1
