"""In a cluster, only the leader's answer about a stream or a consumer counts. The client is a stand-in."""

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nats_bridge.client.jetstream_api import JetStreamApi

CLUSTER = {"name": "c", "leader": "c-1", "replicas": [{"name": "c-2"}]}
STARTING: dict[str, dict[str, Any]] = {
    "as if in no cluster": {},
    "before the election": {"cluster": {"name": "c", "replicas": [{"name": "c-2"}]}},
}


def api_of(*answers: dict[str, Any]) -> JetStreamApi:
    """An API whose server gives these answers, one after the other."""
    left = iter(answers)

    async def request(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(data=json.dumps(next(left)).encode())

    return JetStreamApi(cast(Any, SimpleNamespace(request=request)), "default")


@pytest.mark.parametrize("starting", STARTING)
async def test_a_just_started_server_does_not_say_when_a_stream_was_created(starting: str) -> None:
    """It says when its own store was, and the stream would be taken for a recreated one."""
    led = {"created": "1", "state": {"last_seq": 41}, "cluster": CLUSTER}
    api = api_of(led, led | {"created": "2", "cluster": None} | STARTING[starting], led)
    assert [(await api.stream_info("S"))["created"] for _ in range(2)] == ["1", "1"]


async def test_a_stream_that_is_in_no_cluster_needs_no_leader() -> None:
    alone = {"created": "1", "state": {"last_seq": 41}}
    assert (await api_of(alone).stream_info("S"))["created"] == "1"
