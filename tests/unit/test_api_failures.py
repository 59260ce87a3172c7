"""What nats-py raises for a request, as an error of the API. The client is a stand-in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from nats_bridge.bridge.client import nats_py
from nats_bridge.bridge.client.jetstream_api import JetStreamApi
from nats_bridge.bridge.errors import ApiError


@pytest.mark.parametrize(
    ("raised", "is_closed", "retriable"),
    [
        (nats_py.errors.OutboundBufferLimitError(), False, True),
        (ConnectionResetError(), False, True),
        (ConnectionResetError(), True, False),
        (nats_py.errors.ConnectionClosedError(), True, False),
        (nats_py.errors.MaxPayloadError(), False, False),
        (nats_py.errors.BadSubjectError(), False, False),
    ],
)
async def test_a_request_is_repeated_only_where_waiting_can_help(
    raised: Exception, is_closed: bool, retriable: bool
) -> None:
    requests = []

    async def request(subject: str, *_: Any, **__: Any) -> Any:
        requests.append(subject)
        raise raised

    api = JetStreamApi(cast(Any, SimpleNamespace(request=request, is_closed=is_closed)), "default")
    with pytest.raises(ApiError) as caught:
        await api.request("CONSUMER.CREATE.S", {}, patience=0.2)
    assert (caught.value.retriable, len(requests) > 1) == (retriable, retriable)
    assert caught.value.description == str(raised)
