"""Requests to the JetStream API that nats-py does not even send."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from nats_bridge.client.jetstream_api import JetStreamApi
from nats_bridge.errors import ApiError
from tests.live.raw_messages import RawPeer
from tests.live.shared_servers import SharedServers
from tests.live.until import LIMIT


@pytest.fixture
async def api(
    raw_peer: Callable[[str], Awaitable[RawPeer]], servers: SharedServers, newest_version: str
) -> JetStreamApi:
    return JetStreamApi((await raw_peer(await servers.url(newest_version))).client, "default")


async def test_a_request_that_is_too_large_is_not_repeated(api: JetStreamApi) -> None:
    with pytest.raises(ApiError, match=r"CONSUMER\.CREATE\.S: .*maximum payload") as caught:
        await api.request("CONSUMER.CREATE.S", {"name": "x" * api.client.max_payload}, patience=LIMIT)
    assert not caught.value.retriable


async def test_a_request_to_an_invalid_subject_is_not_repeated(api: JetStreamApi) -> None:
    with pytest.raises(ApiError, match=r"STREAM\.INFO\.a b: .*invalid subject") as caught:
        await api.request("STREAM.INFO.a b", patience=LIMIT)
    assert not caught.value.retriable


async def test_a_request_on_a_closed_connection_is_not_repeated(api: JetStreamApi) -> None:
    await api.client.close()
    with pytest.raises(ApiError, match=r"STREAM\.INFO\.S: .*closed") as caught:
        await api.request("STREAM.INFO.S", patience=LIMIT)
    assert not caught.value.retriable
