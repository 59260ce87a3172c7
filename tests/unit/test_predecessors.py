"""What a removal that the server reports leaves for the messages after it."""

import asyncio
from typing import Any, cast

import pytest

from nats_bridge.client.audit_advisories import Deleted, Purged
from nats_bridge.kinds.republish.counters import RuleCounters
from nats_bridge.kinds.republish.encoder import RepublishEncoder
from nats_bridge.kinds.republish.predecessors import Predecessors
from nats_bridge.kinds.republish.retention import Retention, StreamLimits
from nats_transforms.dialect import dialect
from nats_transforms.republish import compile_republish

REPORTED_NS = 1_700_000_000_000_000_000


def following(limits: StreamLimits, newest_ns: int) -> tuple[RepublishEncoder, RuleCounters, Predecessors]:
    """What follows the removals of a stream whose message 33 was read last; it cannot send a request."""
    counters = RuleCounters()
    republish = compile_republish("S", {"src": "s.>", "dest": "out.>"}, dialect("2.15.1"))
    loop = RepublishEncoder(republish, Retention(limits), counters)
    nothing = cast(Any, None)
    return loop, counters, Predecessors(nothing, "S", loop, lambda: (33, newest_ns), nothing)


@pytest.mark.parametrize(
    ("newest_before_ns", "uncertain"),
    [
        (300_000, 1),  # stored between the deletion and its report, or before both: it may name what was deleted
        (5_000_000, 0),  # stored long before: its predecessor was there
    ],
)
async def test_a_message_may_name_what_was_deleted_before_it(newest_before_ns: int, uncertain: int) -> None:
    loop, counters, predecessors = following(StreamLimits(), REPORTED_NS - newest_before_ns)
    loop.seed(b"s.a", b"33")
    # No request is sent: no subject ends with what was deleted.
    predecessors.deleted(Deleted("S", REPORTED_NS, 25))
    await asyncio.sleep(0)  # the search of all removals of one read
    assert (counters.removals, counters.last_sequence_uncertain) == (1, uncertain)


async def test_a_purge_that_keeps_messages_of_a_subject_leaves_its_newest() -> None:
    """However late it is reported: with one message a subject, an answer could name a message stored since."""
    loop, counters, predecessors = following(StreamLimits(max_msgs_per_subject=1), REPORTED_NS)
    predecessors.purged(Purged("S", REPORTED_NS, subject_filter="s.a", below=0, keep=1, messages=1))
    assert (counters.removals, loop.retention.active) == (1, False)
