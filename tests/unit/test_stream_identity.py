"""Whether a stream with another creation time is the one that was seen before, from messages that are known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_bridge.client.stream_identity import Bounds, KnownStream, MessageStamp, Verdict, judge


def _bounds(messages: list[MessageStamp], last: MessageStamp) -> Bounds:
    return Bounds(messages[0] if messages else None, last)


def _judged(known: KnownStream, messages: list[MessageStamp], last: MessageStamp) -> Verdict:
    held = {
        sequence: time_ns for sequence, time_ns in messages if sequence in {each.sequence for each in known.messages}
    }
    return judge(known.messages, held, _bounds(messages, last))


KNOWN = (MessageStamp(10, 1010), MessageStamp(4, 1004))
END = MessageStamp(12, 2012)


@pytest.mark.parametrize(
    ("messages", "last", "verdict"),
    [
        pytest.param([MessageStamp(10, 1010)], MessageStamp(12, 1012), "same", id="one is where it was"),
        pytest.param(
            [MessageStamp(4, 1004), MessageStamp(10, 1999)], MessageStamp(10, 1999), "same", id="it lost its end"
        ),
        pytest.param([], MessageStamp(10, 1010), "same", id="it was purged"),
        pytest.param(
            [MessageStamp(n, 2000 + n) for n in range(1, 13)], END, "recreated", id="others have their sequences"
        ),
        pytest.param([], MessageStamp(0, 0), "recreated", id="it is empty"),
        pytest.param(
            [MessageStamp(1, 2001), MessageStamp(2, 2002)],
            MessageStamp(2, 2002),
            "recreated",
            id="it is shorter and younger",
        ),
        pytest.param([MessageStamp(3, 1003)], MessageStamp(3, 1003), "same", id="it is shorter and older"),
        pytest.param([MessageStamp(5, 1005)], MessageStamp(12, 1012), "same", id="an older one is left"),
        pytest.param([MessageStamp(5, 2005)], END, "recreated", id="younger ones are left"),
        pytest.param([MessageStamp(11, 1011)], MessageStamp(12, 1012), "unknown", id="it begins behind them"),
        pytest.param([], END, "unknown", id="nothing is left"),
        pytest.param([], MessageStamp(10, 2010), "unknown", id="nothing is left up to the same sequence"),
        pytest.param([MessageStamp(5, 1010)], END, "same", id="one of the same time is left"),
    ],
)
def test_the_table(messages: list[MessageStamp], last: MessageStamp, verdict: Verdict) -> None:
    assert _judged(KnownStream("", KNOWN), messages, last) == verdict


@pytest.mark.parametrize(
    ("known", "created", "messages", "differs"),
    [
        pytest.param(KNOWN, "then", [MessageStamp(1, 2001)], False, id="the same creation time"),
        pytest.param(
            KNOWN, "now", [MessageStamp(4, 1004), MessageStamp(12, 1012)], False, id="it begins where it began"
        ),
        pytest.param(KNOWN, "now", [MessageStamp(10, 1010), MessageStamp(12, 1012)], False, id="it lost its beginning"),
        pytest.param(
            KNOWN, "now", [MessageStamp(11, 1011), MessageStamp(12, 1012)], False, id="it begins behind what is known"
        ),
        pytest.param(KNOWN, "now", [MessageStamp(1, 2001), MessageStamp(12, 2012)], True, id="all is younger"),
        pytest.param(KNOWN, "now", [], True, id="it is empty"),
        pytest.param((), "now", [MessageStamp(1, 1001)], True, id="nothing but its creation time is known"),
    ],
)
@pytest.mark.parametrize("ahead_ns", [0, 60_000_000_000, -500])
def test_whether_a_stream_differs_by_its_bounds(
    known: tuple[MessageStamp, ...], created: str, messages: list[MessageStamp], differs: bool, ahead_ns: int
) -> None:
    """The clock of its server alone counts, wherever that is set."""
    ahead = [MessageStamp(sequence, time_ns + ahead_ns) for sequence, time_ns in messages]
    seen = KnownStream("then", tuple(MessageStamp(sequence, time_ns + ahead_ns) for sequence, time_ns in known))
    assert seen.differs(created, _bounds(ahead, ahead[-1] if ahead else MessageStamp(0, 0))) is differs


def test_of_a_stream_without_messages_nothing_is_known() -> None:
    assert judge((), {}, _bounds([MessageStamp(1, 1)], MessageStamp(1, 1))) == "unknown"


def test_what_is_known_of_a_stream() -> None:
    state = {
        "messages": 2,
        "first_seq": 3,
        "first_ts": "1970-01-01T00:00:01Z",
        "last_seq": 7,
        "last_ts": "1970-01-01T00:00:02.5Z",
    }
    known = KnownStream.of({"created": "then", "state": state})
    assert known == KnownStream("then", (MessageStamp(7, 2_500_000_000), MessageStamp(3, 1_000_000_000)))
    assert known.also(MessageStamp(8, 9)).messages[0] == MessageStamp(8, 9)
    purged = state | {"messages": 0, "first_seq": 8, "first_ts": "0001-01-01T00:00:00Z"}
    assert KnownStream.of({"created": "then", "state": purged}).messages == (MessageStamp(7, 2_500_000_000),)
    unused = purged | {"first_seq": 0, "last_seq": 0, "last_ts": "0001-01-01T00:00:00Z"}
    assert KnownStream.of({"created": "then", "state": unused}).messages == ()
    assert Bounds.of({"state": unused}).last == MessageStamp(0, 0)
    without_time = purged | {"last_ts": "0001-01-01T00:00:00Z"}
    assert KnownStream.of({"created": "then", "state": without_time}).messages == ()


@st.composite
def _stored(draw: st.DrawFn, since: int) -> list[MessageStamp]:
    steps = draw(st.lists(st.integers(1, 5), min_size=1, max_size=12))
    return [MessageStamp(number, since + sum(steps[:number])) for number in range(1, len(steps) + 1)]


def _left(draw: st.DrawFn, messages: list[MessageStamp]) -> list[MessageStamp]:
    return [message for message in messages if draw(st.booleans())]


@given(st.data())
def test_a_stream_that_grew_and_removed_messages_is_not_a_recreated_one(data: st.DataObject) -> None:
    messages = data.draw(_stored(0))
    seen_end = data.draw(st.integers(1, len(messages)))
    known = KnownStream("", tuple(data.draw(st.lists(st.sampled_from(messages[:seen_end]), min_size=1))))
    left = _left(data.draw, messages)
    assert _judged(known, left, messages[-1]) != "recreated"


@given(st.data())
def test_a_recreated_stream_is_never_taken_for_the_one_before(data: st.DataObject) -> None:
    """Where nothing is left at or before what is known, reading continues with the first message either way."""
    before = data.draw(_stored(0))
    known = KnownStream("", tuple(data.draw(st.lists(st.sampled_from(before), min_size=1))))
    messages = data.draw(_stored(before[-1].time_ns))
    left = _left(data.draw, messages)
    verdict = _judged(known, left, messages[-1])
    assert verdict != "same"
    if verdict == "unknown":
        assert all(message.sequence > max(known.messages).sequence for message in left)


@given(st.data())
def test_a_stream_that_lost_its_end_is_the_same_by_any_known_message(data: st.DataObject) -> None:
    messages = data.draw(_stored(0))
    kept = data.draw(st.integers(1, len(messages)))
    known = KnownStream("", (messages[-1], data.draw(st.sampled_from(messages[:kept]))))
    later = [MessageStamp(kept + number, 1000 + number) for number in range(1, data.draw(st.integers(0, 12)) + 1)]
    now = [*messages[:kept], *later]
    assert _judged(known, now, now[-1]) == "same"
