"""The pure parts of native copying through the sidecar: deliveries, requests and answers on bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nats_bridge.bridge.kinds.native_copy.check import compile_rule, is_at_least, stream_to_create
from nats_bridge.bridge.kinds.native_copy.counters import NativeCopyCounters
from nats_bridge.bridge.kinds.native_copy.encoder import NativeEncoder, UndeliverableError, renumbered
from nats_bridge.bridge.kinds.native_copy.permissions import concerns_leaf
from nats_bridge.bridge.kinds.native_copy.requests import read_create, refusal_of, restored
from nats_bridge.bridge.kinds.native_copy.waking import away, may_be_ours, outdated
from nats_bridge.bridge.settings import NativeCopyRule
from nats_bridge.transforms.dialect import NEWEST

RULE = NativeCopyRule.model_validate(
    {
        "name": "r",
        "kind": "native_copy",
        "stream": "ORDERS",
        "prefix": "bridge.orders",
        "leaf": "west",
        "subject_transforms": [{"src": "orders.*", "dest": "west.{{wildcard(1)}}"}],
        "exclude": ["orders.secret"],
    }
)


def _reply(sequence: int, number: int) -> bytes:
    return b"$JS.ACK.ORDERS.c.1.%d.%d.1600000000000000001.7" % (sequence, number)


def _encoder(*removed: bytes) -> tuple[NativeEncoder, NativeCopyCounters]:
    counters = NativeCopyCounters()
    return NativeEncoder(compile_rule(RULE, NEWEST), removed, counters), counters


def test_deliveries_have_the_new_subject_behind_their_reply_and_no_gap_where_one_was_left_out() -> None:
    encoder, counters = _encoder()
    block = b"NATS/1.0\r\nA: 1\r\nA:  2\r\n\r\n"
    out: list[bytes] = []
    batch = [
        (b"orders.a", _reply(11, 1), b"", b"x\r\n"),
        (b"orders.secret", _reply(12, 2), b"", b"no"),
        (b"other", _reply(13, 3), b"", b"no"),
        (b"orders.b", _reply(14, 4), block, b"\xff"),
    ]
    assert encoder.run(batch, b"bridge.orders.deliver.M.1 ", 0, out) == 2
    assert out == [
        b"LMSG bridge.orders.deliver.M.1 %b@west.a 3\r\nx\r\n\r\n" % _reply(11, 1),
        b"HMSG bridge.orders.deliver.M.1 %b@west.b 25 26\r\n%b\xff\r\n" % (_reply(14, 2), block),
    ]
    assert encoder.run([(b"orders.a", _reply(15, 5), b"", b"")], b"d ", 2, out) == 2
    assert out[-1] == b"LMSG d %b@west.a 0\r\n\r\n" % _reply(15, 3)
    assert counters == NativeCopyCounters(received=5, delivered=3, bytes_out=29, unselected=2)


def test_headers_are_taken_out_where_the_rule_says_so() -> None:
    encoder, counters = _encoder(b"Nats-Expected-Stream")
    out: list[bytes] = []
    alone = b"NATS/1.0\r\nNats-Expected-Stream: ORDERS\r\n\r\n"
    among = b"NATS/1.0\r\na:  b \r\nNats-Expected-Stream: ORDERS\r\nC: \xff\r\n\r\n"
    other = b"NATS/1.0\r\nnats-expected-stream: x\r\n\r\n"
    encoder.run([(b"orders.a", _reply(1, 1), block, b"x") for block in (alone, among, other)], b"d ", 0, out)
    assert out[0] == b"LMSG d %b@west.a 1\r\nx\r\n" % _reply(1, 1)
    assert out[1].endswith(b"\r\nNATS/1.0\r\na:  b \r\nC: \xff\r\n\r\nx\r\n")
    assert out[2].endswith(b"\r\n" + other + b"x\r\n")
    assert counters.headers_removed == 2


@pytest.mark.parametrize(
    ("subject", "takes_at", "why"),
    [(b"orders.a b", True, "white space"), (b"orders.a@b", False, "holds an '@'")],
)
def test_a_subject_that_cannot_be_delivered_ends_it(subject: bytes, takes_at: bool, why: str) -> None:
    encoder, _ = _encoder()
    encoder.takes_at = takes_at
    out: list[bytes] = []
    batch = [(b"orders.a", _reply(1, 1), b"", b""), (subject, _reply(2, 2), b"", b"")]
    with pytest.raises(UndeliverableError, match=why):
        encoder.run(batch, b"d ", 0, out)
    assert len(out) == 1


def test_both_forms_of_reply_subjects_are_renumbered() -> None:
    assert renumbered(b"$JS.ACK.S.c.1.17.9.160.3", 4) == b"$JS.ACK.S.c.1.17.5.160.3"
    assert renumbered(b"$JS.ACK.hub.ACCHASH.S.c.1.17.9.160.3", 4) == b"$JS.ACK.hub.ACCHASH.S.c.1.17.5.160.3"
    assert renumbered(b"$JS.ACK._.ACCHASH.S.c.1.17.9.160.3.token", 4) == b"$JS.ACK._.ACCHASH.S.c.1.17.5.160.3.token"


def test_a_request_for_a_consumer_is_redirected_and_its_answer_restored() -> None:
    config = {"deliver_subject": "bridge.orders.deliver.M.x", "opt_start_seq": 7, "sourcing": True, "unknown": [1]}
    body = {"stream_name": "ORDERS", "config": config, "also": "this"}
    create = read_create("CONSUMER.CREATE.ORDERS", json.dumps(body).encode())
    assert create is not None
    assert create.deliver == b"bridge.orders.deliver.M.x"
    assert json.loads(create.redirected("_INBOX.1", ())) == {
        **body,
        "config": {**config, "deliver_subject": "_INBOX.1"},
    }
    assert json.loads(create.redirected("_INBOX.1", ("a",)))["config"]["filter_subject"] == "a"
    assert json.loads(create.redirected("_INBOX.1", ("a", "b")))["config"]["filter_subjects"] == ["a", "b"]
    answer = {"name": "c", "config": {**config, "deliver_subject": "_INBOX.1"}}
    payload, is_there = restored(json.dumps(answer).encode(), create.deliver)
    assert is_there
    assert json.loads(payload) == {"name": "c", "config": config}
    error = b'{"error":{"code":404,"err_code":10059,"description":"stream not found"}}'
    assert restored(error, create.deliver) == (error, False)


@pytest.mark.parametrize("payload", [b"", b"[]", b"{}", b'{"config": {}}', b'{"config": {"deliver_subject": 1}}'])
def test_a_request_without_a_deliver_subject_is_none_for_a_consumer_of_ours(payload: bytes) -> None:
    assert read_create("CONSUMER.CREATE.ORDERS", payload) is None


def test_what_is_forwarded() -> None:
    for api in (
        "STREAM.INFO.ORDERS",
        "CONSUMER.CREATE.ORDERS",
        "CONSUMER.CREATE.ORDERS.c.a.>",
        "CONSUMER.DELETE.ORDERS.JS_MIRROR_x",
        "CONSUMER.DELETE.ORDERS.JS_SRC_x",
    ):
        assert _refusal(api) is None
    assert _refusal("CONSUMER.CREATE.OTHER") == {"code": 404, "err_code": 10059, "description": "stream not found"}
    assert _refusal("CONSUMER.DELETE.ORDERS.mine") == {
        "code": 404,
        "err_code": 10014,
        "description": "consumer not found",
    }
    for api in ("STREAM.DELETE.ORDERS", "CONSUMER.RESET.ORDERS.c", "STREAM.MSG.GET.ORDERS", "INFO", ""):
        refusal = _refusal(api)
        assert refusal is not None
        assert refusal["code"] == 400


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"deliver_subject": None}, "with a deliver subject"),
        ({"deliver_subject": "elsewhere.x"}, "external.deliver is to be bridge.orders.deliver,"),
        ({"deliver_subject": "bridge.orders.deliver.x\r\nPING"}, "external.deliver is to be"),
        ({"deliver_subject": "bridge.orders.deliver.>"}, "external.deliver is to be"),
        ({"flow_control": False}, "with flow control"),
        ({"durable_name": "d"}, "no durable ones"),
    ],
)
def test_consumers_that_are_not_served(changed: dict[str, Any], why: str) -> None:
    refusal = _refusal("CONSUMER.CREATE.ORDERS", changed)
    assert refusal is not None
    assert refusal["code"] == 400
    assert why in refusal["description"]


def _refusal(api: str, changed: dict[str, Any] | None = None) -> dict[str, Any] | None:
    config = {"deliver_subject": "bridge.orders.deliver.M.x", "flow_control": True, **(changed or {})}
    found = refusal_of(api, "ORDERS", b"bridge.orders.deliver.", json.dumps({"config": config}).encode())
    return None if found is None else json.loads(found)["error"]


def test_waking() -> None:
    assert outdated(b"p.deliver.x").startswith(b"HMSG p.deliver.x ")
    assert json.loads(away(b"$JSC.R.x").split(b"\r\n")[1])["error"]["code"] == 503
    assert may_be_ours(b"$JSC.R.abc", b"ORDERS")
    assert may_be_ours(b"$JSC.R._.acc.ORDERS.c.abc", b"ORDERS")
    assert not may_be_ours(b"$JSC.R._.acc.OTHER.c.abc", b"ORDERS")
    assert not may_be_ours(b"_INBOX.x", b"ORDERS")


def test_the_stream_to_create() -> None:
    external = {"api": "bridge.orders.API", "deliver": "bridge.orders.deliver"}
    assert json.loads(stream_to_create(RULE)) == {"name": "ORDERS", "mirror": {"name": "ORDERS", "external": external}}
    assert [is_at_least(version, (2, 11)) for version in ("2.9.25", "2.10.27", "2.11.0", "2.15.1", "3.0.0")] == [
        *(False, False, True, True, True)
    ]


@pytest.mark.parametrize(
    ("kind", "subject", "concerns"),
    [
        ("Publish", "bridge.orders.deliver.M.1", True),
        ("Subscription", "bridge.orders.API.>", True),
        ("Subscription", "bridge.orders.fc.>", True),
        ("Publish", "$JSC.R.abc", True),
        ("Publish", "_INBOX.of.a.client", False),
        ("Subscription", "bridge.other.API.>", False),
    ],
)
def test_a_violation_of_what_others_asked_for_is_no_failure_of_the_rule(
    kind: str, subject: str, concerns: bool
) -> None:
    assert concerns_leaf(f'Permissions Violation for {kind} to "{subject}"', RULE.prefix) is concerns
