"""The metadata of copied objects that names the bucket that receives."""

from __future__ import annotations

import json

import pytest

from nats_bridge.kinds.copying.object_metadata import ObjectMetadata

REPLY = b"$JS.ACK.OBJ_A.c.1.1.1.1.0"


def renamed(subject: bytes, payload: bytes) -> bytes:
    ((_, _, _, found),) = ObjectMetadata("OBJ_A", "OBJ_B").renamed([(subject, REPLY, b"", payload)])
    return found


def test_the_bucket_is_named_and_everything_else_stays() -> None:
    metadata = {"name": "ü", "bucket": "A", "nuid": "n", "size": 2**53 + 1, "options": {"max_chunk_size": 1}}
    found = renamed(b"$O.A.M.w7w=", json.dumps(metadata).encode())
    assert json.loads(found) == metadata | {"bucket": "B"}
    assert list(json.loads(found)) == list(metadata)


@pytest.mark.parametrize(
    ("subject", "payload"),
    [
        (b"$O.A.C.n", b'{"bucket":"A"}'),  # a chunk is whatever the object is
        (b"$O.AA.M.n", b'{"bucket":"A"}'),
        (b"$O.A.M.n", b'{"bucket": "other"}'),
        (b"$O.A.M.n", b'["A"]'),
        (b"$O.A.M.n", b'{"bucket": \xff}'),
        (b"$O.A.M.n", b""),
    ],
)
def test_whatever_else_there_is_stays_as_it_is(subject: bytes, payload: bytes) -> None:
    assert renamed(subject, payload) == payload
