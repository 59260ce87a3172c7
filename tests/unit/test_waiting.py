import pytest

from nats_bridge.client import waiting
from nats_bridge.client.waiting import RetryPolicy

POLICIES = {name: policy for name, policy in vars(waiting).items() if name.isupper() and not name.startswith("_")}


@pytest.mark.parametrize(
    ("policy", "pauses"),
    [
        (waiting.LEADER_AWAY, (0.1, 0.1, 0.1)),
        (waiting.MISSING_AGAIN, (0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0)),
        (waiting.NOT_IN_CLUSTER, (0.1, 0.3)),
        (waiting.NOT_STORED, (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 2.0)),
        (waiting.SERVER_AWAY, (0.25, 0.5, 1.0, 2.0, 5.0, 5.0)),
    ],
)
def test_pauses_by_the_number_of_failures(policy: RetryPolicy, pauses: tuple[float, ...]) -> None:
    assert tuple(policy.after(failures) for failures in range(1, len(pauses) + 1)) == pytest.approx(pauses)


def test_a_part_of_the_pause_of_a_failed_rule_is_left_to_chance() -> None:
    for failures, most in enumerate((1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 60.0), 1):
        drawn = {waiting.RULE_FAILED.after(failures) for _ in range(50)}
        assert len(drawn) > 1
        assert all(0.8 * most <= pause <= most for pause in drawn)


def test_there_are_at_most_twenty_policies() -> None:
    assert len(POLICIES) <= 20
    assert all(isinstance(policy, RetryPolicy | float | int) for policy in POLICIES.values())
