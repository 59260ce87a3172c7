"""What 2.11 to 2.15 added to streams, republished by the server and by the bridge, compared to the byte."""

from __future__ import annotations

import re
from typing import Any

import pytest

from nats_bridge.app.preflight import check_server
from nats_bridge.client.wire import Delivered
from nats_transforms import header_block
from tests.live.advisories.test_advisories_rule import dead_letters, letters, terminate
from tests.live.copied_messages import everything
from tests.live.raw_messages import OpenPeer
from tests.live.republish.newer_streams import MINUTE, MIXES, config_of, filled
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecars import running, settings_for
from tests.live.until import until

ACTING = re.compile(rb"(?<=\nNats-)(?=Incr:|Schedule|TTL:|Rollup:|Batch-)")
LAST_SEQUENCE = re.compile(rb"(?<=\nNats-Last-Sequence: )[0-9]+")


@pytest.fixture(params=[*(pytest.param(v, marks=pytest.mark.exhaustive) for v in ("2.12.15", "2.14.10")), "2.15.3"])
def version(request: pytest.FixtureRequest) -> str:
    """A server that knows counters, atomic batches and schedules."""
    return str(request.param)


@pytest.mark.parametrize("mix", MIXES)
async def test_republished_as_the_server_republishes_it(
    mix: str, version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """Markers may name another last sequence (kd/last-sequence/expiry), which is counted then."""
    store, config = MIXES[mix][0], config_of(mix, version)
    name = unique_name("f")
    url = await servers.url(version)
    peer = await raw_peer(url)
    native_rule = {"src": f"{name}.>", "dest": f"native{name}.>"}
    await peer.create_stream(name=name, subjects=[f"{name}.>"], republish=native_rule, **config)
    native, bridged = await peer.collect(f"native{name}.>"), await peer.collect(f"bridge{name}.>")
    rule = {"name": name, "stream": name, "republish": {"src": f"{name}.>", "dest": f"bridge{name}.>"}}
    async with running(settings_for(url, rule, dialect="native")) as sidecar:
        count = await store(peer, name, version)
        await native.count(count)
        await bridged.count(count)
        counters = sidecar.runs[0].counters.as_dict()
    expected, actual = _shown(native.messages, b"native"), _shown(bridged.messages, b"bridge")
    assert len(expected) == count
    if counters["last_sequence_uncertain"]:
        expected, actual = ([(s, LAST_SEQUENCE.sub(b"", b), p) for s, b, p in each] for each in (expected, actual))
        assert mix == "ttls"
    assert actual == expected


@pytest.mark.parametrize("mix", MIXES)
async def test_a_dead_letter_holds_the_message_and_nothing_acts_in_it(
    mix: str, version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    name = unique_name("d")
    url = await servers.url(version)
    peer = await raw_peer(url)
    await filled(peer, name, mix, version)
    await peer.create_stream(name=f"{name}dlq", subjects=[f"dlq.{name}.>"])
    stored = {message.sequence: message for message in await everything(peer, name)}
    async with running(settings_for(url, dead_letters(name))):
        await terminate(peer, name, len(stored))
        found = await letters(peer, name, len(stored))
    for letter in found:
        message = stored.pop(int(header_block.read(letter.header_block, b"Nats-Sequence") or 0))
        assert letter.payload == message.payload
        kept = ACTING.sub(b"Bridge-Original-", message.header_block)[:-2] or b"NATS/1.0\r\n"
        assert letter.header_block.startswith(kept + b"Nats-Stream: ")
        assert not ACTING.search(letter.header_block)
    assert not stored


@pytest.mark.parametrize(
    ("prefix", "config", "said"),
    [
        ("", {"allow_msg_schedules": True}, "schedules are copied with renamed headers"),
        ("", {"allow_msg_counter": True}, "counters are copied as totals"),
        ("OBJ_", {}, "copied metadata names the bucket of the source"),
        ("", {"allow_msg_ttl": True, "subject_delete_marker_ttl": MINUTE}, "messages with a TTL are copied without it"),
        ("", {"allow_atomic": True}, ""),
    ],
)
async def test_check_says_which_copies_differ(
    prefix: str,
    config: dict[str, Any],
    said: str,
    newest_version: str,
    servers: SharedServers,
    unique_name: Name,
    raw_peer: OpenPeer,
) -> None:
    source, target = prefix + unique_name("o"), prefix + unique_name("t")
    url = await servers.url(newest_version)
    peer = await raw_peer(url)
    await peer.create_stream(name=source, subjects=[f"{source}.>"], **config)
    await peer.create_stream(name=target, subjects=[f"{target}.>"])
    entry = {"name": source, "subject_transforms": [{"src": f"{source}.>", "dest": f"{target}.>"}]}
    rule = {"name": "rule", "kind": "sources", "stream": target, "sources": [entry]}
    findings = await check_server(settings_for(url, rule), None)
    assert all(finding.ok for finding in findings)
    remarks = [finding.text for finding in findings if finding.code == "diverges"]
    assert [said in remark for remark in remarks] == ([True] if said else [])


async def test_a_paused_consumer_of_a_rule_delays_and_loses_nothing(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """kd/messages/paused."""
    name = unique_name("p")
    url = await servers.url(newest_version)
    peer = await raw_peer(url)
    await peer.create_stream(name=name, subjects=[f"{name}.>"])
    bridged = await peer.collect(f"bridge{name}.>")
    rule = {"name": name, "stream": name, "republish": {"src": f"{name}.>", "dest": f"bridge{name}.>"}}
    async with running(settings_for(url, rule)) as sidecar:
        (consumer,) = (await peer.api(f"CONSUMER.NAMES.{name}"))["consumers"]
        pause = await peer.api(f"CONSUMER.PAUSE.{name}.{consumer}", {"pause_until": "2099-01-01T00:00:00Z"})
        assert pause["paused"]
        for number in range(1, 4):
            await peer.store(f"{name}.a".encode(), b"%d" % number)

        async def all_wait() -> bool:
            # The stream's answer can come before its consumers know of the message.
            return bool((await peer.api(f"CONSUMER.INFO.{name}.{consumer}"))["num_pending"] == 3)

        await until(all_wait)
        assert bridged.messages == []
        await peer.api(f"CONSUMER.PAUSE.{name}.{consumer}", {})
        await bridged.count(3)
        assert sidecar.runs[0].error is None
    assert [payload for _, _, _, payload in bridged.messages] == [b"1", b"2", b"3"]


def _shown(messages: list[Delivered], prefix: bytes) -> list[tuple[bytes, bytes, bytes]]:
    return [(subject.removeprefix(prefix), block, payload) for subject, _, block, payload in messages]
