"""Schedules in copies (2.12): nothing acts in the target, and what a schedule publishes holds no position."""

from __future__ import annotations

from typing import Any

import pytest

from nats_bridge.kinds.copying.position import comparing, resuming
from nats_transforms import header_block
from nats_transforms.dialect import dialect
from tests.live.copied_messages import copied, everything
from tests.live.copies import Copies
from tests.live.copying.forgotten_ids import FORGETFUL, forgotten
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecars import running, settings_for
from tests.live.until import until

PAST, FUTURE = "@at 2020-01-01T00:00:00Z", "@at 2099-01-01T00:00:00Z"
OURS = b"Nats-Bridge-Schedule"


@pytest.fixture(params=[*(pytest.param(v, marks=pytest.mark.exhaustive) for v in ("2.12.15", "2.14.10")), "2.15.3"])
def version(request: pytest.FixtureRequest) -> str:
    """A server that knows schedules."""
    return str(request.param)


async def scheduled(peer: RawPeer, subject: str, when: str, target: str, *more: str, payload: bytes = b"") -> None:
    lines = [f"Nats-Schedule: {when}", f"Nats-Schedule-Target: {target}", *more]
    block = b"NATS/1.0\r\n" + b"".join(line.encode() + b"\r\n" for line in lines) + b"\r\n"
    answer = await peer.store(subject.encode(), payload, block)
    assert "error" not in answer, answer


async def source_with_schedules(peer: RawPeer, name: str, target: dict[str, Any]) -> Copies:
    """Its messages: a schedule that waits, what another one has fired, and an ordinary one."""
    copies = await Copies.make(peer, name, source={"allow_msg_schedules": True, "allow_msg_ttl": True}, target=target)
    await scheduled(peer, f"{name}.later", FUTURE, f"{name}.due", "A: 1", "Nats-Schedule-TTL: 1h", payload=b"later")
    await scheduled(peer, f"{name}.now", PAST, f"{name}.fired", "B: 2", payload=b"now")

    async def fired() -> bool:
        return await copies.source_end() == 3

    await until(fired)
    await peer.store(f"{name}.end".encode(), b"end")
    return copies


@pytest.mark.parametrize(
    "allows", [{}, {"allow_msg_schedules": True, "allow_msg_ttl": True}], ids=["plain", "allowing"]
)
async def test_schedules_and_what_they_fired_are_copied_and_do_not_act(
    version: str, allows: dict[str, Any], servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """kd/copy/renamed. Native sources of 2.12 stall here; a stream that allows schedules can have none."""
    url = await servers.url(version)
    peer = await raw_peer(url)
    copies = await source_with_schedules(peer, unique_name("s"), allows)
    native = f"N{copies.name}"
    knows = dialect(version).stream_fields_of_2_14
    if knows:
        entry = copies.rule()["sources"][0]
        await peer.create_stream(name=native, sources=[entry])
    async with running(settings_for(url, copies.rule())) as sidecar:
        await copies.holds(3)
        counters = sidecar.runs[0].counters.as_dict()
        await until(lambda: sidecar.runs[0].counters.as_dict()["copied"] == 3)
        counters = sidecar.runs[0].counters.as_dict()
        assert counters["renamed_headers"] == 2
        assert sidecar.runs[0].error is None
    found = await copies.are_exact()
    assert [b"\nNats-Schedule" in message.header_block for message in found] == [False] * 3
    assert [message.header_block.count(OURS) for message in found] == [3, 2, 0]
    if knows:

        async def there() -> bool:
            return int((await peer.api(f"STREAM.INFO.{native}"))["state"]["messages"]) == 3

        await until(there)
        theirs = [(each.subject, each.block, each.payload) for each in await copied(peer, native)]
        mine = [
            (each.subject, each.block.replace(OURS, b"Nats-Schedule"), each.payload)
            for each in await copied(peer, copies.target)
        ]
        rollup = b"Nats-Rollup: sub\r\n"
        if not allows:  # which takes no such header from a client
            theirs = [(subject, block.replace(rollup, b""), payload) for subject, block, payload in theirs]
        assert mine == theirs


@pytest.mark.parametrize("version", [pytest.param("2.14.10", marks=pytest.mark.exhaustive), "2.15.3"], indirect=True)
async def test_what_a_schedule_of_the_target_makes_of_a_copy_is_no_position(
    version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it fires has the headers of the message that it names (2.14), the source record among them."""
    for module, checked in ((resuming, "NEWEST"), (comparing, "NEWEST"), (comparing, "CHECKED_COPIES")):
        monkeypatch.setattr(module, checked, 2)  # two records are enough
    url = await servers.url(version)
    peer = await raw_peer(url)
    copies = await Copies.make(peer, unique_name("f"), target={"allow_msg_schedules": True, **FORGETFUL})
    target = copies.target
    for number in range(1, 4):
        await peer.store(f"{copies.name}.k{number}".encode())
    async with running(settings_for(url, copies.rule())):
        await copies.holds(3)
    for number in range(1, 4):
        await scheduled(peer, f"{target}.at{number}", PAST, f"{target}.fired", f"Nats-Schedule-Source: {target}.k1")

    async def fired() -> bool:
        return int((await copies.state())["last_seq"]) == 9

    await until(fired)
    assert await copies.source_sequences() == [1, 2, 3, 1, 1, 1], "the server copies the record"
    await forgotten(peer, target)
    async with running(settings_for(url, copies.rule())) as sidecar:
        await peer.store(f"{copies.name}.k4".encode())
        await until(lambda: sidecar.runs[0].counters.as_dict()["copied"] >= 1)
    subjects = [message.subject.decode().partition(".")[2] for message in await everything(peer, target)]
    assert [subjects.count(f"k{number}") for number in range(1, 5)] == [1] * 4


async def test_a_dead_letter_of_a_schedule_is_taken_by_an_ordinary_stream(
    version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(version)
    peer = await raw_peer(url)
    copies = await source_with_schedules(peer, unique_name("d"), {"subjects": ["nowhere." + unique_name("n")]})
    letters = unique_name("letters")
    await peer.create_stream(name=letters, subjects=[letters])
    # The target has none of the copies' subjects but one.
    config = (await peer.api(f"STREAM.INFO.{copies.target}"))["config"]
    subjects = [*config["subjects"], f"{copies.target}.end"]
    assert "error" not in await peer.api(f"STREAM.UPDATE.{copies.target}", config | {"subjects": subjects})
    async with running(settings_for(url, copies.rule(on_rejected={"skip": letters}))) as sidecar:
        await copies.holds(1)
        await until(lambda: sidecar.runs[0].counters.as_dict()["rejected"] == 2)
        assert sidecar.runs[0].error is None
    waits, fired = await everything(peer, letters)
    assert header_block.read(waits.header_block, b"Nats-Bridge-Schedule") == FUTURE.encode()
    assert header_block.read(fired.header_block, b"Nats-Bridge-Scheduler") == f"{copies.name}.now".encode()
    assert b"\nNats-Schedule" not in waits.header_block + fired.header_block
