"""The pure engine of sources and mirrors, held against what real servers store in sourcing and mirroring streams."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from nats_transforms.dialect import server_dialect
from nats_transforms.source_record import first_record
from nats_transforms.sourcing import Copied, compile_sourcing
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.stored_messages import stored_messages

BLOCKS = [
    b"",
    b"NATS/1.0\r\nA: 1\r\nA: 2\r\na:3\r\nEmpty:\r\n\r\n",
    b"NATS/1.0\r\nNats-Msg-Id: {n}\r\n\r\n",
    b"NATS/1.0\r\nNats-TTLs: 1\r\nNats-Stream: fake\r\n\r\n",
    b"NATS/1.0\r\nKV-Operation: DEL\r\n\r\n",
    b"NATS/1.0\r\nNats-Expected-Stream: {s}\r\n\r\n",
    b"NATS/1.0\r\nB: 1\r\nNats-Expected-Stream: {s}\r\nC: 2\r\n\r\n",
    b"Foo: bar\r\n\r\n",
    b"NATS/1.0\r\n\r\n",
    b"NATS/1.0 503 Not Today\r\nA: b\r\n\r\n",
    "NATS/1.0\r\nName: Zoë\r\n\r\n".encode(),
]
CHAIN = b"NATS/1.0\r\nA: 1\r\nNats-Stream-Source: X 7 > >\r\nNats-Stream-Sourced: no\r\n\r\n"

ENTRIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "filter": {"filter_subject": "{s}.*.a"},
    "one transform": {"subject_transforms": [{"src": "{s}.*.*", "dest": "t{s}.{{{{wildcard(2)}}}}.$1"}]},
    "filter only": {"subject_transforms": [{"src": "{s}.*.a", "dest": ""}]},
    "several": {
        "subject_transforms": [
            {"src": "{s}.x.*", "dest": "t{s}.{{{{partition(7,1)}}}}.{{{{splitfromleft(1,1)}}}}"},
            {"src": "{s}.y.*", "dest": ""},
            {"src": "{s}.z.>", "dest": "t{s}.z.>"},
        ]
    },
}


def _filled(value: Any, name: str) -> Any:
    if isinstance(value, str):
        return value.format(s=name)
    if isinstance(value, dict):
        return {key: _filled(each, name) for key, each in value.items()}
    return [_filled(each, name) for each in value]


async def _fill(peer: RawPeer, name: str, version: str) -> None:
    blocks = [*BLOCKS]
    if server_dialect(version).source_record_is_refused_from_clients is False:
        blocks.append(CHAIN)
    if not server_dialect(version).sourcing_strips_expectations:
        # These servers check them in the target, and copy nothing more.
        blocks = [block for block in blocks if b"Expected" not in block]
    number = 0
    for block in blocks:
        for subject in ("x.a", "x.bcd", "y.a", "z.é.f", "other"):
            number += 1
            filled = block.replace(b"{n}", b"%d" % number).replace(b"{s}", name.encode())
            answer = await peer.store(f"{name}.{subject}".encode(), b"%d" % number, filled)
            assert "error" not in answer, answer


@pytest.mark.parametrize("entry", ENTRIES)
async def test_a_copy_is_what_the_server_stores(
    entry: str, twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    native = server_dialect(twin_version)
    if not native.stream_fields_of_2_10 and "subject_transforms" in ENTRIES[entry]:
        entry = "plain"  # what such a server makes of an entry whose transforms it does not know
    peer = await raw_peer(await servers.url(twin_version))
    name = unique_name("source")
    await peer.create_stream(name=name, subjects=[f"{name}.>"])
    await _fill(peer, name, twin_version)
    source = await stored_messages(peer, name, (await peer.api(f"STREAM.INFO.{name}"))["state"]["messages"])
    config = {"name": name, **_filled(ENTRIES[entry], name)}
    await peer.create_stream(name=f"copy{name}", sources=[config])
    sourcing = compile_sourcing(config, native)
    expected = [copy for message in source if isinstance(copy := sourcing.apply(message), Copied)]
    assert len(expected) > 5
    stored = await stored_messages(peer, f"copy{name}", len(expected))
    if native.source_record_names_identity:
        (identity,) = {record.identity for each in stored if (record := first_record(each.header_block))}
        expected = [copy for message in source if isinstance(copy := sourcing.apply(message, identity), Copied)]
    assert [(each.subject, each.header_block, each.payload) for each in stored] == [
        dataclasses.astuple(copy) for copy in expected
    ]
    records = [first_record(each.header_block) for each in stored]
    assert all(record is not None and sourcing.is_own(record) for record in records)


@pytest.mark.parametrize("entry", ENTRIES)
async def test_a_mirrored_message_is_what_the_server_stores(
    entry: str, twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    native = server_dialect(twin_version)
    if not native.stream_fields_of_2_10 and "subject_transforms" in ENTRIES[entry]:
        entry = "plain"
    peer = await raw_peer(await servers.url(twin_version))
    name = unique_name("source")
    await peer.create_stream(name=name, subjects=[f"{name}.>"])
    await _fill(peer, name, "2.9.10" if not native.mirroring_strips_expectations else twin_version)
    source = await stored_messages(peer, name, (await peer.api(f"STREAM.INFO.{name}"))["state"]["messages"])
    config = {"name": name, **_filled(ENTRIES[entry], name)}
    await peer.create_stream(name=f"copy{name}", mirror=config)
    mirroring = compile_sourcing(config, native, mirrors=True)
    expected = [
        (copy.subject, mirroring.bare(message.header_block), copy.payload, message.sequence)
        for message in source
        if isinstance(copy := mirroring.apply(message), Copied)
    ]
    assert len(expected) > 5
    stored = await stored_messages(peer, f"copy{name}", len(expected))
    assert [(each.subject, each.header_block, each.payload, each.sequence) for each in stored] == expected


async def test_an_entry_with_a_consumer_copies_what_that_one_delivers(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    peer = await raw_peer(await servers.url(newest_version))
    name = unique_name("source")
    await peer.create_stream(name=name, subjects=[f"{name}.>"])
    for subject in ("x.a", "other", "x.b"):
        await peer.store(f"{name}.{subject}".encode(), b"", BLOCKS[1])
    consumer = {"name": "c", "deliver_subject": f"to{name}"}
    flow = {"ack_policy": "flow_control", "flow_control": True, "idle_heartbeat": 10**9}
    asked = {"durable_name": "c", "deliver_subject": f"to{name}", **flow}
    await peer.api(f"CONSUMER.CREATE.{name}.c", {"stream_name": name, "config": asked})
    entry = {"name": name, "subject_transforms": [{"src": f"{name}.x.*", "dest": "t.$1"}], "consumer": consumer}
    await peer.create_stream(name=f"copy{name}", sources=[entry])
    source = await stored_messages(peer, name, 3)
    stored = await stored_messages(peer, f"copy{name}", 3)
    (identity,) = {record.identity for each in stored if (record := first_record(each.header_block))}
    sourcing = compile_sourcing(entry, server_dialect(newest_version))
    assert [(each.subject, each.header_block, each.payload) for each in stored] == [
        dataclasses.astuple(copy) for each in source if isinstance(copy := sourcing.apply(each, identity), Copied)
    ]
    assert [each.subject for each in stored] == [b"t.a", f"{name}.other".encode(), b"t.b"]
