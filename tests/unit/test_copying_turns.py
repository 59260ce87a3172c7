"""Which copies are made into additions to counters together."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from nats_bridge.kinds.copying.encoder import Operation
from nats_bridge.kinds.copying.writing.counting import turns
from nats_transforms.copy_id import line_template

OURS = line_template(b"0123456789ab")
COPIES = st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.booleans()), max_size=12)


def operation(number: int, subject: bytes, *, published: bool) -> Operation:
    line = b"Nats-Msg-Id: own" if published else OURS.removesuffix(b"\r\n") % (b"7", b"8")
    return b"%d" % number, b"HPUB %b 9 9\r\nNATS/1.0\r\n%b\r\n\r\n\r\n" % (subject, line)


@given(COPIES)
def test_a_publishers_id_is_its_counters_last_in_a_turn(made: list[tuple[bytes, bool]]) -> None:
    operations = [operation(number, subject, published=own) for number, (subject, own) in enumerate(made)]
    found = list(turns(operations, OURS))
    assert [each for turn in found for each in turn] == operations
    assert all(found)
    for turn in found:
        reported = [made[int(name)] for name, _ in turn]
        for place, (subject, own) in enumerate(reported):
            assert not own or subject not in [later for later, _ in reported[place + 1 :]]
    for turn, following in pairwise(found):
        # No turn ends early.
        closed = {subject for subject, own in (made[int(name)] for name, _ in turn) if own}
        assert made[int(following[0][0])][0] in closed
