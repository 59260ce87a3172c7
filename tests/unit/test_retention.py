"""The model of removals against a stream that is simulated in full, message by message."""

from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nats_bridge.kinds.republish.counters import RuleCounters
from nats_bridge.kinds.republish.encoder import Remaining, RepublishEncoder, Suspect
from nats_bridge.kinds.republish.retention import Retention, StreamLimits, SubjectPurge
from nats_transforms.subject import matches
from tests.unit.test_republish_loop import encoder


@dataclass
class Stream:
    """What a server keeps: the rules of section "limits" of its store, without any cleverness."""

    limits: StreamLimits
    messages: dict[int, bytes] = field(default_factory=dict)
    sequence: int = 0

    def newest(self, subject: bytes, before: int | None = None) -> int:
        found = [n for n, s in self.messages.items() if s == subject and (before is None or n < before)]
        return max(found, default=0)

    def store(self, subject: bytes, rollup: bytes) -> int:
        """Store a message; the last sequence that goes with it."""
        last = self.newest(subject)
        self.sequence += 1
        self.messages[self.sequence] = subject
        most = self.limits.max_msgs_per_subject
        while most and sum(s == subject for s in self.messages.values()) > most:
            del self.messages[min(n for n, s in self.messages.items() if s == subject)]
        while self.limits.max_msgs and len(self.messages) > self.limits.max_msgs:
            del self.messages[min(self.messages)]
        if rollup == b"all":
            self.messages = {self.sequence: subject}
        elif rollup == b"sub":
            self.messages = {n: s for n, s in self.messages.items() if s != subject or n == self.sequence}
        return last

    @property
    def first(self) -> int:
        return min(self.messages, default=self.sequence + 1)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("store"), st.sampled_from([b"a", b"b", b"c", b"a.x", b"b.x"]), st.just(b"")),
        st.tuples(st.just("store"), st.sampled_from([b"a", b"b", b"c"]), st.just(b"")),
        st.tuples(st.just("store"), st.sampled_from([b"a", b"b"]), st.sampled_from([b"sub", b"sub", b"all"])),
        st.tuples(st.just("delete"), st.integers(1, 12), st.none()),
        st.tuples(st.just("purge"), st.sampled_from([b"a", b"b", b"*.x", b">"]), st.none()),
    ),
    min_size=1,
    max_size=60,
)
LIMITS = [
    StreamLimits(),
    StreamLimits(rollups=True),
    StreamLimits(max_msgs=4),
    StreamLimits(max_msgs_per_subject=1),
    StreamLimits(max_msgs_per_subject=3),
    StreamLimits(max_msgs=5, max_msgs_per_subject=1),
    StreamLimits(max_msgs=5, max_msgs_per_subject=2),
    StreamLimits(max_msgs=6, max_msgs_per_subject=2, rollups=True),
    StreamLimits(max_msgs=3, rollups=True),
]


@pytest.mark.parametrize("limits", LIMITS, ids=str)
@given(steps=STEPS)
@example(steps=[("store", subject, b"") for subject in (b"c", b"a", b"a", b"b", b"b", b"a.x", b"b.x", b"c")])
def test_last_sequences_are_those_of_the_whole_stream(limits: StreamLimits, steps: list[Any]) -> None:
    stream = Stream(limits)
    loop = encoder(retention=Retention(limits))
    for what, which, rollup in steps:
        if what == "store":
            if rollup and not limits.rollups:
                continue
            before = Stream(limits, dict(stream.messages), stream.sequence)
            expected = stream.store(which, rollup)
            assert republished(loop, which, stream.sequence, rollup, before) == expected
        elif what == "delete" and stream.sequence - which + 1 in stream.messages:
            gone = stream.sequence - which + 1
            del stream.messages[gone]
            loop.retention.removed(gone)
        elif what == "purge":
            purged = [n for n, s in stream.messages.items() if matches(s, which)]
            for gone in purged:
                del stream.messages[gone]
            if which == b">":
                loop.retention.raise_floor(stream.first)
            elif limits.max_msgs:
                for gone in purged:  # as the server lists them
                    loop.retention.removed(gone)
            else:
                purge = SubjectPurge(which)
                purge.begin(stream.sequence)
                loop.retention.purged(purge)
                loop.retention.answer(purge, 0, stream.sequence)


def republished(loop: RepublishEncoder, subject: bytes, sequence: int, rollup: bytes, before: Stream) -> int:
    """What the loop writes; look-ups are answered from the stream as it was before."""
    block = b"NATS/1.0\r\nNats-Rollup: %b\r\n\r\n" % rollup if rollup else b""
    message = (subject, b"$JS.ACK.S.C.1.%d.%d.1000000000000000000.0" % (sequence, sequence), block, b"")
    out: list[bytes] = []

    async def ask(suspect: Suspect) -> Remaining:
        assert (suspect.subject, suspect.sequence) == (subject, sequence)
        return Remaining(before.newest(subject), in_time=False)

    if waiting := loop.run([message], out, ask):
        finish(waiting)
    (sent,) = out
    return int(sent.rpartition(b"Nats-Last-Sequence: ")[2].partition(b"\r\n")[0])


def finish(waiting: Awaitable[None]) -> None:
    """Run to its end what waits for nothing."""
    with pytest.raises(StopIteration):
        cast(Coroutine[Any, Any, None], waiting).send(None)


@pytest.mark.parametrize(("others", "expected"), [(3, 1), (4, 0)])
def test_of_too_many_messages_the_oldest_goes(others: int, expected: int) -> None:
    limits = StreamLimits(max_msgs=4)
    loop = encoder(retention=Retention(limits))
    for sequence in range(1, others + 2):
        republished(loop, b"b" if sequence > 1 else b"a", sequence, b"", Stream(limits))
    assert republished(loop, b"a", others + 2, b"", Stream(limits)) == expected


def test_ages_expire_by_the_time_of_later_messages() -> None:
    retention = Retention(StreamLimits(max_age_ns=1000))
    for number in range(1, 21):
        retention.advance(number, number * 100)
    # Message 20 came at 2000: what came at 1000 or before is gone.
    assert retention.floor == 10


def test_limits_are_read_from_a_configuration() -> None:
    config: dict[str, object] = {
        "max_msgs": -1,
        "max_msgs_per_subject": 5,
        "max_bytes": 100,
        "max_age": 0,
        "allow_rollup_hdrs": True,
        "retention": "interest",
    }
    limits = StreamLimits.of(config)
    assert limits == StreamLimits(max_msgs_per_subject=5, rollups=True, opaque=("max_bytes", "interest retention"))
    assert limits.uncertain == ("max_bytes", "interest retention")
    assert StreamLimits.of({"max_msgs": 7, "discard": "new"}).max_msgs == 0


def test_a_stream_that_only_grows_needs_no_model() -> None:
    assert not Retention(StreamLimits()).active
    assert not Retention(StreamLimits(max_msgs_per_subject=1)).active
    assert Retention(StreamLimits(max_msgs=1)).active
    retention = Retention(StreamLimits())
    retention.removed(3)
    assert retention.active
    retention.begin(4)
    assert not retention.active


def test_after_a_purge_everything_below_is_forgotten() -> None:
    loop = encoder()
    stream = Stream(StreamLimits())
    for subject in (b"a", b"b", b"a"):
        before = Stream(stream.limits, dict(stream.messages), stream.sequence)
        assert republished(loop, subject, stream.sequence + 1, b"", before) == stream.store(subject, b"")
    # The purge happened after message 4, which has not come yet.
    loop.retention.after(10**18 + 4, lambda _: loop.retention.raise_floor(5))
    assert loop.retention.active
    assert at_time(loop, b"a", 4, 10**18 + 3) == 3
    assert at_time(loop, b"b", 5, 10**18 + 5) == 0
    assert at_time(loop, b"a", 6, 10**18 + 6) == 0
    assert not loop.retention.active
    assert at_time(loop, b"a", 7, 10**18 + 7) == 6


def at_time(loop: RepublishEncoder, subject: bytes, sequence: int, time_ns: int) -> int:
    out: list[bytes] = []
    loop.run([(subject, b"$JS.ACK.S.C.1.%d.%d.%d.0" % (sequence, sequence, time_ns), b"", b"")], out)
    (sent,) = out
    return int(sent.rpartition(b"Nats-Last-Sequence: ")[2].partition(b"\r\n")[0])


def test_a_missing_message_may_be_a_predecessor_until_known_removed() -> None:
    retention = Retention(StreamLimits(max_msgs_per_subject=1))
    retention.skip(3, 5)
    retention.skip(8, 8)
    assert retention.active
    assert [retention.newest_skipped(2, number) for number in (3, 6, 7, 9)] == [0, 5, 5, 8]
    assert retention.newest_skipped(6, 7) == 0
    assert retention.newest_skipped(8, 9) == 0
    retention.removed(8)
    retention.removed(5)
    assert [retention.newest_skipped(last, 9) for last in (2, 4)] == [4, 0]
    retention.gone_at(10, 5)
    retention.advance(10, 0)
    assert retention.newest_skipped(1, 7) == 4
    retention.advance(11, 0)
    assert retention.newest_skipped(1, 7) == 0
    assert retention.skipped == [(8, 8)]
    retention.raise_floor(9)
    assert retention.skipped == []


def test_a_gap_is_seen_where_it_is_looked_for_and_counted() -> None:
    counters = RuleCounters()
    retention = Retention(StreamLimits(max_msgs_per_subject=1), followed_from=2)
    loop = encoder(retention=retention, counters=counters)
    assert at_time(loop, b"a", 1, 1) == 0
    retention.skip(2, 2)
    # What was missing before the rule started is counted, and not named.
    assert at_time(loop, b"a", 3, 3) == 1
    retention.skip(4, 5)
    assert at_time(loop, b"b", 6, 6) == 5
    assert at_time(loop, b"b", 7, 7) == 6
    assert at_time(loop, b"a", 8, 8) == 5
    assert counters.last_sequence_uncertain == 3


def test_of_a_purge_what_the_server_has_left_is_left() -> None:
    counters = RuleCounters()
    loop = encoder(counters=counters)
    for number, subject in enumerate((b"a.x", b"b.x", b"c"), 1):
        assert at_time(loop, subject, number, number) == 0
    purge = SubjectPurge(b"*.x")
    purge.begin(3)
    loop.retention.purged(purge)
    asked: list[Suspect] = []

    async def ask(suspect: Suspect) -> None:  # the model knows after that
        asked.append(suspect)
        assert loop.waiting == 1
        loop.retention.answer(purge, 2, 3)

    out: list[bytes] = []
    waiting = loop.run([(b"a.x", b"$JS.ACK.S.C.1.4.4.4.0", b"", b"")], out, ask)
    assert waiting is not None
    assert not out
    finish(waiting)
    assert asked == [Suspect(b"a.x", 1, 4)]
    assert loop.waiting == 0
    (sent,) = out
    assert b"Nats-Last-Sequence: 0\r\n" in sent
    assert at_time(loop, b"b.x", 5, 5) == 2
    assert counters.last_sequence_uncertain == 0
    late = SubjectPurge(b"c")
    late.begin(5)
    loop.retention.purged(late)
    loop.retention.answer(late, 0, 6)
    assert at_time(loop, b"c", 6, 6) == 0
    assert counters.last_sequence_uncertain == 1
