"""Messages to copy, of every kind that the encoder distinguishes, and its results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from nats_bridge.client.wire import Delivered
from nats_bridge.kinds.copying.encoder import CopyEncoder, Operation, Rejected
from nats_bridge.kinds.copying.target import Target
from nats_transforms.republish import StoredMessage

KEY = b"0123456789ab"
EARLIER = b"Nats-Msg-Id: bridge-ba9876543210-4-1699999999999999999"  # of the copy before, in a chain
SUBJECTS = [
    b"a.x",
    b"a.y-z",
    b"a.long.one",
    b"b.x",
    b"c",
    b"a.secret",
    b"a.--",
    b"a.*",
    b"a.\xff",
    "a.日本".encode(),
    b"elsewhere.x",
]
LINES = [
    b"A: 1",
    b"A: 2",
    b"a:3",
    b"Empty:",
    b"Nats-Msg-Id: own",
    b"Nats-Msg-Id:own-two",
    b"X: Nats-Msg-Id: not",
    b"nats-msg-id: not",
    EARLIER,
    b"Nats-Rollup: sub",
    b"Nats-TTL: 5",
    b"Nats-TTLs: 5",
    b"Nats-Expected-Stream: S",
    b"Nats-Expected-Last-Subject-Sequence: 3",
    b"Nats-Batch-Id: b",
    b"Nats-Schedule: @at 2099-01-01T00:00:00Z",
    b"Nats-Incr: +1",
    b"Nats-Stream-Source: X 7 > > s IDENTITY",
    b"Nats-Bridge-Source: Y 8",
    b"Nats-Stream: liar",
    b"KV-Operation: DEL",
    b"Latin: \xe9\xff",
]
BLOCKS = st.sampled_from(
    [b"", b"NATS/1.0\r\n\r\n", b"NATS/1.0 503 No\r\nA: b\r\n\r\n", b"Foo: bar\r\n\r\n", b"\r\n", b"X"]
) | st.lists(st.sampled_from(LINES), min_size=1, max_size=4).map(
    lambda lines: b"NATS/1.0\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n"
)
MESSAGES = st.lists(
    st.tuples(
        st.sampled_from(SUBJECTS),
        BLOCKS,
        st.sampled_from([b"", b"x", b"\r\nPUB x 0\r\n", b"y" * 300, b"z" * 2000]),
        st.integers(1, 3),
        st.sampled_from([0, 1, 999, 1_000_000_000]),
    ),
    min_size=1,
    max_size=25,
)
ENTRIES: list[dict[str, Any]] = [
    {},
    {"filter_subject": "a.*"},
    {"subject_transforms": [{"src": "a.x", "dest": "c"}, {"src": "a.*", "dest": "t.$1"}, {"src": "b.>", "dest": ""}]},
    {
        "subject_transforms": [
            {"src": "a.*", "dest": "t.{{split(1,-)}}"},
            {"src": "b.*", "dest": "t.{{partition(4,1)}}"},
        ]
    },
    {"subject_transforms": [{"src": ">", "dest": "t.>"}]},
    {"external": {"api": "JSA.API"}},
]
CONFIGS: list[dict[str, Any]] = [
    {},
    {"allow_rollup_hdrs": True},
    {"allow_msg_ttl": True},
    {"allow_rollup_hdrs": True, "allow_msg_ttl": True, "max_msg_size": 400},
]
PREFIXES = [(b"", b""), (b"_.hash.", b".token"), (b"hub.hash.", b""), (b"hub.hash.", b".token.more")]


def target_of(version: str, **config: Any) -> Target:
    subjects = ["a.>", "b.>", "c", "t.>"]
    given = {"name": "T", "subjects": subjects, "retention": "limits", "num_replicas": 1, **config}
    state = {"messages": 0, "bytes": 0}
    return Target.of({"config": given, "created": "2026-01-01T00:00:00Z", "state": state}, version)


def delivered(message: StoredMessage, prefix: tuple[bytes, bytes]) -> Delivered:
    before, behind = prefix
    reply = b"$JS.ACK.%bS.C.1.%d.%d.%d.0%b" % (before, message.sequence, message.sequence, message.time_ns, behind)
    return message.subject, reply, message.header_block, message.payload


def stored(made: Sequence[tuple[bytes, bytes, bytes, int, int]]) -> list[StoredMessage]:
    messages, sequence, time_ns = [], 0, 1_700_000_000_000_000_000
    for subject, block, payload, step, later in made:
        sequence += step
        time_ns += later
        messages.append(StoredMessage(subject, block, payload, sequence, time_ns))
    return messages


def run_all(loop: CopyEncoder, batch: list[Delivered]) -> list[tuple[int, Operation | Rejected]]:
    """All operations, with the index of their message where it is sent alone or skipped; else -1."""
    results: list[tuple[int, Operation | Rejected]] = []
    done = 0
    while True:
        out: list[Operation] = []
        done, special = loop.run(batch, out, done)
        results += [(-1, each) for each in out]
        if special is None:
            assert done == len(batch)
            return results
        results.append((done - 1, special))
