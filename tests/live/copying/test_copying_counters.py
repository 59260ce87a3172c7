"""Counters in copies (2.12): a plain target keeps their headers, and a counter of the target adds up as natively."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from nats_bridge.app.preflight import check_server, with_server
from nats_bridge.client.connection import Connection
from nats_bridge.errors import RuleRefusedError
from nats_bridge.kinds.copying.counters import CopyCounters
from nats_bridge.kinds.copying.handoff.to_server import CopyingHandoff
from nats_bridge.kinds.copying.model import SourcesRule
from nats_bridge.rules.handoff.answer import Handoff, Wish
from nats_bridge.settings import Settings
from nats_conformance.native_servers import NativeCluster
from nats_transforms import header_block
from tests.live.copied_messages import copied, everything
from tests.live.copying.forgotten_ids import FORGETFUL
from tests.live.cut_wire import cut_wire
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Name, Servers, SharedServers
from tests.live.sidecar_process import sidecar_processes
from tests.live.sidecars import running, settings_for
from tests.live.until import until

COUNTER: dict[str, Any] = {"allow_msg_counter": True}
FORGETFUL_COUNTER: dict[str, Any] = COUNTER | FORGETFUL


@pytest.fixture(params=[*(pytest.param(v, marks=pytest.mark.exhaustive) for v in ("2.12.15", "2.14.10")), "2.15.3"])
def version(request: pytest.FixtureRequest) -> str:
    """A server that knows counters."""
    return str(request.param)


class Scene:
    """Counter streams `o` and `p` as sources, a target, and a native twin of it with the same sources."""

    def __init__(self, peer: RawPeer, url: str, name: str) -> None:
        self.peer = peer
        self.url = url
        self.name = name
        self.target, self.twin = f"T{name}", f"N{name}"

    async def create(self, letters: str = "o", source: dict[str, Any] | None = None, **target: Any) -> None:
        for letter in letters:
            stream = f"{letter}{self.name}"
            await self.peer.create_stream(name=stream, subjects=[f"{stream}.>"], **COUNTER, **(source or {}))
        await self.peer.create_stream(name=self.target, subjects=[f"{self.target}.>"], **target)
        await self.peer.create_stream(
            name=self.twin, subjects=[f"{self.twin}.>"], sources=self.sources(letters, self.twin), **target
        )

    def sources(self, letters: str, target: str) -> list[dict[str, Any]]:
        names = [f"{letter}{self.name}" for letter in letters]
        return [{"name": n, "subject_transforms": [{"src": f"{n}.>", "dest": f"{target}.>"}]} for n in names]

    def rule(self, letters: str = "o", **more: Any) -> dict[str, Any]:
        sources = self.sources(letters, self.target)
        return {"name": "rule", "kind": "sources", "stream": self.target, "sources": sources, **more}

    async def add(self, key: str, increment: int, *lines: str, into: str = "o") -> None:
        """Add to a counter of a source, or of both targets."""
        block = b"NATS/1.0\r\n" + b"".join(f"{line}\r\n".encode() for line in (f"Nats-Incr: {increment:+}", *lines))
        for stream in (self.target, self.twin) if into == "targets" else (f"{into}{self.name}",):
            answer = await self.peer.store(f"{stream}.{key}".encode(), b"", block + b"\r\n")
            assert "error" not in answer, answer

    async def last(self, stream: str) -> int:
        return int((await self.peer.api(f"STREAM.INFO.{stream}"))["state"]["last_seq"])

    async def value(self, stream: str, key: str) -> bytes:
        return (await self.messages(stream, key))[-1]

    async def messages(self, stream: str, key: str) -> list[bytes]:
        found = [each for each in await everything(self.peer, stream) if each.subject == f"{stream}.{key}".encode()]
        return [message.payload for message in found]

    async def both_have(self, messages: int) -> None:
        """Wait until both targets have stored so many messages."""

        async def there() -> bool:
            return min(await self.last(self.target), await self.last(self.twin)) >= messages

        await until(there)


@pytest.fixture
async def scene(version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer) -> Scene:
    url = await servers.url(version)
    return Scene(await raw_peer(url), url, unique_name("c"))


def counters_of(sidecar: Any) -> CopyCounters:
    counters = sidecar.runs[0].counters
    assert isinstance(counters, CopyCounters)
    return counters


def without_ours(stream: str, copies: list[Any]) -> list[tuple[bytes, list[bytes], bytes]]:
    """Copies without the headers of what was added, and without differences of names alone."""
    dropped = (b"Nats-Counter-Sources:", b"Nats-Bridge-Counter-Sources:")
    reported = []
    for copy in copies:
        lines = [line for line in copy.block.split(b"\r\n") if not line.startswith(dropped)]
        lines = [line.replace(b"Nats-Bridge-Incr", b"Nats-Incr") for line in lines]
        reported.append((copy.subject.removeprefix(stream.encode()), lines, copy.payload))
    return reported


async def test_a_plain_target_keeps_totals_and_increments(scene: Scene) -> None:
    """kd/copy/renamed."""
    await scene.create()
    await scene.add("a", 1, "A: 1")
    await scene.add("a", 2, "Nats-Msg-Id: own")
    async with running(settings_for(scene.url, scene.rule())) as sidecar:
        await scene.add("b", -5)
        await scene.both_have(3)
        await until(lambda: counters_of(sidecar).copied == 3)
        assert counters_of(sidecar).renamed_headers == 3
    assert sidecar.runs[0].error is None
    mine = without_ours(scene.target, await copied(scene.peer, scene.target))
    assert mine == without_ours(scene.twin, await copied(scene.peer, scene.twin))
    assert [payload for *_, payload in mine] == [b'{"val":"1"}', b'{"val":"3"}', b'{"val":"-5"}']
    stored = (await everything(scene.peer, scene.target))[0].header_block
    assert header_block.read(stored, b"Nats-Bridge-Incr") == b"+1"
    assert header_block.read(stored, b"Nats-Incr") is None


async def test_a_counter_adds_up_as_with_native_sources(scene: Scene) -> None:
    await scene.create(**COUNTER)
    await scene.add("a", 1, "A: 1")
    await scene.add("a", 2, "Nats-Msg-Id: own")
    await scene.add("b", -5)
    async with running(settings_for(scene.url, scene.rule())) as sidecar:
        await scene.both_have(3)
        await scene.add("a", 100, into="targets")
        await scene.add("a", 1)
        await scene.both_have(5)
        # A counter that starts again in the source takes back here what it had been.
        assert (await scene.peer.api(f"STREAM.PURGE.o{scene.name}", {"filter": f"o{scene.name}.a"}))["success"]
        await scene.add("a", 7)
        await scene.both_have(6)
        # One that is purged here begins with all that the source's holds.
        for stream in (scene.target, scene.twin):
            assert (await scene.peer.api(f"STREAM.PURGE.{stream}", {"filter": f"{stream}.b"}))["success"]
        await scene.add("b", -1)
        await scene.both_have(7)
        await until(lambda: counters_of(sidecar).copied == 6)
        assert counters_of(sidecar).assumed_increments == 0
    assert sidecar.runs[0].error is None
    mine = without_ours(scene.target, await copied(scene.peer, scene.target))
    assert mine == without_ours(scene.twin, await copied(scene.peer, scene.twin))
    assert await scene.value(scene.target, "a") == b'{"val":"107"}'
    assert await scene.value(scene.target, "b") == b'{"val":"-6"}'


async def test_several_sources_add_up_in_one_counter(scene: Scene) -> None:
    await scene.create("op", **COUNTER)
    for number in range(20):
        await scene.add("same", 1, into="op"[number % 2])
    async with running(settings_for(scene.url, scene.rule("op"))):
        await scene.both_have(20)
        await scene.add("same", 10, into="targets")
        for number in range(20):
            await scene.add("same", 3, into="op"[number % 2])
        await scene.both_have(41)
    async with running(settings_for(scene.url, scene.rule("op"))) as sidecar:
        await scene.add("same", 1000, into="p")
        await scene.both_have(42)
        assert counters_of(sidecar).received == 1
    for stream in (scene.target, scene.twin):
        assert await scene.value(stream, "same") == b'{"val":"1090"}'


async def test_what_has_vanished_from_the_source_is_added_all_the_same(scene: Scene) -> None:
    await scene.create(source={"max_msgs_per_subject": 1}, **COUNTER)
    for _ in range(5):
        await scene.add("a", 2)
    async with running(settings_for(scene.url, scene.rule())):
        await scene.both_have(1)
        await scene.add("a", 1)

        async def added() -> bool:
            return await scene.value(scene.target, "a") == b'{"val":"11"}'

        await until(added)
    for _ in range(3):
        await scene.add("a", 1)
    async with running(settings_for(scene.url, scene.rule())):

        async def made_up_for() -> bool:
            return await scene.value(scene.target, "a") == b'{"val":"14"}'

        await until(made_up_for)


async def test_a_target_that_keeps_one_message_per_counter_adds_up_over_restarts(scene: Scene) -> None:
    await scene.create("op", max_msgs_per_subject=1, **COUNTER)
    total = 0
    for round_ in range(3):
        async with running(settings_for(scene.url, scene.rule("op"))) as sidecar:
            for number in range(10):
                await scene.add("same", number, into="op"[number % 2])
                total += number
            await scene.add("same", 1, into="targets")
            total += 1
            await until(lambda sidecar=sidecar: counters_of(sidecar).copied == 10)  # type: ignore[misc]
        assert await scene.value(scene.target, "same") == b'{"val":"%d"}' % total, round_


async def test_what_the_target_has_forgotten_is_taken_from_the_message(scene: Scene) -> None:
    """kd/copy/counter-forgotten."""
    await scene.create(max_msgs_per_subject=1, **COUNTER)
    for _ in range(3):
        await scene.add("a", 1)
    async with running(settings_for(scene.url, scene.rule())) as sidecar:
        await until(lambda: counters_of(sidecar).copied == 3)
    await scene.add("a", 100, into="targets")  # the copy that recorded what was added is removed
    async with running(settings_for(scene.url, scene.rule())) as sidecar:
        await scene.add("a", 5)
        await until(lambda: counters_of(sidecar).copied == 1)
        assert counters_of(sidecar).assumed_increments == 1
    assert await scene.value(scene.target, "a") == b'{"val":"108"}'


async def test_an_id_that_the_target_knows_loses_no_increment(scene: Scene) -> None:
    """The message is left out, and the counter's next one makes up for it, as natively."""
    await scene.create(duplicate_window=120_000_000_000, **COUNTER)
    await scene.add("a", 100, "Nats-Msg-Id: taken", into="targets")
    for number, lines in enumerate([("Nats-Msg-Id: taken",), (), ("Nats-Msg-Id: free",), ()]):
        await scene.add("a", 1 << number, *lines)
    async with running(settings_for(scene.url, scene.rule())) as sidecar:
        await scene.both_have(4)
        await until(lambda: counters_of(sidecar).copied == 3)
        assert counters_of(sidecar).duplicates == 1
    assert await scene.messages(scene.target, "a") == [b'{"val":"%d"}' % total for total in (100, 103, 107, 115)]
    assert await scene.messages(scene.twin, "a") == await scene.messages(scene.target, "a")


async def test_a_rule_resumes_where_native_sources_stopped(scene: Scene) -> None:
    await scene.create(**COUNTER)
    for _ in range(3):
        await scene.add("a", 1)
    twin = scene.twin

    async def copied_natively() -> bool:
        return await scene.last(twin) == 3

    await until(copied_natively)
    config = (await scene.peer.api(f"STREAM.INFO.{twin}"))["config"]
    del config["sources"]
    assert "error" not in await scene.peer.api(f"STREAM.UPDATE.{twin}", config)
    rule = scene.rule() | {"stream": twin, "sources": scene.sources("o", twin)}
    for total in (4, 5):
        local = await scene.peer.store(f"{twin}.a".encode(), b"", b"NATS/1.0\r\nNats-Incr: 10\r\n\r\n")
        assert "error" not in local
        async with running(settings_for(scene.url, rule)) as sidecar:
            await scene.add("a", 1)
            await until(lambda sidecar=sidecar: counters_of(sidecar).copied == 1)  # type: ignore[misc]
        assert await scene.value(twin, "a") == b'{"val":"%d"}' % (total + 10 * (total - 3))


async def test_a_chain_of_rules_through_a_plain_stream_adds_up(scene: Scene) -> None:
    await scene.create()
    last = f"L{scene.name}"
    await scene.peer.create_stream(name=last, subjects=[f"{last}.>"], **COUNTER)
    entry = {"name": scene.target, "subject_transforms": [{"src": f"{scene.target}.>", "dest": f"{last}.>"}]}
    second = {"name": "second", "kind": "sources", "stream": last, "sources": [entry]}
    async with running(settings_for(scene.url, scene.rule(), second)) as sidecar:
        for number in range(1, 5):
            await scene.add("a", number)
        await until(lambda: sidecar.runs[1].counters.as_dict()["copied"] == 4)
    assert await scene.messages(last, "a") == [b'{"val":"%d"}' % total for total in (1, 3, 6, 10)]


async def test_nothing_is_added_twice_when_answers_are_lost(scene: Scene) -> None:
    """The target remembers no ids that would help."""
    await scene.create("op", **FORGETFUL_COUNTER)
    chance = random.Random(scene.name)
    published = 0
    async with cut_wire(scene.url) as wire, running(settings_for(wire.url, scene.rule("op"))) as sidecar:
        for _ in range(6):
            burst = asyncio.gather(*(scene.add(f"k{n % 3}", 1, into="op"[n % 2]) for n in range(300)))
            published += 300
            part = published - chance.randrange(1, 300)

            async def some(part: int = part) -> bool:
                return await scene.last(scene.target) >= part

            await until(some)
            wire.cut()
            await burst

            async def all_there(published: int = published) -> bool:
                return await scene.last(scene.target) >= published

            await until(all_there)
        assert sidecar.runs[0].error is None
        await scene.both_have(published)
    for key in ("k0", "k1", "k2"):
        assert await scene.value(scene.target, key) == b'{"val":"600"}'


async def test_a_message_that_is_no_counters_goes_to_the_dead_letters(scene: Scene) -> None:
    await scene.create()
    last, letters = f"L{scene.name}", f"letters{scene.name}"
    await scene.peer.create_stream(name=last, subjects=[f"{last}.>"], **COUNTER)
    await scene.peer.create_stream(name=letters, subjects=[letters])
    entry = {"name": scene.target, "subject_transforms": [{"src": f"{scene.target}.>", "dest": f"{last}.>"}]}
    rule = {"name": "rule", "kind": "sources", "stream": last, "sources": [entry], "on_rejected": {"skip": letters}}
    await scene.peer.store(f"{scene.target}.plain".encode(), b"no total")
    await scene.peer.store(f"{scene.target}.odd".encode(), b"x", b"NATS/1.0\r\nNats-Bridge-Incr: 3\r\n\r\n")
    async with running(settings_for(scene.url, rule)) as sidecar:
        await scene.peer.store(f"{scene.target}.a".encode(), b'{"val":"3"}', b"NATS/1.0\r\nNats-Bridge-Incr: 3\r\n\r\n")
        await until(lambda: counters_of(sidecar).copied == 1)
        assert counters_of(sidecar).rejected == 2
    assert [message.payload for message in await everything(scene.peer, letters)] == [b"no total", b"x"]
    assert await scene.value(last, "a") == b'{"val":"3"}'


async def test_a_killed_server_neither_loses_nor_doubles_an_increment(
    version: str, native_server: Servers, raw_peer: OpenPeer
) -> None:
    async with native_server(version) as server:
        scene = Scene(await raw_peer(server.url), server.url, "kill")
        await scene.create(**FORGETFUL_COUNTER)
        for _ in range(200):
            await scene.add("a", 1)
        async with running(settings_for(server.url, scene.rule())) as sidecar:
            await until(lambda: counters_of(sidecar).copied > 0)
            server.kill()
            server.start()
            scene.peer = await raw_peer(server.url)
            await scene.add("a", 1)

            async def added() -> bool:
                return await scene.value(scene.target, "a") == b'{"val":"201"}'

            await until(added)
            assert len(await scene.messages(scene.target, "a")) == 201


@pytest.mark.unstoppable
async def test_kills_of_the_sidecar_neither_lose_nor_double_an_increment(scene: Scene, tmp_path: Path) -> None:
    """The target remembers no ids that would help."""
    await scene.create("op", **FORGETFUL_COUNTER)
    chance = random.Random(scene.name)
    published = 0
    async with sidecar_processes(tmp_path) as start:
        for turn in range(2):
            process = await start(scene.url, scene.rule("op"))
            await process.ready()
            burst = asyncio.gather(*(scene.add(f"k{n % 3}", 1, into="op"[n % 2]) for n in range(600)))
            published += 600
            part = published - chance.randrange(1, 600) if turn < 1 else published

            async def some(part: int = part) -> bool:
                return await scene.last(scene.target) >= part

            await until(some)
            await process.kill()
            await burst
        await scene.both_have(published)
    assert await scene.last(scene.target) == published
    for key in ("k0", "k1", "k2"):
        assert await scene.value(scene.target, key) == b'{"val":"400"}'


async def test_a_counter_with_replicas_adds_up(version: str, raw_peer: OpenPeer) -> None:
    with NativeCluster(version) as cluster:
        scene = Scene(await raw_peer(cluster.urls[0]), cluster.urls[1], "r3")
        await scene.create("op", num_replicas=3, **COUNTER)
        for number in range(60):
            await scene.add(f"k{number % 3}", number, into="op"[number % 2])
        for round_ in range(2):
            async with running(settings_for(scene.url, scene.rule("op"))) as sidecar:
                await scene.add("k0", 1000, into="op"[round_])
                await scene.both_have(61 + round_)
                await until(lambda sidecar=sidecar: counters_of(sidecar).copied >= 1)  # type: ignore[misc]
        for key in ("k0", "k1", "k2"):
            assert await scene.value(scene.target, key) == await scene.value(scene.twin, key)


async def test_check_says_what_will_be_otherwise(scene: Scene) -> None:
    await scene.create()
    kept = f"L{scene.name}"
    await scene.peer.create_stream(name=kept, subjects=[f"{kept}.>"], max_msgs_per_subject=1, **COUNTER)
    entry = scene.sources("o", kept)
    counting = {"name": "counting", "kind": "sources", "stream": kept, "sources": entry}
    findings = await check_server(settings_for(scene.url, scene.rule(), counting), None)
    assert all(finding.ok for finding in findings)
    reported = {finding.rule: finding.text for finding in findings if finding.code == "diverges"}
    assert set(reported) == {"rule", "counting"}
    assert "kd/copy/renamed" in reported["rule"]
    assert "kd/copy/counter-forgotten" in reported["counting"]


async def test_a_counter_is_not_handed_over(scene: Scene) -> None:
    """The server would add every total again."""
    await scene.create(**COUNTER)
    settings = settings_for(scene.url, scene.rule())
    (rule,) = settings.rules
    assert isinstance(rule, SourcesRule)

    async def handed_over(settings: Settings, connections: dict[str, Connection]) -> Handoff:
        return await CopyingHandoff(rule, settings, connections, Wish()).answer()

    answer = await with_server(settings, None, handed_over)
    assert not answer.ok
    assert "is a counter stream" in answer.problems[0]


async def test_sequences_of_counters_cannot_be_kept(scene: Scene) -> None:
    await scene.create(**COUNTER)
    entry = scene.sources("o", scene.target)[0]
    rule = {"name": "rule", "kind": "mirror", "stream": scene.target, "mirror": entry, "keep_sequence": True}
    with pytest.raises(RuleRefusedError, match="is a counter stream"):
        async with running(settings_for(scene.url, rule)):
            pass
