"""The hot loop is the pure function, message by message, whatever comes in whatever batches."""

from collections.abc import Coroutine, Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_bridge.client.wire import Delivered
from nats_bridge.kinds.republish import encoder as republish_loop
from nats_bridge.kinds.republish.counters import RuleCounters
from nats_bridge.kinds.republish.encoder import RepublishEncoder, Suspect
from nats_bridge.kinds.republish.retention import Retention, StreamLimits, SubjectPurge
from nats_transforms import dialect
from nats_transforms.republish import Republished, StoredMessage, compile_republish
from nats_transforms.subject import matches

BLOCKS = [
    b"",
    b"NATS/1.0\r\n\r\n",
    b"NATS/1.0\r\nA: 1\r\nA: 2\r\na:3\r\n\r\n",
    b"NATS/1.0\r\nNats-Sequence: 1\r\nNats-Msg-Size: 9\r\n\r\n",
    b"NATS/1.0\r\nLatin: \xe9\r\nEmpty:\r\n\r\n",
    b"NATS/1.0 503 No\r\nA: b\r\n\r\n",
    b"\r\n",
]
SUBJECTS = [b"s.a", b"s.b", b"s.long-one", b"s.a.b", b"other", "s.日本".encode(), b"s.\xff", b"s.own"]
RULES: list[dict[str, object]] = [
    {"src": ">", "dest": "out.>"},
    {"src": "s.*", "dest": "out.$1"},
    {"src": "s.*", "dest": "out.{{partition(4,1)}}.{{split(1,-)}}"},
    {"src": "s.*", "dest": "out.{{left(1,1)}}", "headers_only": True},
    {"src": "s.>", "dest": "out.>", "headers_only": True},
]
MESSAGES = st.lists(
    st.tuples(
        st.sampled_from(SUBJECTS),
        st.sampled_from(BLOCKS),
        st.sampled_from([b"", b"x", b"\r\nPUB x 0\r\n", b"y" * 300]),
        st.integers(1, 3),
        st.sampled_from([0, 1, 999, 120_000_000, 1_000_000_000, 1_000_000_001]),
    ),
    min_size=1,
    max_size=30,
)


def delivered(message: StoredMessage, *, headers_only: bool, prefix: bytes) -> Delivered:
    """As a consumer delivers it; `prefix` is what newer servers write before the stream: a domain and an account."""
    block, payload = message.header_block, message.payload
    if headers_only:
        size = b"Nats-Msg-Size: %d\r\n\r\n" % len(payload)
        block = (block[:-2] if block else b"NATS/1.0\r\n") + size
        payload = b""
    reply = b"$JS.ACK.%bS.C.1.%d.%d.%d.0" % (prefix, message.sequence, message.sequence, message.time_ns)
    return message.subject, reply + (b".token" if prefix else b""), block, payload


def operation(republished: Republished) -> bytes:
    head, body = republished.header_block, republished.payload
    return b"HPUB %b %d %d\r\n%b%b\r\n" % (republished.subject, len(head), len(head) + len(body), head, body)


def encoder(
    rule: dict[str, object] = RULES[0],
    *,
    retention: Retention | None = None,
    counters: RuleCounters | None = None,
    **more: Any,
) -> RepublishEncoder:
    """The loop of a rule on stream S."""
    republish = compile_republish("S", rule, dialect("2.15.1"))
    return RepublishEncoder(republish, retention or Retention(StreamLimits()), counters or RuleCounters(), **more)


def batches(messages: Sequence[Delivered], size: int) -> list[Sequence[Delivered]]:
    return [messages[at : at + size] for at in range(0, len(messages), size)]


@pytest.mark.parametrize("prefix", [b"", b"_.hash."], ids=["short", "long"])
@pytest.mark.parametrize("version", ["2.9.10", "2.10.27", "2.15.1"])
@given(
    rule=st.sampled_from(RULES),
    made=MESSAGES,
    size=st.integers(1, 8),
    careful=st.booleans(),
    exclude=st.sampled_from([(), (b"s.a",), (b"s.a.*", b"other"), (b"s.>",)]),
    own=st.sampled_from([(), (b"out.own", b"out.a.>")]),
    hot=st.sampled_from([0, 1_000, 1 << 20]),
    enters=st.sampled_from([1, 2, 3]),
)
def test_equals_the_pure_function(
    prefix: bytes,
    version: str,
    rule: dict[str, object],
    made: list[Any],
    size: int,
    careful: bool,
    exclude: tuple[bytes, ...],
    own: tuple[bytes, ...],
    hot: int,
    enters: int,
) -> None:
    if version == "2.9.10":
        rule = rule | {"dest": str(rule["dest"]).replace("left(", "splitFromLeft(")}
    republish = compile_republish("S", rule, dialect(version), exclude=exclude)
    # A limit that is never reached takes the careful way without changing anything.
    limits = StreamLimits(max_msgs=10**9) if careful else StreamLimits()
    counters = RuleCounters()
    loop = RepublishEncoder(republish, Retention(limits), counters, own_subjects=own)
    loop._room = hot
    sequence, time_ns, last = 0, 1_700_000_000_000_000_000, dict[bytes, int]()
    expected: list[bytes] = []
    arriving: list[Delivered] = []
    for subject, block, payload, step, later in made:
        sequence += step
        time_ns += later
        message = StoredMessage(subject, block, payload, sequence, time_ns)
        republished = republish.apply(message, last.get(subject, 0))
        last[subject] = sequence
        assert republished is None or not any(matches(subject, pattern) for pattern in exclude)
        if republished is not None and not any(matches(republished.subject, pattern) for pattern in own):
            expected.append(operation(republished))
        arriving.append(delivered(message, headers_only=bool(rule.get("headers_only")), prefix=prefix))
    out: list[bytes] = []
    with pytest.MonkeyPatch.context() as patch:
        # However few subjects have an entry, the results are the same.
        patch.setattr(republish_loop, "_ENTERS", enters)
        for batch in batches(arriving, size):
            assert loop.run(batch, out) is None
    assert out == expected
    assert counters.received == len(made)
    assert counters.republished == len(expected)
    assert counters.received == counters.republished + counters.unmatched + counters.suppressed + counters.looped


def test_subjects_leave_for_the_compact_map_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(republish_loop, "_HOT_BYTES", 10 * republish_loop._entry_size(b"s.10"))
    loop = encoder()
    out: list[bytes] = []
    for sequence in range(1, 301):
        message = StoredMessage(b"s.%d" % (sequence % 100), b"", b"", sequence, 1_700_000_000_000_000_000)
        loop.run([delivered(message, headers_only=False, prefix=b"")], out)
    last = [int(sent.rpartition(b"Last-Sequence: ")[2].partition(b"\r\n")[0]) for sent in out]
    assert last == [0] * 100 + list(range(1, 201))
    assert len(loop.last_sequences) >= 90
    assert len(loop._entries) <= 11


def test_what_is_seen_often_stays_and_what_is_not_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(republish_loop, "_HOT_BYTES", 10 * republish_loop._entry_size(b"often.1"))
    loop = encoder()
    often = [b"often.%d" % number for number in range(5)]
    for sequence in range(1, 4001):
        subject = often[sequence // 2 % 5] if sequence % 2 else b"once.%d" % sequence
        message = StoredMessage(subject, b"", b"", sequence, 1_700_000_000_000_000_000)
        loop.run([delivered(message, headers_only=False, prefix=b"")], [])
    assert set(often) <= set(loop._entries)
    assert len(loop._entries) <= 11
    loop.forget_destinations()
    assert len(loop._entries) == 0
    assert len(loop.last_sequences) == 2005


def test_a_message_that_waits_is_not_its_own_predecessor() -> None:
    retention = Retention(StreamLimits(max_msgs=10**9))
    loop = encoder(retention=retention)
    loop._room = 1  # for one entry, another subject's
    loop.seed(b"s", b"1")
    purge = SubjectPurge(b"elsewhere", up_to=1)
    retention.purged(purge)
    out: list[bytes] = []
    other, waiting = (
        delivered(StoredMessage(subject, b"", b"", n, 10**18 + n), headers_only=False, prefix=b"")
        for n, subject in ((2, b"other"), (3, b"s"))
    )

    async def ask(_: Suspect) -> None:  # the model knows after that
        retention.answer(purge, 0, 1)

    for each in (other, waiting):
        asking = loop.run([each], out, ask)
        assert asking is not None
        with pytest.raises(StopIteration):
            cast(Coroutine[Any, Any, None], asking).send(None)
        retention.unanswered.append(purge)
    assert [b"Nats-Last-Sequence: 1\r\n" in sent for sent in out] == [False, True]


def test_a_stream_whose_name_is_a_format() -> None:
    republish = compile_republish("100%b", RULES[0], dialect("2.15.1"))
    loop = RepublishEncoder(republish, Retention(StreamLimits()), RuleCounters())
    message, out = StoredMessage(b"s.%d", b"", b"%", 1, 10**18), list[bytes]()
    loop.run([delivered(message, headers_only=False, prefix=b"")], out)
    republished = republish.apply(message, 0)
    assert republished is not None
    assert out == [operation(republished)]


def test_what_would_be_stored_again_is_not_published() -> None:
    counters = RuleCounters()
    loop = encoder({"src": "s.*", "dest": "s.$1"}, counters=counters, own_subjects=(b"s.own",))
    out: list[bytes] = []
    messages = [StoredMessage(subject, b"", b"", n, 10**18) for n, subject in enumerate([b"s.own", b"s.free"], 1)]
    loop.run([delivered(message, headers_only=False, prefix=b"") for message in messages], out)
    assert [sent.split(b" ")[1] for sent in out] == [b"s.free"]
    assert counters.looped == 1


@pytest.mark.parametrize("careful", [False, True])
def test_a_message_that_is_too_large_is_counted_and_still_a_predecessor(careful: bool) -> None:
    counters = RuleCounters()
    limits = StreamLimits(max_msgs=10**9) if careful else StreamLimits()
    loop = encoder(retention=Retention(limits), counters=counters, max_payload=500)
    messages = [StoredMessage(b"s", b"", b"x" * size, n, 10**18) for n, size in enumerate((1, 500, 1), 1)]
    out: list[bytes] = []
    loop.run([delivered(message, headers_only=False, prefix=b"") for message in messages], out)
    assert counters.too_large == 1
    assert [b"Nats-Last-Sequence: 2\r\n" in sent for sent in out] == [False, True]


def test_a_destination_that_is_no_subject_is_suppressed() -> None:
    counters = RuleCounters()
    loop = encoder({"src": "s.*", "dest": "out.{{left(1,1)}}"}, counters=counters)
    out: list[bytes] = []
    loop.run([delivered(StoredMessage(b"s.*a", b"", b"", 1, 10**18), headers_only=False, prefix=b"")], out)
    assert out == []
    assert counters.suppressed == 1


def test_a_new_stream_of_the_same_name_has_no_predecessors() -> None:
    loop = encoder()
    out: list[bytes] = []
    first = delivered(StoredMessage(b"s", b"", b"", 5, 10**18), headers_only=False, prefix=b"")
    loop.seed(b"t", b"4")
    loop.run([first], out)
    loop.forget()
    again = [StoredMessage(subject, b"", b"", n, 10**18) for n, subject in enumerate([b"s", b"t"], 1)]
    loop.run([delivered(message, headers_only=False, prefix=b"") for message in again], out)
    assert all(b"Nats-Last-Sequence: 0\r\n" in sent for sent in out)
