"""Which features of newer servers concern a stream."""

from typing import Any

import pytest

from nats_conformance.server_features import changes


@pytest.mark.parametrize(
    ("config", "versions", "found"),
    [
        ({"name": "S"}, ["2.9.10", "2.15.3"], []),
        ({"name": "S", "mirror": {"name": "O"}}, ["2.11.17", "2.12.15"], [("2.12", "Promoting a mirror")]),
        ({"name": "S", "mirror": {"name": "O"}}, ["2.12.15", "2.15.3"], [
            ("2.14", "Sources of work queues"),
            ("2.15", "Identity of sources"),
        ]),
        ({"name": "S", "allow_atomic": True}, ["2.9.10", "2.15.3"], [
            ("2.12", "Atomic and fast batches"),
            ("2.14", "Atomic and fast batches"),
        ]),
        ({"name": "KV_S"}, ["2.10.27", "2.11.17"], [("2.11", "Limit markers of buckets")]),
        ({"name": "S", "retention": "interest"}, ["2.10.27", "2.11.17"], [
            ("2.11", "Pausing a consumer"),
            ("2.11", "Priority groups"),
        ]),
        ({"name": "S", "first_seq": 5}, ["2.15.3"], []),
        ({"name": "S", "first_seq": 5}, [], []),
    ],
)  # fmt: skip
def test_features_between_versions(config: dict[str, Any], versions: list[str], found: list[tuple[str, str]]) -> None:
    assert [(since, title) for since, title, _ in changes(config, versions)] == found
