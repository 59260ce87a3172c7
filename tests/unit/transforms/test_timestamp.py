from __future__ import annotations

import pytest

from nats_transforms.timestamp import rfc3339_nano


@pytest.mark.parametrize(
    ("nanoseconds", "expected"),
    [
        (0, b"1970-01-01T00:00:00Z"),
        (1, b"1970-01-01T00:00:00.000000001Z"),
        (1_700_000_000_000_000_000, b"2023-11-14T22:13:20Z"),
        (1_700_000_000_100_000_000, b"2023-11-14T22:13:20.1Z"),
        (1_700_000_000_149_476_940, b"2023-11-14T22:13:20.14947694Z"),
        (1_700_000_000_123_456_789, b"2023-11-14T22:13:20.123456789Z"),
        (1_709_164_799_999_999_999, b"2024-02-28T23:59:59.999999999Z"),
        (1_709_164_800_000_000_000, b"2024-02-29T00:00:00Z"),
        (2**63 - 1, b"2262-04-11T23:47:16.854775807Z"),
        (-1, b"1969-12-31T23:59:59.999999999Z"),
    ],
)
def test_rfc3339_nano(nanoseconds: int, expected: bytes) -> None:
    assert rfc3339_nano(nanoseconds) == expected
