"""An observer of a whole run judges each `Nats-Last-Sequence`, unless a fault hid a removal."""

import pytest

from tests.chaos.observed import Observed
from tests.chaos.plan import chosen


@pytest.mark.parametrize(("later", "violations"), [(0.4, 0), (0.9, 1)])
def test_a_report_that_arrives_at_no_process_cannot_be_counted(later: float, violations: int) -> None:
    now = 10.0
    observed = Observed(chosen("once", "2.15.3"), lambda: now)
    observed.removed("ORDERS", [3], is_reported=True)
    observed.published("once", "ORDERS", 4, now, 3, 0)
    now += later
    observed.fault("sidecar killed", begins=True)
    status = {"t": now, "event": "status", "pid": 1, "rules": {"once": {"last_sequence_uncertain": 0}}}
    found = observed.judge([{"t": 0.0, "event": "run", "version": "2.15.3"}, status], set())
    assert len([each for each in found if "wrong last sequence" in each]) == violations
