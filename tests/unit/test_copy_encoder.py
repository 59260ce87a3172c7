"""The hot loop of copying is the pure engine, message by message, plus the message id and what the target takes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.ack_reply import message_sequence
from nats_bridge.kinds.copying.counters import CopyCounters
from nats_bridge.kinds.copying.encoder import CopyEncoder, Operation, Rejected
from nats_bridge.kinds.copying.target import Target
from nats_bridge.rules.known_subjects import KnownSubjects
from nats_transforms import header_block
from nats_transforms.copy_id import without_copy_id
from nats_transforms.dialect import dialect
from nats_transforms.republish import Refusal, StoredMessage
from nats_transforms.source_record import HEADER, TWIN_HEADER, first_record
from nats_transforms.sourcing import Copied, Sourcing, compile_sourcing
from tests.unit.messages_to_copy import (
    CONFIGS,
    EARLIER,
    ENTRIES,
    KEY,
    MESSAGES,
    PREFIXES,
    delivered,
    run_all,
    stored,
    target_of,
)


def expected_block(sourcing: Sourcing, target: Target, message: StoredMessage) -> bytes:
    """What `nats_transforms.sourcing` makes of it, less what the target refuses, with an id before the record."""
    block = message.header_block
    if b"Nats-" in block:
        block = target.with_renamed(target.without_withheld(sourcing.without_records(sourcing.bare(block))))
    block = without_copy_id(block)
    lines = []
    if b"\nNats-Msg-Id:" not in block:
        lines.append((b"Nats-Msg-Id", b"bridge-%b-%d-%d" % (KEY, message.sequence, message.time_ns)))
    lines.append((target.record_header, sourcing.record(message.sequence, message.subject)))
    return header_block.append(block, lines)


def operation(subject: bytes, block: bytes, payload: bytes) -> bytes:
    return b"HPUB %b %d %d\r\n%b%b\r\n" % (subject, len(block), len(block) + len(payload), block, payload)


def acts(block: bytes) -> bool:
    return any(b"\n" + name in block for name in (b"Nats-TTL:", b"Nats-Rollup:", b"Nats-Schedule", b"Nats-Incr:"))


@pytest.mark.parametrize("prefix", PREFIXES, ids=["short", "domain", "no token", "more tokens"])
@pytest.mark.parametrize("server", ["2.9.10", "2.10.27", "2.15.1"])
@given(
    entry=st.sampled_from(ENTRIES),
    config=st.sampled_from(CONFIGS),
    version=st.sampled_from(["2.9.10", "2.10.27", "2.12.15", "2.15.1"]),
    mirrors=st.booleans(),
    exclude=st.sampled_from([[], [b"a.secret"], [b"a.>"]]),
    made=MESSAGES,
    there=st.sets(st.integers(1, 40), max_size=10),
    most=st.sampled_from([1, 700, 1 << 20]),
)
def test_equals_the_pure_function(
    prefix: tuple[bytes, bytes],
    server: str,
    entry: dict[str, Any],
    config: dict[str, Any],
    version: str,
    mirrors: bool,
    exclude: list[bytes],
    made: list[Any],
    there: set[int],
    most: int,
) -> None:
    if version == "2.9.10" and "subject_transforms" in entry:
        version = "2.10.27"  # whose rules for transforms are those of today
    sourcing = compile_sourcing({"name": "S", **entry}, dialect(version), mirrors=mirrors, exclude=exclude)
    target = target_of(server, **config)
    counters = CopyCounters()
    max_payload = 1500
    loop = CopyEncoder(sourcing, KEY, target, counters, max_payload=max_payload)
    loop.already_stored = set(there)
    messages = stored(made)
    batch = [delivered(message, prefix) for message in messages]
    # However few subjects are remembered, the results are the same.
    loop._known = KnownSubjects(loop._destination, kept=not loop.is_random, most=most)
    results = iter(run_all(loop, batch))
    already = unselected = withheld = 0
    for index, message in enumerate(messages):
        copy = sourcing.apply(message)
        if copy is None:
            unselected += 1
            continue
        if message.sequence in there:
            already += 1
            continue
        at, result = next(results)
        if isinstance(copy, Refusal) or not target.stores(copy.subject):
            assert isinstance(result, Rejected)
            assert (at, result.sequence, result.subject) == (index, message.sequence, message.subject)
            assert result.reason
            continue
        assert isinstance(copy, Copied)
        block = expected_block(sourcing, target, message)
        bare = target.without_withheld(sourcing.bare(message.header_block))
        withheld += len(sourcing.without_records(bare)) < len(sourcing.without_records(message.header_block))
        whole = (b"%d" % message.sequence, operation(copy.subject, block, message.payload))
        total = len(block) + len(message.payload)
        if total > min(max_payload, target.max_message_size or max_payload):
            assert isinstance(result, Rejected)
            assert (at, result.header_block, result.payload) == (index, block, message.payload)
            assert str(total) in result.reason
        elif acts(block):
            assert (at, result) == (index, whole)
        else:
            assert (at, result) == (-1, whole)
    assert next(results, None) is None
    assert (counters.already_there, counters.unselected, counters.withheld_headers) == (already, unselected, withheld)


@pytest.mark.parametrize("server", ["2.9.10", "2.15.1"])
@given(made=MESSAGES)
def test_without_records_earlier_ones_stay_as_they_are(server: str, made: list[Any]) -> None:
    sourcing = compile_sourcing({"name": "S"})
    target = target_of(server)
    loop = CopyEncoder(sourcing, KEY, target, CopyCounters(), max_payload=1 << 20, records=False)
    messages = [message for message in stored(made) if message.subject != b"elsewhere.x"]
    results = [
        None if isinstance(each, Rejected) else each
        for _, each in run_all(loop, [delivered(message, PREFIXES[0]) for message in messages])
    ]
    expected: list[Operation | None] = []
    for message in messages:
        if sourcing.refusal(message.subject) is not None:
            expected.append(None)
            continue
        block = message.header_block
        if b"Nats-" in block:
            block = without_copy_id(target.with_renamed(target.without_withheld(sourcing.bare(block))))
        if b"\nNats-Msg-Id:" not in block:
            own = b"bridge-%b-%d-%d" % (KEY, message.sequence, message.time_ns)
            block = header_block.append(block, [(b"Nats-Msg-Id", own)])
        expected.append((b"%d" % message.sequence, operation(message.subject, block, message.payload)))
    assert [each and each[1] for each in results] == [each and each[1] for each in expected]


def one(block: bytes = b"", subject: bytes = b"a.x", sequence: int = 7, payload: bytes = b"p") -> Delivered:
    return delivered(StoredMessage(subject, block, payload, sequence, 10**18), PREFIXES[0])


def encoder_of(entry: dict[str, Any] | None = None, *, target: Target | None = None, **more: Any) -> CopyEncoder:
    sourcing = compile_sourcing({"name": "S", **(entry or {})})
    return CopyEncoder(sourcing, KEY, target or target_of("2.10.27"), CopyCounters(), max_payload=1 << 20, **more)


def test_a_copy_to_the_byte() -> None:
    out: list[Operation] = []
    encoder_of().run([one(b"NATS/1.0\r\nA: 1\r\n\r\n")], out)
    block = (
        b"NATS/1.0\r\nA: 1\r\nNats-Msg-Id: bridge-0123456789ab-7-1000000000000000000\r\n"
        b"Nats-Stream-Source: S 7 > > a.x\r\n\r\n"
    )
    assert out == [(b"7", b"HPUB a.x %d %d\r\n%bp\r\n" % (len(block), len(block) + 1, block))]


def test_in_a_chain_of_copies_the_last_id_replaces_the_one_before() -> None:
    out: list[Operation] = []
    block = b"NATS/1.0\r\nA: 1\r\n" + EARLIER + b"\r\nNats-Stream-Source: A 3 > > a.x\r\n\r\n"
    encoder_of().run([one(block)], out)
    assert b"\r\nNATS/1.0\r\nA: 1\r\nNats-Msg-Id: bridge-0123456789ab-7-" in out[0][1]
    assert out[0][1].count(b"Nats-Msg-Id:") == 1


def test_the_record_stands_under_the_name_that_the_target_takes() -> None:
    for version, header in (("2.14.5", HEADER), ("2.15.1", TWIN_HEADER), ("2.99.0", TWIN_HEADER)):
        out: list[Operation] = []
        encoder_of(target=target_of(version)).run([one()], out)
        record = first_record(out[0][1], header)
        assert record is not None
        assert record.sequence == 7


def test_destinations_made_at_random_are_made_for_each_message() -> None:
    out: list[Operation] = []
    entry = {"subject_transforms": [{"src": "a.*", "dest": "t.{{random(1000000000)}}"}]}
    loop = encoder_of(entry)
    loop.run([one(sequence=n) for n in range(1, 41)], out)
    subjects = {sent.split(b" ")[1] for _, sent in out}
    # Of forty out of a thousand million, two are the same once in a million runs; three never.
    assert len(subjects) >= 39
    assert all(first_record(sent[sent.index(b"\r\n") :]) is not None for _, sent in out)


def test_specials_come_in_place_and_the_rest_follows_them() -> None:
    rollup = b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n"
    loop = encoder_of(target=target_of("2.10.27", allow_rollup_hdrs=True))
    batch = [one(sequence=1), one(rollup, sequence=2), one(rollup, sequence=3), one(sequence=4)]
    out: list[Operation] = []
    done, special = loop.run(batch, out)
    assert (done, [sequence for sequence, _ in out]) == (2, [b"1"])
    assert isinstance(special, tuple)
    assert special[0] == b"2"
    done, special = loop.run(batch, out, done)
    assert (done, [sequence for sequence, _ in out]) == (3, [b"1"])
    assert special is not None
    assert loop.run(batch, out, done) == (4, None)
    assert [sequence for sequence, _ in out] == [b"1", b"4"]


def test_a_special_at_the_end_and_an_empty_rest() -> None:
    loop = encoder_of()
    batch = [one(subject=b"elsewhere.x")]
    out: list[Operation] = []
    done, special = loop.run(batch, out)
    assert done == 1
    assert isinstance(special, Rejected)
    assert special.reason == "stream 'T' has no subject for 'elsewhere.x'"
    assert loop.run(batch, out, done) == (1, None)
    assert loop.run([], out) == (0, None)


def test_headers_that_the_target_refuses_do_not_make_a_message_special() -> None:
    counters = CopyCounters()
    sourcing = compile_sourcing({"name": "S"})
    loop = CopyEncoder(sourcing, KEY, target_of("2.15.1"), counters, max_payload=1 << 20)
    out: list[Operation] = []
    lines = b"Nats-Rollup: all\r\nNats-TTL: 1s\r\nNats-Expected-Stream: S\r\nNats-Batch-Id: 1\r\n"
    assert loop.run([one(b"NATS/1.0\r\nA: 1\r\n" + lines + b"B: 2\r\n\r\n")], out) == (1, None)
    assert b"\r\nNATS/1.0\r\nA: 1\r\nB: 2\r\nNats-Msg-Id: bridge-" in out[0][1]
    assert counters.withheld_headers == 1, "messages are counted, not lines"


@pytest.mark.parametrize(("server", "ours"), [("2.11.17", b""), ("2.12.15", b"Bridge-"), ("2.15.1", b"Bridge-")])
def test_headers_that_would_act_have_names_of_ours_since_they_act(server: str, ours: bytes) -> None:
    counters = CopyCounters()
    loop = CopyEncoder(compile_sourcing({"name": "S"}), KEY, target_of(server), counters, max_payload=1 << 20)
    lines = [b"Incr: +1", b"Schedule: @every 1s", b"Schedule-Target: a.y", b"Scheduler: a.z", b"Increments: 1"]
    block = b"NATS/1.0\r\n" + b"".join(b"Nats-%b\r\n" % line for line in lines) + b"\r\n"
    out: list[Operation] = []
    _, special = loop.run([one(block), one(b"NATS/1.0\r\nX: Nats-Incr: 1\r\n\r\n")], out)
    sent = special[1] if isinstance(special, tuple) else out[0][1]
    for line in lines[:-1]:
        assert b"\nNats-%b%b\r\n" % (ours, line) in sent
    assert b"\nNats-Increments: 1\r\n" in sent
    assert (special is None) is bool(ours)
    assert counters.renamed_headers == bool(ours), "messages are counted, not lines"


def test_what_is_no_counters_is_special_where_the_target_counts() -> None:
    loop = encoder_of(target=target_of("2.15.1", allow_msg_counter=True))
    counted = [b"NATS/1.0\r\nNats-Incr: 1\r\n\r\n", b"NATS/1.0\r\nNats-Bridge-Incr: 1\r\n\r\n"]
    out: list[Operation] = []
    assert loop.run([one(block) for block in counted], out) == (2, None)
    assert all(b"\nNats-Incr: 1\r\n" in sent for _, sent in out)
    _, special = loop.run([one()], [])
    assert isinstance(special, tuple)
    # With the server's own record, a counter would take it for a copy of its own.
    counting = target_of("2.12.15", allow_msg_counter=True)
    assert (counting.record_header, target_of("2.12.15").record_header) == (TWIN_HEADER, HEADER)


def test_the_limit_of_size_counts_the_added_headers() -> None:
    sourcing = compile_sourcing({"name": "S"})
    out: list[Operation] = []
    encoder_of().run([one()], out)
    total = int(out[0][1].split(b"\r\n")[0].split(b" ")[-1])
    for limit, fits in ((total, True), (total - 1, False)):
        loop = CopyEncoder(sourcing, KEY, target_of("2.10.27"), CopyCounters(), max_payload=limit)
        _, special = loop.run([one()], [])
        assert (special is None) is fits
        small = target_of("2.10.27", max_msg_size=limit)
        _, special = CopyEncoder(sourcing, KEY, small, CopyCounters(), max_payload=1 << 20).run([one()], [])
        assert (special is None) is fits


def test_existing_copies_are_skipped_once() -> None:
    loop = encoder_of()
    loop.already_stored = {2, 3, 9}
    out: list[Operation] = []
    loop.run([one(sequence=n) for n in range(1, 5)], out)
    assert [sequence for sequence, _ in out] == [b"1", b"4"]
    assert loop.already_stored == {9}


def test_a_changed_target_is_taken_into_account_at_once() -> None:
    loop = encoder_of(target=target_of("2.10.27", subjects=["b.>"]))
    out: list[Operation] = []
    assert loop.run([one()], out)[1] is not None
    loop.retarget(target_of("2.15.1"))
    assert loop.run([one()], out)[1] is None
    assert b"Nats-Bridge-Source: S 7 > > a.x\r\n" in out[0][1]
    assert b"Nats-Msg-Id: bridge-0123456789ab-7-" in out[0][1]
    loop.retarget(target_of("2.15.1"), b"ffffffffffff")
    loop.run([one()], out)
    assert b"Nats-Msg-Id: bridge-ffffffffffff-7-" in out[1][1]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_sequence_and_time_are_read_from_every_form_of_reply(prefix: tuple[bytes, bytes]) -> None:
    _, reply, _, _ = delivered(StoredMessage(b"s", b"", b"", 123, 456), prefix)
    assert message_sequence(reply) == b"123"
