"""Headers that act, or that servers refuse: where native sources stall, copying continues.

The rows of docs/known-divergences.md that begin with `kd/copy/` are tested here and in test_copying_twin.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from nats_bridge.errors import RuleRefusedError
from nats_bridge.kinds.copying.counters import CopyCounters
from nats_transforms import header_block
from nats_transforms.dialect import server_dialect
from nats_transforms.republish import StoredMessage
from nats_transforms.source_record import HEADER, TWIN_HEADER
from tests.live.copied_messages import everything
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecars import running, settings_for
from tests.live.until import until


def block(*lines: str) -> bytes:
    return b"NATS/1.0\r\n" + b"".join(line.encode() + b"\r\n" for line in lines) + b"\r\n"


def lines_of(message: StoredMessage) -> list[bytes]:
    """The header lines of a copy that its publisher wrote."""
    return [
        line
        for line in message.header_block.split(b"\r\n")[1:]
        if line and not line.startswith((HEADER + b": ", TWIN_HEADER + b": ", b"Nats-Msg-Id: bridge-"))
    ]


class Scene:
    """Sources and a target, in names of this test's own: `o` and `p` have subjects `t<name>.…` of the target."""

    def __init__(self, peer: RawPeer, url: str, version: str, name: str) -> None:
        self.peer = peer
        self.url = url
        self.version = version
        self.name = name
        self.target = f"target{name}"

    async def create(self, letters: str = "o", **target: Any) -> None:
        rollups: dict[str, Any] = {"allow_rollup_hdrs": True}
        if server_dialect(self.version).stream_fields_of_2_11:
            rollups["allow_msg_ttl"] = True
        if server_dialect(self.version).stream_fields_of_2_12:
            rollups["allow_atomic"] = True
        for letter in letters:
            await self.peer.create_stream(name=f"{letter}{self.name}", subjects=[f"{letter}{self.name}.>"], **rollups)
        await self.peer.create_stream(name=self.target, subjects=[f"t{self.name}.>"], **target)

    async def store(self, key: str, header: bytes = b"", payload: bytes = b"", letter: str = "o") -> dict[str, Any]:
        answer = await self.peer.store(f"{letter}{self.name}.{key}".encode(), payload, header)
        assert "error" not in answer, answer
        return answer

    async def stored(self, messages: int) -> list[StoredMessage]:
        """What the target holds, as soon as so many messages have been stored in it."""

        async def there() -> bool:
            return int((await self.peer.api(f"STREAM.INFO.{self.target}"))["state"]["last_seq"]) >= messages

        await until(there)
        return await everything(self.peer, self.target)

    def keys(self, messages: list[StoredMessage]) -> list[str]:
        return [message.subject.decode().partition(".")[2] for message in messages]

    @asynccontextmanager
    async def copying(self, letters: str = "o", **more: Any) -> AsyncIterator[CopyCounters]:
        sources = [
            {
                "name": f"{letter}{self.name}",
                "subject_transforms": [{"src": f"{letter}{self.name}.>", "dest": f"t{self.name}.>"}],
            }
            for letter in letters
        ]
        rule = {"name": "copy", "kind": "sources", "stream": self.target, "sources": sources, **more}
        async with running(settings_for(self.url, rule, dialect="2.15")) as sidecar:
            counters = sidecar.runs[0].counters
            assert isinstance(counters, CopyCounters)
            yield counters
        assert sidecar.runs[0].error is None


@pytest.fixture
async def scene(twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer) -> Scene:
    url = await servers.url(twin_version)
    return Scene(await raw_peer(url), url, twin_version, unique_name("h"))


async def test_an_id_that_the_target_knows_is_skipped_and_the_rest_continues(scene: Scene) -> None:
    """kd/copy/stalls: 2.9 and 2.10 wait for two minutes, then store the duplicate."""
    await scene.create()
    own = await scene.peer.store(f"t{scene.name}.own".encode(), b"own", block("Nats-Msg-Id: taken"))
    assert "error" not in own
    async with scene.copying() as counters:
        await scene.store("a")
        await scene.store("b", block("Nats-Msg-Id: taken"))
        await scene.store("c", block("Nats-Msg-Id: free"))
        await scene.store("d")
        stored = await scene.stored(4)
        await until(lambda: counters.copied + counters.duplicates == 4)
        assert scene.keys(stored) == ["own", "a", "c", "d"]
    async with scene.copying():  # while the target knows the id, nor after a restart
        await scene.store("e")
        assert scene.keys(await scene.stored(5)) == ["own", "a", "c", "d", "e"]


async def test_of_two_sources_messages_with_one_id_the_first_is_stored(scene: Scene) -> None:
    await scene.create("op")
    for letter in "op":
        await scene.store("same", block("Nats-Msg-Id: same"), letter=letter)
        await scene.store(f"only.{letter}", letter=letter)
    async with scene.copying("op"):
        assert sorted(scene.keys(await scene.stored(3))) == ["only.o", "only.p", "same"]
        for letter in "op":
            await scene.store(f"later.{letter}", letter=letter)
        assert len(await scene.stored(5)) == 5


async def test_an_id_repeated_after_the_source_window_is_a_target_duplicate(scene: Scene) -> None:
    await scene.create()
    # A short window in the source: both are stored there.
    config = (await scene.peer.api(f"STREAM.INFO.o{scene.name}"))["config"]
    answer = await scene.peer.api(f"STREAM.UPDATE.o{scene.name}", config | {"duplicate_window": 100_000_000})
    assert "error" not in answer, answer
    await scene.store("first", block("Nats-Msg-Id: again"))

    async def forgotten() -> bool:
        answer = await scene.store("second", block("Nats-Msg-Id: again"))
        return not answer.get("duplicate")

    await until(forgotten)
    await scene.store("last")
    async with scene.copying() as counters:
        assert scene.keys(await scene.stored(2)) == ["first", "last"]
        await until(lambda: counters.copied + counters.duplicates == 3)


@pytest.mark.parametrize("kind", ["sub", "all"])
async def test_a_rollup_that_the_target_does_not_allow_is_stored_without_acting(scene: Scene, kind: str) -> None:
    """kd/copy/withheld: 2.9 and 2.10 stall; 2.15 stores the header, which a client cannot."""
    await scene.create()
    async with scene.copying() as counters:
        await scene.store("a", payload=b"1")
        assert len(await scene.stored(1)) == 1
        await scene.store("a", block("A: 1", f"Nats-Rollup: {kind}", "B: 2"), b"2")
        await scene.store("b")
        stored = await scene.stored(3)
        await until(lambda: counters.copied == 3)
        assert counters.withheld_headers == 1
    assert scene.keys(stored) == ["a", "a", "b"]
    assert lines_of(stored[1]) == [b"A: 1", b"B: 2"]


async def test_a_rollup_that_the_target_allows_acts_there(scene: Scene) -> None:
    await scene.create(allow_rollup_hdrs=True)
    async with scene.copying() as counters:
        for payload in (b"1", b"2"):
            await scene.store("a", payload=payload)
        await scene.store("b")
        assert len(await scene.stored(3)) == 3
        await scene.store("a", block("Nats-Rollup: sub"), b"3")
        await scene.store("c")
        stored = await scene.stored(5)
        await until(lambda: counters.copied == 5)
        assert counters.withheld_headers == 0
    assert [(key, message.payload) for key, message in zip(scene.keys(stored), stored, strict=True)] == [
        ("b", b""),
        ("a", b"3"),
        ("c", b""),
    ]
    assert lines_of(stored[1]) == [b"Nats-Rollup: sub"]


async def test_a_time_to_live_that_the_target_does_not_allow_is_withheld(scene: Scene) -> None:
    """kd/copy/withheld: refused with 10166 from clients since 2.11; older targets only store it."""
    await scene.create()
    async with scene.copying() as counters:
        await scene.store("a", block("Nats-TTL: 1h", "A: 1"))
        await scene.store("b")
        stored = await scene.stored(2)
        await until(lambda: counters.copied == 2)
        acts = server_dialect(scene.version).stream_fields_of_2_11
        assert counters.withheld_headers == int(acts)
    assert lines_of(stored[0]) == ([b"A: 1"] if acts else [b"Nats-TTL: 1h", b"A: 1"])


async def test_a_time_to_live_acts_where_the_target_allows_it(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url, old = await servers.url("2.15.3"), await servers.url("2.10.27")
    scene = Scene(await raw_peer(url), url, "2.15.3", unique_name("h"))
    await scene.create("", allow_msg_ttl=True)
    # On an old server the source's message stays, however long copying takes.
    source, old_peer = f"o{scene.name}", await raw_peer(old)
    await old_peer.create_stream(name=source, subjects=[f"{source}.>"])

    async def store(key: str, header: bytes = b"") -> None:
        assert "error" not in await old_peer.store(f"{source}.{key}".encode(), b"", header)

    transform = {"src": f"{source}.>", "dest": f"t{scene.name}.>"}
    entry = {"name": source, "from": "old", "subject_transforms": [transform]}
    connections = {"default": {"servers": [url]}, "old": {"servers": [old]}}
    rule = {"name": "copy", "kind": "sources", "stream": scene.target, "sources": [entry]}
    settings = settings_for(url, rule, connections=connections, dialect="2.15")
    async with running(settings) as sidecar:
        await store("a", block("Nats-TTL: 1s"))
        await store("b", block("Nats-TTL: 1h"))
        await until(lambda: sidecar.runs[0].counters.as_dict()["copied"] == 2)
        assert sidecar.runs[0].counters.as_dict()["withheld_headers"] == 0

        async def expired() -> bool:
            return int((await scene.peer.api(f"STREAM.INFO.{scene.target}"))["state"]["messages"]) == 1

        await until(expired)
    assert scene.keys(await everything(scene.peer, scene.target)) == ["b"]
    assert lines_of((await everything(scene.peer, scene.target))[0]) == [b"Nats-TTL: 1h"]
    async with running(settings):  # what has expired is not copied again
        await store("c")
        assert scene.keys(await scene.stored(3)) == ["b", "c"]


@pytest.mark.parametrize("status", ["100", "100 FlowControl Request", "100 Idle Heartbeat", "404", "408", "503 No"])
async def test_a_message_that_looks_like_a_control_message_is_copied(scene: Scene, status: str) -> None:
    """kd/copy/stalls: 2.9 and 2.10 take it for a heartbeat and copy nothing more."""
    await scene.create()
    async with scene.copying():
        await scene.store("a", f"NATS/1.0 {status}\r\n\r\n".encode())
        await scene.store("b", f"NATS/1.0 {status}\r\nA: 1\r\n\r\n".encode(), b"x")
        await scene.store("c")
        stored = await scene.stored(3)
    assert scene.keys(stored) == ["a", "b", "c"]
    assert lines_of(stored[1]) == [b"A: 1"]
    first = stored[0].header_block.partition(b"\r\n")[0]
    # 2.11.15, 2.12.6 and newer cut the status when a message is stored.
    cut = server_dialect(scene.version).stream_fields_of_2_14
    assert first == (b"NATS/1.0" if cut else f"NATS/1.0 {status}".encode())


async def test_expectations_of_source_publishers_are_not_checked_in_the_target(scene: Scene) -> None:
    """kd/copy/stalls: 2.9 checks them, and copies nothing more."""
    await scene.create()
    async with scene.copying() as counters:
        await scene.store("a")
        expectations = [
            f"Nats-Expected-Stream: o{scene.name}",
            "Nats-Expected-Last-Sequence: 1",
            "Nats-Expected-Last-Subject-Sequence: 1",
        ]
        await scene.store("a", block("A: 1", *expectations, "B: 2"))
        await scene.store("b", block("Nats-Expected-Last-Subject-Sequence: 0"))
        stored = await scene.stored(3)
        await until(lambda: counters.copied == 3)
        assert counters.withheld_headers == 2
    assert [lines_of(message) for message in stored] == [[], [b"A: 1", b"B: 2"], []]


async def test_a_batch_is_copied_as_single_messages(scene: Scene) -> None:
    """Servers take the headers out since 2.12; where they would act they are withheld, and else stay as in natives."""
    await scene.create()
    async with scene.copying() as counters:
        subject = f"o{scene.name}".encode()
        for number in (1, 2):
            header = block("A: 1", "Nats-Batch-Id: one", f"Nats-Batch-Sequence: {number}")
            scene.peer.publish(subject + b".%d" % number, b"", header)
        await scene.store("3", block("Nats-Batch-Id: one", "Nats-Batch-Sequence: 3", "Nats-Batch-Commit: 1"))
        await scene.store("4")
        stored = await scene.stored(4)
        await until(lambda: counters.copied == 4)
    assert scene.keys(stored) == ["1", "2", "3", "4"]
    assert [lines_of(message) for message in stored] == [[b"A: 1"], [b"A: 1"], [], []]


async def test_records_of_natively_copied_messages_do_not_travel(scene: Scene) -> None:
    """2.15 refuses a client's message that has one (10227)."""
    await scene.create("p")
    native = {"name": f"p{scene.name}"}
    await scene.peer.create_stream(name=f"o{scene.name}", sources=[native])
    for key in "ab":
        await scene.store(key, block("A: 1"), letter="p")
    source = f"o{scene.name}"
    sources = [{"name": source, "subject_transforms": [{"src": f"p{scene.name}.>", "dest": f"t{scene.name}.>"}]}]
    rule = {"name": "copy", "kind": "sources", "stream": scene.target, "sources": sources}
    async with running(settings_for(scene.url, rule)):
        stored = await scene.stored(2)
    assert scene.keys(stored) == ["a", "b"]
    assert [lines_of(message) for message in stored] == [[b"A: 1"]] * 2
    refused = server_dialect(scene.version).source_record_is_refused_from_clients
    name, other = (TWIN_HEADER, HEADER) if refused else (HEADER, TWIN_HEADER)
    for message in stored:
        value = header_block.read(message.header_block, name)
        assert value is not None
        assert value.startswith(source.encode() + b" ")
        assert header_block.read(message.header_block, other) is None


async def test_a_chain_of_rules_resumes_after_a_restart(scene: Scene) -> None:
    """Each copy has the id and the record of its own rule only."""
    await scene.create()
    last = f"last{scene.name}"
    await scene.peer.create_stream(name=last, subjects=[f"l{scene.name}.>"])
    rules = [
        {
            "name": f"to-{stream}",
            "kind": "sources",
            "stream": stream,
            "sources": [{"name": source, "subject_transforms": [{"src": f"{src}.>", "dest": f"{dest}.>"}]}],
        }
        for stream, source, src, dest in (
            (scene.target, f"o{scene.name}", f"o{scene.name}", f"t{scene.name}"),
            (last, scene.target, f"t{scene.name}", f"l{scene.name}"),
        )
    ]
    for number in range(3):
        async with running(settings_for(scene.url, *rules)) as sidecar:
            await scene.store(f"a{number}", block("A: 1"))
            await scene.store(f"b{number}", block(f"Nats-Msg-Id: own-{number}"))
            runs = sidecar.runs

            async def there(wanted: int = 2 * (number + 1)) -> bool:
                return int((await scene.peer.api(f"STREAM.INFO.{last}"))["state"]["messages"]) >= wanted

            await until(there)
        assert [run.error for run in runs] == [None, None]
    stored = await everything(scene.peer, last)
    assert scene.keys(stored) == ["a0", "b0", "a1", "b1", "a2", "b2"]
    for message in stored:
        assert message.header_block.count(b"Nats-Msg-Id:") == 1
        assert message.header_block.count(b"-Source: ") == 1


async def test_two_entries_of_one_stream_resume_after_a_restart(scene: Scene) -> None:
    await scene.create()
    source = f"o{scene.name}"
    sources = [
        {"name": source, "subject_transforms": [{"src": f"{source}.{key}.>", "dest": f"t{scene.name}.{key}.>"}]}
        for key in "ab"
    ]
    rule = {"name": "copy", "kind": "sources", "stream": scene.target, "sources": sources}
    expected = []
    for number in range(3):
        async with running(settings_for(scene.url, rule)) as sidecar:
            for key in ("a", "b", "b", "a", "c"):
                await scene.store(f"{key}.{number}")
            expected += [f"{key}.{number}" for key in "aabb"]
            stored = await scene.stored(4 * (number + 1))
        assert sidecar.runs[0].error is None
        assert sorted(scene.keys(stored)) == sorted(expected)


def unpublishable(scene: Scene, **more: Any) -> dict[str, Any]:
    """A rule that makes an empty token of `--`; servers store that, clients cannot publish it."""
    source = f"o{scene.name}"
    transform = {"src": f"{source}.*", "dest": f"t{scene.name}.{{{{split(1,-)}}}}.end"}
    sources = [{"name": source, "subject_transforms": [transform]}]
    return {"name": "copy", "kind": "sources", "stream": scene.target, "sources": sources, **more}


async def test_a_copy_that_no_client_can_publish_goes_to_the_dead_letters(scene: Scene) -> None:
    """kd/copy/unpublishable"""
    await scene.create()
    await scene.peer.create_stream(name=f"letters{scene.name}", subjects=[f"dead{scene.name}"])
    await scene.store("a-b")
    await scene.store("--", payload=b"x")
    rule = unpublishable(scene, on_rejected={"skip": f"dead{scene.name}"})
    async with running(settings_for(scene.url, rule)) as sidecar:
        await scene.store("c")
        stored = await scene.stored(2)
        (letter,) = await everything(scene.peer, f"letters{scene.name}")
        assert scene.keys(stored) == ["a.b.end", "c.end"]
        assert letter.payload == b"x"
        assert b"empty token" in (header_block.read(letter.header_block, b"Nats-Bridge-Rejected") or b"")
        assert sidecar.runs[0].counters.as_dict()["rejected"] == 1


async def test_nothing_behind_a_message_that_stops_the_rule_is_copied(scene: Scene) -> None:
    """kd/copy/unpublishable"""
    await scene.create()
    async with running(settings_for(scene.url, unpublishable(scene))) as sidecar:
        run = sidecar.runs[0]
        await scene.store("a-b")
        await scene.store("--", payload=b"x")
        await until(lambda: run.error is not None)
        assert "message 2 of stream" in str(run.error)
        await scene.store("c")

        async def sent() -> bool:
            consumers = (await scene.peer.api(f"CONSUMER.LIST.o{scene.name}")).get("consumers") or []
            return all(consumer["delivered"]["stream_seq"] == 3 for consumer in consumers)

        # Whether it is still read is not said; if it is, nothing may become of it.
        await until(sent)
    assert scene.keys(await everything(scene.peer, scene.target)) == ["a.b.end"]


async def test_two_entries_count_every_message_that_they_copied(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url("2.15.3")
    scene = Scene(await raw_peer(url), url, "2.15.3", unique_name("h"))
    await scene.create("op")
    for number in range(4000):
        scene.peer.publish(f"{'op'[number % 2]}{scene.name}.k{number}".encode(), b"x" * 100)
    await scene.store("end", letter="o")
    await scene.store("end", letter="p")
    async with scene.copying("op") as counters:
        assert len(await scene.stored(4002)) == 4002
        await until(lambda: counters.copied + counters.duplicates >= 4002)
        assert (counters.copied, counters.duplicates) == (4002, 0)


async def test_two_entries_of_a_stream_need_records_that_name_filters(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url("2.9.10")
    scene = Scene(await raw_peer(url), url, "2.9.10", unique_name("h"))
    await scene.create()
    source = f"o{scene.name}"
    sources = [
        {"name": source, "subject_transforms": [{"src": f"{source}.{key}", "dest": f"t{scene.name}.{key}"}]}
        for key in "ab"
    ]
    rule = {"name": "copy", "kind": "sources", "stream": scene.target, "sources": sources, "dialect": "native"}
    with pytest.raises(RuleRefusedError, match="do not distinguish them"):
        async with running(settings_for(scene.url, rule)):
            pass


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
async def test_sources_whose_messages_are_removed_are_refused(scene: Scene, retention: str) -> None:
    """kd/copy/retention."""
    await scene.create("")
    await scene.peer.create_stream(name=f"o{scene.name}", subjects=[f"o{scene.name}.>"], retention=retention)
    with pytest.raises(Exception, match=f"is a {retention} stream"):
        async with scene.copying():
            await asyncio.sleep(0)
