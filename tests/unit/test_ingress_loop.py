"""What an ingress rule writes for a message, and what it refuses."""

import json

import pytest

from nats_bridge.kinds.ingress.encoder import IngressCounters, IngressEncoder
from nats_transforms.dialect import NEWEST
from nats_transforms.transform import compile_transform

BLOCK = b"NATS/1.0\r\nA: b\r\n\r\n"


def loop(src: bytes, dest: bytes, *subjects: bytes) -> tuple[IngressEncoder, IngressCounters]:
    counters = IngressCounters()
    transform = compile_transform(src, dest, NEWEST)
    return IngressEncoder(transform, src, "S", subjects or (b"kept.>",), counters), counters


def written(made: IngressEncoder, *messages: tuple[bytes, bytes, bytes, bytes]) -> list[bytes]:
    out: list[bytes] = []
    made.run(messages, out)
    return out


def test_a_message_keeps_its_headers_its_payload_and_its_reply_subject() -> None:
    made, counters = loop(b"in.>", b"kept.>")
    assert written(
        made, (b"in.a", b"reply", b"", b"x"), (b"in.b", b"", BLOCK, b"yy"), (b"in.a", b"reply", BLOCK, b"")
    ) == [
        b"PUB kept.a reply 1\r\nx\r\n",
        b"HPUB kept.b 18 20\r\n" + BLOCK + b"yy\r\n",
        b"HPUB kept.a reply 18 18\r\n" + BLOCK + b"\r\n",
    ]
    assert (counters.received, counters.passed_on, counters.refused) == (3, 3, 0)


@pytest.mark.parametrize(
    ("src", "dest", "subject", "reason"),
    [
        (b"in.>", b"other.>", b"in.a", "none of the stream's subjects"),
        (b"*.*", b"kept.$2", b"in.a", "which is what the rule takes: a loop"),
        (b"in.>", b"kept.>", b"in." + b"a" * 3996, "too long for a line of the protocol"),
    ],
)
def test_what_is_refused_is_counted_and_its_publisher_answered(
    src: bytes, dest: bytes, subject: bytes, reason: str
) -> None:
    made, counters = loop(src, dest)
    assert written(made, (subject, b"", b"", b"x")) == []
    (answer,) = written(made, (subject, b"reply", b"", b"x"))
    line, _, reported = answer.partition(b"\r\n")
    assert line == b"PUB reply %d" % (len(reported) - 2)
    error = json.loads(reported)["error"]
    assert (error["code"], error["err_code"]) == (400, 10156)
    assert reason in error["description"]
    assert (counters.received, counters.passed_on, counters.refused, counters.answered) == (2, 0, 2, 1)


def test_other_subjects_of_the_stream_count_for_known_subjects_too() -> None:
    made, counters = loop(b"in.>", b"kept.>")
    assert written(made, (b"in.a", b"", b"", b"")) == [b"PUB kept.a 0\r\n\r\n"]
    made.take([b"kept.b"])
    assert written(made, (b"in.a", b"", b"", b""), (b"in.b", b"", b"", b"")) == [b"PUB kept.b 0\r\n\r\n"]
    assert counters.refused == 1
