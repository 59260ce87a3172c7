"""A few rounds of `python -m tests.twins.native_copies`: what is copied through the sidecar is a native copy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nats_bridge.transforms.republish import StoredMessage
from nats_bridge.transforms.source_record import external_name
from nats_bridge.transforms.tested_versions import LIVE_VERSIONS
from tests.live.tiers import on_each_version
from tests.twins.native_copies.comparing import Comparison, Record, compare_mirrors, compare_sources
from tests.twins.native_copies.playing import VICTIMS, Tally, play, servers

MESSAGES = 1200
RECORD = Record("S", "p.API", "", "2.15.3")


@pytest.mark.unstoppable
@pytest.mark.timeout(900)  # 2.10 may pause for more than ten seconds after a kill
@on_each_version(times=3)
async def test_whatever_is_killed_the_copies_are_native_ones(version: str, times: int, tmp_path: Path) -> None:
    total = Tally()
    async with servers(version, LIVE_VERSIONS[-1]) as made:
        for seed in range(-(-times // len(VICTIMS))):
            victims = (VICTIMS * 2)[seed * len(VICTIMS) :][: min(times, len(VICTIMS))]
            total.add(await play(made, seed, MESSAGES, victims, tmp_path))
    assert not total.comparison.findings, total.comparison.findings[:3]
    assert total.kills.total() == times
    assert total.comparison.equal > MESSAGES // 2


def message(sequence: int, block: bytes = b"", time_ns: int = 7) -> StoredMessage:
    return StoredMessage(b"s.a", block, b"p", sequence, time_ns)


def test_a_mirror_may_lack_only_what_the_source_has_removed() -> None:
    native = [message(1), message(3)]
    assert compare_mirrors(native, native, {1, 3}) == Comparison(equal=2)
    assert compare_mirrors(native, native[1:], {3}) == Comparison(equal=1, removed_again=1)
    assert compare_mirrors(native, native[1:], {1, 3}).findings
    assert compare_mirrors(native, [*native, message(4)], {1, 3, 4}).findings
    for wrong in (message(3, time_ns=8), message(3, b"NATS/1.0\r\nA: b\r\n\r\n")):
        assert compare_mirrors(native, [native[0], wrong], {1}).findings
    assert compare_mirrors(native, [native[1], native[0]], {1, 3}).findings
    assert compare_mirrors(native, [native[0], native[0], native[1]], {1, 3}).findings


def sourced(sequence: int, record: bytes, block: bytes = b"NATS/1.0\r\nA: \xff") -> StoredMessage:
    return message(sequence, block + b"\r\nNats-Stream-Source: " + record + b"\r\n\r\n")


def test_records_of_sources_differ_by_design_only() -> None:
    name = external_name(b"S", b"p.API")
    native = [sourced(1, b"S 4 s.> t.> s.b I"), sourced(2, b"S 9 s.> t.> s.b I")]
    copied = [sourced(1, name + b" 4 > > s.a I"), sourced(2, name + b" 9 > > s.a I")]
    held = {4, 9}
    assert compare_sources(native, copied, held, RECORD, contiguous=True) == Comparison(equal=2, by_design=2)
    assert compare_sources(native, copied[1:], {9}, RECORD, contiguous=False).removed_again == 1
    assert compare_sources(native, copied[1:], {9}, RECORD, contiguous=True).findings
    for wrong in (
        sourced(2, name + b" 9 > > s.a J"),
        sourced(2, name + b" 9 > > s.b I"),
        sourced(2, b"S 9 > > s.a I"),
        sourced(2, name + b" 9 > > s.a I", b"NATS/1.0\r\nA: \xfe"),
        replace(copied[1], payload=b"q"),
        sourced(2, name + b" 4 > > s.a I"),
    ):
        assert compare_sources(native, [copied[0], wrong], held, RECORD, contiguous=True).findings
