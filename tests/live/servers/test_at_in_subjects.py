"""Subjects with `@` that come to a sidecar over a route of servers that cut them (nats-server#6777)."""

from __future__ import annotations

from typing import Any

import pytest

from nats_conformance.native_servers import NativeCluster
from tests.live.copies import record_of
from tests.live.raw_messages import OpenPeer
from tests.live.sidecar_process import Seen
from tests.live.sidecars import running, settings_for
from tests.live.stored_messages import stored_messages
from tests.live.until import until

SUBJECTS = ["a", "bob@example.com.login", "end@", "a@@b.c", "@", "@front", "x@y@z@", "1.2.3.4.5.6@7.8", "b"]
RULES: dict[str, dict[str, Any]] = {
    "once": {"delivery": "at_most_once"},
    "atleast": {"delivery": "at_least_once"},
    "fleeting": {"durable": False},
    "some": {"delivery": "at_least_once", "republish": {"src": "S.*", "dest": "some.S.$1"}},
}


@pytest.mark.parametrize("version", ["2.9.10", "2.10.27"])
async def test_at_in_subjects_behind_another_server(version: str, raw_peer: OpenPeer) -> None:
    async with NativeCluster(version, size=2, advertise=False) as cluster:
        peer = await raw_peer(cluster.nodes[0].url)
        made = await peer.create_stream(name="S", subjects=["S.>"])
        leader = made["cluster"]["leader"]
        other = next(node for node in cluster.nodes if node.name != leader)
        await peer.create_stream(name="T", subjects=["T.>"], duplicate_window=100_000_000)
        seen = {name: await Seen.of(peer, f"{name}.>") for name in RULES}
        rules: list[dict[str, Any]] = [
            {"name": name, "stream": "S", "start": "first", "republish": {"src": "S.>", "dest": f"{name}.S.>"}, **more}
            for name, more in RULES.items()
        ]
        entry = {"name": "S", "subject_transforms": [{"src": "S.>", "dest": "T.>"}]}
        rules.append({"name": "copy", "kind": "sources", "stream": "T", "sources": [entry]})
        settings = settings_for(other.url, *rules)
        stored = 0

        async def store() -> None:
            nonlocal stored
            for number, subject in enumerate(SUBJECTS):
                block = b"NATS/1.0\r\nA: a@b\r\n\r\n" if number % 2 else b""
                stored = int((await peer.store(f"S.{subject}".encode(), b"to: me@example.com", block))["seq"])

        async def copied() -> bool:
            return bool((await peer.api("STREAM.INFO.T"))["state"]["last_seq"] == stored)

        for _ in range(2):  # the second time, positions are those that were acknowledged
            await store()
            async with running(settings) as bridge:
                await store()
                for name in ("once", "atleast", "fleeting"):
                    await seen[name].until_sequence(stored)
                await until(copied)
                assert not any(run.counters.as_dict()["lost"] for run in bridge.runs[:4])
            info = await peer.api("CONSUMER.INFO.S.nats-bridge_atleast")
            assert (info["ack_floor"]["stream_seq"], info["num_ack_pending"]) == (stored, 0)
        wanted = SUBJECTS * 4
        for name in ("once", "atleast"):
            assert [subject.decode() for subject, *_ in seen[name].messages] == [f"{name}.S.{each}" for each in wanted]
            assert seen[name].sequences == list(range(1, stored + 1))
        flat = [f"some.S.{each}" for each in wanted if "." not in each]
        assert [subject.decode() for subject, *_ in seen["some"].messages] == flat
        copies = await stored_messages(peer, "T", stored)
        assert [copy.subject.decode() for copy in copies] == [f"T.{each}" for each in wanted]
        assert [record_of(copy).sequence for copy in copies] == list(range(1, stored + 1))
