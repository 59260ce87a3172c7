"""The deliveries of one served consumer, and when they continue; the test drives the subscription."""

from __future__ import annotations

from typing import Any

import pytest

from nats_bridge.bridge.kinds.native_copy.check import compile_rule
from nats_bridge.bridge.kinds.native_copy.counters import NativeCopyCounters
from nats_bridge.bridge.kinds.native_copy.encoder import NativeEncoder
from nats_bridge.bridge.kinds.native_copy.served_consumer import ServedConsumer
from nats_bridge.bridge.observability.rule_metrics import RuleMetrics
from nats_bridge.bridge.settings import NativeCopyRule
from nats_bridge.transforms.dialect import NEWEST

RULE = NativeCopyRule.model_validate(
    {"name": "r", "kind": "native_copy", "stream": "S", "prefix": "p", "leaf": "west", "exclude": ["secret"]}
)
HEARTBEAT = b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 3\r\nNats-Last-Stream: 3\r\n"


def _consumer(written: list[bytes]) -> ServedConsumer:
    metrics = RuleMetrics()
    encoder = NativeEncoder(compile_rule(RULE, NEWEST), (), NativeCopyCounters())
    consumer = ServedConsumer(
        b"p.deliver.x", b"p.fc.", encoder, written.append, lambda _: None, metrics, metrics.backlog()
    )
    subscribed: Any = object()
    consumer._subscription = subscribed
    return consumer


def _delivered(sequence: int, subject: bytes = b"a") -> tuple[bytes, bytes, bytes, bytes]:
    return subject, b"$JS.ACK.S.c.1.%d.%d.1600000000000000001.0" % (sequence, sequence), b"", b"%d" % sequence


@pytest.mark.parametrize("first", ["answered", "wanted"])
def test_nothing_is_delivered_before_the_answer_and_the_subscription(first: str) -> None:
    written: list[bytes] = []
    consumer = _consumer(written)
    setattr(consumer, first, True)
    consumer._on_batch([_delivered(1)])
    consumer.send_waiting()
    consumer._on_control(b"$JS.FC.S.c.1", b"NATS/1.0 100 FlowControl Request\r\n\r\n")
    consumer._on_batch([_delivered(2)])
    assert written == []
    consumer.answered = consumer.wanted = True
    consumer.send_waiting()
    consumer._on_batch([_delivered(3)])
    everything = b"".join(written)
    places = [everything.index(part) for part in (b"\r\n1\r\n", b"p.fc.$JS.FC.S.c.1", b"\r\n2\r\n", b"\r\n3\r\n")]
    assert places == sorted(places)


def test_the_rule_handles_heartbeats_and_flow_control_itself() -> None:
    written: list[bytes] = []
    consumer = _consumer(written)
    consumer.answered = consumer.wanted = True
    consumer._on_batch([_delivered(1), _delivered(2, b"secret"), _delivered(3)])
    consumer._on_control(b"", HEARTBEAT + b"Nats-Consumer-Stalled: $JS.FC.S.c.2\r\n\r\n")
    block = written[-1].partition(b"\r\n")[2]
    assert block == (
        b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 2\r\nNats-Last-Stream: 3\r\n"
        b"Nats-Consumer-Stalled: p.fc.$JS.FC.S.c.2\r\n\r\n\r\n"
    )
