"""Whether a deletion counts as uncertain that the server reports after a later message of the subject was read."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from nats_bridge.bridge.client.audit_advisories import Deleted
from nats_bridge.bridge.kinds.republish.counters import RuleCounters
from nats_bridge.bridge.kinds.republish.encoder import RepublishEncoder
from nats_bridge.bridge.kinds.republish.predecessors import Predecessors
from nats_bridge.bridge.kinds.republish.retention import Retention, StreamLimits
from nats_bridge.transforms.dialect import dialect
from nats_bridge.transforms.republish import compile_republish

REPORTED_NS = 1_700_000_000_000_000_000


@pytest.mark.parametrize(
    ("newest_before_ns", "uncertain"),
    [
        (300_000, 1),  # stored between the deletion and its report, or before both: it may name what was deleted
        (5_000_000, 0),  # stored long before: its predecessor was there
    ],
)
async def test_a_message_may_name_what_was_deleted_before_it(newest_before_ns: int, uncertain: int) -> None:
    counters = RuleCounters()
    republish = compile_republish("S", {"src": "s.>", "dest": "out.>"}, dialect("2.15.1"))
    loop = RepublishEncoder(republish, Retention(StreamLimits()), counters)
    loop.seed(b"s.a", b"33")
    nothing = cast(Any, None)  # no request is sent: no subject ends with what was deleted
    predecessors = Predecessors(nothing, "S", loop, counters, lambda: (33, REPORTED_NS - newest_before_ns), nothing)
    predecessors.deleted(Deleted("S", REPORTED_NS, 25))
    await asyncio.sleep(0)  # the search of all removals of one read
    assert (counters.removals, counters.last_sequence_uncertain) == (1, uncertain)
