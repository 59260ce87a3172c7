"""The options of a data source say everything about a connection that a configuration can say."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from nats_bridge.settings import Connection
from nats_bridge_spark.columns import read_schema
from nats_bridge_spark.connections import connection_of, options_of
from nats_bridge_spark.errors import OptionError
from nats_bridge_spark.source.planning import SequenceRange, planned
from nats_bridge_spark.source.range_reader import arriving_range, iterated
from nats_bridge_spark.source.read_options import ReadOptions
from tests.live.raw_messages import OpenPeer
from tests.live.servers.domains import linked_domains
from tests.live.shared_servers import Servers
from tests.spark.reading import spark_schema

FILE = Path("/secret/file")
LOGINS: list[dict[str, Any]] = [{"creds": FILE}, {"nkey_seed_file": FILE}, {"token_file": FILE}]
OTHERS: dict[str, Any] = {
    "servers": ("nats://127.0.0.1:1", "nats://127.0.0.1:2"),
    "tls": {"ca": FILE, "cert": FILE, "key": FILE, "handshake_first": True, "hostname": "h", "insecure": True},
    "inbox_prefix": "_MINE",
    "connect_timeout": 3,
}
WITHOUT_AN_OPTION = {"reconnect_max_wait"}
"""A task that loses its connection fails, and Spark starts it again."""


@pytest.mark.parametrize("login", [*LOGINS, {"user": "u", "password_file": FILE}])
@pytest.mark.parametrize("place", [{"domain": "leaf"}, {"api_prefix": "JSA.API"}])
def test_a_task_gets_every_field(login: dict[str, Any], place: dict[str, Any]) -> None:
    connection = Connection.model_validate(OTHERS | login | place)
    assert connection_of(options_of(connection)) == connection


def test_every_field_is_tried_here() -> None:
    tried = {*OTHERS, "user", "password_file", "domain", "api_prefix", "context"}.union(*LOGINS)
    assert tried | WITHOUT_AN_OPTION == set(Connection.model_fields)
    assert connection_of({"context": "west"}) == Connection(context="west")
    with pytest.raises(OptionError, match=r"^option tlsCa: 'tls' cannot be combined with 'context'"):
        connection_of({"context": "west", "tlsCa": "/ca"})


@pytest.mark.parametrize("version", ["2.10.27", "2.15.3"])
async def test_a_read_of_another_domain(version: str, native_server: Servers, raw_peer: OpenPeer) -> None:
    domains = await linked_domains(version, native_server, raw_peer)
    for peer, messages in ((domains.at_hub, 1), (domains.at_leaf, 3)):
        await peer.create_stream(name="S", subjects=["s" if messages == 1 else "l"])
        for number in range(messages):
            await peer.store(b"s" if messages == 1 else b"l", b"%d" % number)
    for options, held in (({}, 1), ({"domain": "leaf"}, 3), ({"apiPrefix": "$JS.leaf.API"}, 3)):
        read = ReadOptions.of({"servers": domains.hub.url, "stream": "S", **options})
        parts = await planned(read)
        assert await asyncio.to_thread(_messages, read, parts) == held


def _messages(read: ReadOptions, parts: list[SequenceRange]) -> int:
    schema = read_schema(spark_schema("sequence"))
    return sum(batch.num_rows for part in parts for batch in iterated(arriving_range(read, schema, part)))
