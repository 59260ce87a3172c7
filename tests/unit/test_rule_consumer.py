"""What is acknowledged for messages that did not come from the durable consumer itself."""

from __future__ import annotations

from typing import cast

import pytest

from nats_bridge.client.jetstream_api import JetStreamApi
from nats_bridge.consuming.ack_reply import AckReply
from nats_bridge.consuming.consumer_plan import ConsumerPlan
from nats_bridge.consuming.rule_consumer import RuleConsumer

PLAN = ConsumerPlan(
    stream="S",
    filters=(),
    headers_only=False,
    position="confirmed",
    durable_name="sidecar_rule",
    rule="r",
    owner="nats-bridge sidecar/rule:",
    description="",
)
CONSUMER = RuleConsumer(cast("JetStreamApi", None), PLAN)  # nothing is asked of a server here
CONSUMER.name = PLAN.durable_name


@pytest.mark.parametrize(
    ("reply", "ours"),
    [
        (
            b"$JS.ACK.S.ephemeral.1.17.3.1700000000000000009.42",
            b"$JS.ACK.S.sidecar_rule.1.17.117.1700000000000000009.42",
        ),
        (
            b"$JS.ACK.hub.AbCdEf.S.ephemeral.1.17.3.1700000000000000009.42.r4nd",
            b"$JS.ACK.hub.AbCdEf.S.sidecar_rule.1.17.117.1700000000000000009.42.r4nd",
        ),
    ],
)
def test_only_the_last_message_of_a_replay_is_numbered(reply: bytes, ours: bytes) -> None:
    first = (b"s.a", b"$JS.ACK.S.ephemeral.1.16.2.1700000000000000008.43", b"", b"1")
    numbered = CONSUMER.numbered([first, (b"s.b", reply, b"NATS/1.0\r\n\r\n", b"2")], 117)
    assert numbered == [first, (b"s.b", ours, b"NATS/1.0\r\n\r\n", b"2")]


def test_a_range_is_acknowledged_as_a_delivery_would_be() -> None:
    ack = AckReply.parse(CONSUMER.reply(17, 117))
    assert ack == AckReply(1, 17, 117, time_ns=0, pending=0), "no time, as if it were the message's"
    assert CONSUMER.reply(17, 117).startswith(b"$JS.ACK.S.sidecar_rule.")
