"""Backfills from a capture."""

from __future__ import annotations

from pathlib import Path

import pytest

from nats_bridge_spark.errors import OptionError
from tests.live.copies import Copies
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecars import settings_for
from tests.spark.backfills import backfilled, captured


@pytest.fixture
async def copies(servers: SharedServers, unique_name: Name, raw_peer: OpenPeer) -> Copies:
    """A source with messages of every kind, and a target that takes nothing large."""
    peer, name = await raw_peer(await servers.url("2.10.27")), unique_name("outcome")
    made = await Copies.make(peer, name, target={"max_msg_size": 1000, "subjects": [f"T{name}.eu.>", f"T{name}.us.>"]})
    for number in range(60):
        region = ("eu", "us", "other", "eu")[number % 4]
        block = b"NATS/1.0\r\nNats-TTL: 1h\r\nA: 1\r\nA: 2\r\n\r\n" if number % 7 == 3 else b""
        payload = b"x" * 2000 if number in (20, 40) else b"message %d" % number
        await peer.store(f"{name}.{region}.{number % 2}".encode(), payload, block)
    return made


async def test_a_capture_is_as_good_as_the_stream(copies: Copies, servers: SharedServers, tmp_path: Path) -> None:
    url = servers["2.10.27"].url
    settings = settings_for(url, copies.rule(on_rejected={"skip": f"dead.{copies.name}"}))
    for name, options in {"whole": {}, "late": {"first": 11}, "other": {"created": "2020-01-01T00:00:00Z"}}.items():
        await captured(url, copies.name, tmp_path / name, **options)
    with pytest.raises(OptionError, match=r"was created 2020-01-01T00:00:00Z; the present one"):
        await backfilled(settings, capture=str(tmp_path / "other"))
    with pytest.raises(OptionError, match=r"begins at sequence 11, and 1 to 10 are wanted"):
        await backfilled(settings, capture=str(tmp_path / "late"))
    with pytest.raises(OptionError, match="nats-bridge capture makes one"):
        await backfilled(settings, capture=str(tmp_path))
    dead = await copies.peer.collect(f"dead.{copies.name}")
    # What the stream itself holds no more is in the capture.
    await copies.peer.api(f"STREAM.PURGE.{copies.name}", {"seq": 41})
    (summary,) = await backfilled(settings, capture=str(tmp_path / "whole"))
    assert (summary.read, summary.copied, summary.next_sequence) == (60, 43, 61)
    await dead.count(17)
    sequences = await copies.source_sequences()
    assert sequences == sorted(sequences)
    assert len(sequences) == 43
    (summary,) = await backfilled(settings, capture=str(tmp_path / "whole"))
    assert (summary.copied, summary.next_sequence) == (0, 61)
