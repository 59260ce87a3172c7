"""Failover plans, checked by doing them: a consumer that is moved continues with exactly the next message."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.errors import ServiceUnavailableError
from structlog.testing import capture_logs

from nats_conformance.native_servers import NativeCluster
from nats_transforms.source_record import TWIN_HEADER
from nats_transforms.sourcing import compile_sourcing
from nats_transforms.subject import matches
from tests.live.commands import Ran, command_here
from tests.live.conftest import Connect
from tests.live.copies import Copies, record_of
from tests.live.creation_times import CHANGE_IT, change_creation_time
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Name, Servers, SharedServers
from tests.live.sidecars import running, settings_for
from tests.live.stored_messages import stored_messages
from tests.live.tiers import OLDEST_AND_NEWEST, by_turns
from tests.live.until import until


class Scene(Copies):
    """A stream with consumers, and its copy; `kind` says who copies."""

    kind = "sources"
    url = target_url = ""
    client: Client
    target_client: Client
    folder: Path

    def copying(self) -> list[dict[str, Any]]:
        """The rules of the configuration."""
        if self.kind == "keep":
            transforms = [{"src": f"{self.name}.>", "dest": f"{self.target}.>"}]
            mirror = {"name": self.name, "subject_transforms": transforms}
            filler = f"{self.target}.filler"
            return [
                {
                    "name": "rule",
                    "kind": "mirror",
                    "stream": self.target,
                    "mirror": mirror,
                    "keep_sequence": True,
                    "filler_subject": filler,
                }
            ]
        return [self.rule()] if self.kind == "sources" else []

    def document(self, *rules: dict[str, Any]) -> dict[str, Any]:
        """The configuration; on two servers, the source's connection is `west`."""
        connections = {"default": {"servers": [self.target_url]}}
        if self.url != self.target_url:
            connections["west"] = {"servers": [self.url]}
        return {"connections": connections, "http": {"listen": ""}, "rules": list(rules) or self.copying()}

    async def copied(self, last: int) -> None:
        """Copy until the target has the source's message with this sequence."""
        if self.kind in ("mirror", "native"):
            entry = {"name": self.name}
            native = {"mirror": entry} if self.kind == "mirror" else {"sources": [entry]}
            await self.target_peer.create_stream(name=self.target, **native)
            await until(lambda: self._has(last))
            return
        settings = settings_for(self.target_url, **self.document())
        async with running(settings):
            await until(lambda: self._has(last))

    async def _has(self, last: int) -> bool:
        state = await self.state()
        if self.kind in ("keep", "mirror"):
            return int(state["last_seq"]) >= last
        if not state["messages"]:
            return False
        newest = (await self.stored())[-1]
        return record_of(newest).sequence >= last

    async def publish(self, count: int) -> None:
        """Messages on subjects `.a.<n>` and `.b.<n>` in turn."""
        for number in range(count):
            await self.peer.store(f"{self.name}.{'ab'[number % 2]}.{number}".encode(), b"x")

    async def consumer(
        self, name: str, fetched: int, acknowledged: list[int], *, stream: str = "", **config: Any
    ) -> None:
        """A pull consumer that has fetched so many messages, and acknowledged some of them (by number, from 0)."""
        stream = stream or self.name
        await self.create(self.peer, stream, {"durable_name": name, "ack_policy": "explicit", **config})
        jetstream = self.client.jetstream(timeout=60)
        subscription = await jetstream.pull_subscribe_bind(name, stream=stream)
        messages = await self.fetched(subscription, fetched)
        for number in acknowledged:
            await messages[number].ack_sync(timeout=60)

    @staticmethod
    async def create(peer: RawPeer, stream: str, config: dict[str, Any]) -> None:
        body = {"stream_name": stream, "config": config}
        answer = await peer.api(f"CONSUMER.DURABLE.CREATE.{stream}.{config['durable_name']}", body)
        assert "error" not in answer, answer

    @staticmethod
    async def fetched(subscription: JetStreamContext.PullSubscription, count: int) -> list[Msg]:
        """So many messages, as soon as the consumer has a leader, which clusters elect after they have answered."""
        messages: list[Msg] = []

        async def some() -> bool:
            with contextlib.suppress(ServiceUnavailableError):
                messages.extend(await subscription.fetch(count - len(messages), timeout=60))
            return len(messages) >= count

        if count:
            await until(some)
        return messages

    async def plan(self, *options: str, code: int = 0) -> Ran:
        """Run the command; its files are in `out`."""
        document = self.document()
        where = ["--server", self.url, "--stream", self.name]
        if document["rules"]:
            config = self.folder / "bridge.yaml"
            config.write_text(json.dumps(document), "utf-8")
            where[:2] = ["-c", str(config)]
        if self.url != self.target_url:
            where += ["--server", "west", "--to", "default"]
        ran = await command_here("failover", *where, "--out", str(self.folder / "out"), *options)
        assert ran.code == code, ran.out + ran.err
        return ran

    async def planned(self, *options: str, code: int = 0) -> dict[str, Any]:
        """The plan of each consumer."""
        streams = json.loads((await self.plan("--json", *options, code=code)).out)["streams"]
        return {move["consumer"]: move for stream in streams for move in stream["consumers"]}

    async def moved(self, name: str) -> list[int]:
        """Create a consumer from its file, and read all that it receives: the source's sequences."""
        request = json.loads((self.folder / "out" / f"{self.target}.{name}.json").read_text("utf-8"))
        await self.create(self.target_peer, request["stream_name"], request["config"])
        info = await self.target_peer.api(f"CONSUMER.INFO.{self.target}.{name}")
        jetstream = self.target_client.jetstream(timeout=60)
        subscription = await jetstream.pull_subscribe_bind(name, stream=self.target)
        pending = int(info["num_pending"])
        messages = await self.fetched(subscription, pending)
        return [await self._source_sequence(message.metadata.sequence.stream) for message in messages]

    async def _source_sequence(self, at: int) -> int:
        if self.kind in ("keep", "mirror"):
            return at
        return next(record_of(message).sequence for message in await self.stored() if message.sequence == at)

    async def following(self, floor: int, pattern: str = ">") -> list[int]:
        """The sequences of the source's messages above a floor."""
        state = (await self.peer.api(f"STREAM.INFO.{self.name}"))["state"]
        found = []
        for sequence in range(floor + 1, int(state["last_seq"]) + 1):
            answer = await self.peer.api(f"STREAM.MSG.GET.{self.name}", {"seq": sequence})
            if "message" in answer and matches(answer["message"]["subject"].encode(), pattern.encode()):
                found.append(sequence)
        return found


@pytest.fixture
def scene(raw_peer: OpenPeer, connect: Connect, unique_name: Name, tmp_path: Path) -> Callable[..., Any]:
    """`await scene(kind, url)` makes a stream and, where the server does not copy, the stream of its copy."""

    async def make(kind: str, url: str, target_url: str = "", replicas: int = 1) -> Scene:
        name = unique_name("failover")
        here = Scene(await raw_peer(url), await raw_peer(target_url or url), name)
        here.kind, here.url, here.target_url, here.folder = kind, url, target_url or url, tmp_path
        here.client, here.target_client = await connect(url), await connect(target_url or url)
        await here.peer.create_stream(name=name, subjects=[f"{name}.>"], num_replicas=replicas)
        if kind not in ("mirror", "native"):
            await here.target_peer.create_stream(name=here.target, subjects=[f"{here.target}.>"], num_replicas=replicas)
        return here

    return make


@by_turns("twin_version, kind", OLDEST_AND_NEWEST, ["sources", "mirror", "native"])
async def test_a_consumer_continues_with_the_next_message(
    kind: str, twin_version: str, servers: SharedServers, scene: Callable[..., Any]
) -> None:
    here: Scene = await scene(kind, await servers.url(twin_version))
    await here.publish(20)
    await here.peer.delete_messages(here.name, (1, 8, 9))
    await here.copied(20)
    await here.consumer("plain", 5, [0, 1, 2, 3, 4])  # 2 to 6
    await here.consumer("holes", 8, [0, 2, 3, 7])  # 2 to 11 without 8 and 9
    await here.consumer("some", 3, [0, 1], filter_subject=f"{here.name}.b.*")  # 2, 4, 6
    await here.consumer("fresh", 0, [])
    await here.consumer("done", 17, list(range(17)))
    await here.consumer("new", 0, [], deliver_policy="new")
    planned = await here.planned()
    assert planned["plain"]["redelivered"] == []
    assert planned["holes"]["ack_floor"] == 2
    assert planned["holes"]["redelivered"] == [[3, 7], [10, 11]]
    assert planned["some"]["redelivered"] == [[6, 6]]
    assert await here.moved("plain") == [7, *range(10, 21)]
    assert await here.moved("holes") == [*range(3, 8), *range(10, 21)]
    assert await here.moved("some") == await here.following(4, f"{here.name}.b.*")
    assert await here.moved("fresh") == await here.following(0)
    assert await here.moved("done") == []
    assert await here.moved("new") == []
    again = await here.planned(code=1)
    assert again["plain"]["problems"] == [f"{here.target} has a consumer plain already: delete it first"]


async def test_sequences_that_a_rule_keeps(
    newest_version: str, servers: SharedServers, scene: Callable[..., Any]
) -> None:
    here: Scene = await scene("keep", await servers.url(newest_version))
    await here.publish(10)
    await here.peer.delete_messages(here.name, [6])
    await here.copied(10)
    await here.consumer("plain", 5, [0, 1, 2, 3, 4])
    assert (await here.planned())["plain"]["begins"] == 6
    assert await here.moved("plain") == [7, 8, 9, 10]


async def test_functions_that_mirrors_of_an_old_dialect_know(servers: SharedServers, scene: Callable[..., Any]) -> None:
    """`left` is one of mirrors in 2.10, and none of sources: a plan reads the rule as its sidecar does."""
    here: Scene = await scene("keep", await servers.url("2.10.27"))
    (rule,) = here.copying()
    rule["mirror"]["subject_transforms"] = [{"src": f"{here.name}.*.*", "dest": f"{here.target}.{{{{left(1,1)}}}}.$2"}]
    config = here.folder / "left.yaml"
    config.write_text(json.dumps(here.document(rule) | {"dialect": "2.10.27"}), "utf-8")
    ran = await command_here("failover", "-c", str(config), "--stream", here.name, "--json")
    assert ran.code == 0, ran.out + ran.err
    (stream,) = json.loads(ran.out)["streams"]
    assert (stream["source"], stream["target"]) == (here.name, here.target)


async def test_a_push_consumer_continues(
    newest_version: str, servers: SharedServers, scene: Callable[..., Any]
) -> None:
    here: Scene = await scene("sources", await servers.url(newest_version))
    await here.publish(6)
    await here.copied(6)
    received = await here.peer.collect(f"push.{here.name}")
    config = {"durable_name": "push", "deliver_subject": f"push.{here.name}", "ack_policy": "all"}
    await here.create(here.peer, here.name, config)
    delivered = await received.count(6)
    await here.peer.request_raw(delivered[3][1], b"+ACK")
    assert (await here.planned())["push"]["redelivered"] == [[5, 6]]
    await here.peer.api(f"CONSUMER.DELETE.{here.name}.push")
    request = json.loads((here.folder / "out" / f"{here.target}.push.json").read_text("utf-8"))
    await here.create(here.target_peer, here.target, request["config"])
    moved = (await received.count(8))[6:]
    assert [message[3] for message in moved] == [b"x", b"x"]
    assert [message[1].split(b".")[5] for message in moved] == [b"5", b"6"]


async def test_copies_behind_later_ones(newest_version: str, servers: SharedServers, scene: Callable[..., Any]) -> None:
    """As a repaired interruption leaves them; and messages of other clients between them."""
    here: Scene = await scene("sources", await servers.url(newest_version))
    await here.publish(6)
    entry = compile_sourcing(here.rule()["sources"][0])
    for number in (1, 2, 4, 0, 5, 3, 6):
        subject = f"{here.target}.a.{number}".encode()
        record = entry.record(number, f"{here.name}.a.{number}".encode())
        block = b"NATS/1.0\r\n%b: %b\r\n\r\n" % (TWIN_HEADER, record) if number else b""
        await here.peer.store(subject, b"x", block)
    await here.consumer("plain", 4, [0, 1, 2, 3])
    move = (await here.planned())["plain"]
    assert (move["begins"], move["acknowledged_and_received_again"], move["following"]) == (4, [[3, 3]], 2)
    assert move["no_copies"] == 1
    shown = (await here.plan()).out
    assert "redelivered, although acknowledged: 3, copied after later ones" in shown
    assert f"receives 1 messages that are no copies of {here.name}" in shown


async def test_a_filter_that_the_copy_cannot_have(
    newest_version: str, servers: SharedServers, scene: Callable[..., Any]
) -> None:
    here: Scene = await scene("sources", await servers.url(newest_version))
    transforms = [{"src": f"{here.name}.{token}.*", "dest": f"{here.target}.all.$1"} for token in "ab"]
    rule = here.rule(entry={"subject_transforms": transforms})
    here.copying = lambda: [rule]  # type: ignore[method-assign]
    await here.publish(6)
    await here.copied(6)
    await here.consumer("both", 2, [0, 1], filter_subjects=[f"{here.name}.a.*", f"{here.name}.b.*"])
    await here.consumer("one", 1, [0], filter_subject=f"{here.name}.a.*")
    await here.consumer("none", 0, [], filter_subject=f"{here.name}.c.*")
    shown = (await here.plan(code=1)).out
    assert "one: acknowledged to 1, cannot be moved\n      its filters would also select other messages" in shown
    assert f"cannot be moved\n      nothing that it reads is copied to {here.target}" in shown
    assert sorted(file.name for file in (here.folder / "out").iterdir()) == [f"{here.target}.both.json"]
    assert await here.moved("both") == [3, 4, 5, 6]


async def test_a_copy_that_is_behind(newest_version: str, servers: SharedServers, scene: Callable[..., Any]) -> None:
    here: Scene = await scene("sources", await servers.url(newest_version))
    await here.publish(6)
    await here.copied(6)
    await here.publish(4)
    await here.consumer("ahead", 8, list(range(8)))
    await here.consumer("some", 0, [], filter_subject=f"{here.name}.b.*")
    # Deleted in the target by a client: gone there, whatever the records say.
    await here.target_peer.delete_messages(here.target, [4])
    planned = await here.planned(code=1)
    assert planned["ahead"]["acknowledged_and_not_arrived"] == [[7, 8]]
    assert planned["ahead"]["not_acknowledged_and_not_arrived"] == [[9, 10]]
    assert planned["some"]["not_acknowledged_and_not_arrived"] == [[4, 4], [8, 8], [10, 10]]
    assert await here.moved("ahead") == []
    await here.copied(10)
    planned = await here.planned(code=1)
    assert planned["ahead"]["not_acknowledged_and_not_arrived"] == []


async def test_when_the_source_is_away(
    newest_version: str, native_server: Servers, servers: SharedServers, scene: Callable[..., Any]
) -> None:
    west = native_server(newest_version).start()
    here: Scene = await scene("sources", west.url, await servers.url(newest_version))
    rule = here.rule(entry={"from": "west"})
    here.copying = lambda: [rule]  # type: ignore[method-assign]
    await here.publish(6)
    await here.copied(6)
    await here.publish(4)
    await here.consumer("behind", 4, [0, 1])
    await here.consumer("ahead", 8, list(range(8)))
    saved = str(here.folder / "west.json")
    (here.folder / "bridge.yaml").write_text(json.dumps(here.document()), "utf-8")
    ran = await command_here("failover", "--save", saved, "-c", str(here.folder / "bridge.yaml"), "--server", "west")
    assert (ran.code, ran.out.partition(", as of")[0]) == (0, f"{saved}: streams: 1, durable consumers: 2")
    west.kill()
    planned = await here.planned("--saved", saved, code=1)
    assert planned["behind"]["redelivered"] == [[3, 4]]
    assert planned["behind"]["not_acknowledged_and_not_arrived"] == [[7, 10]]
    assert planned["ahead"]["acknowledged_and_not_arrived"] == [[7, 8]]
    assert planned["ahead"]["not_acknowledged_and_not_arrived"] == [[9, 10]]
    assert await here.moved("behind") == [3, 4, 5, 6]
    assert await here.moved("ahead") == []
    shown = (await here.plan("--saved", saved, code=1)).out
    assert "perhaps acknowledged, and not in" in shown


@by_turns("version, kind", CHANGE_IT, ["sources", "keep", "native", "mirror"])
async def test_another_creation_time_of_the_source(
    version: str, kind: str, native_server: Servers, raw_peer: OpenPeer, connect: Connect, scene: Callable[..., Any]
) -> None:
    async with native_server(version) as server:
        here: Scene = await scene(kind, server.url)
        await here.publish(10)
        await here.copied(10)
        here.peer = here.target_peer = await change_creation_time(server, raw_peer, here.name)
        here.client = here.target_client = await connect(server.url)
        await here.consumer("plain", 5, [0, 1, 2, 3, 4])
        saved = str(here.folder / "saved.json")
        ran = await command_here("failover", "--save", saved, "--server", server.url)
        assert ran.code == 0, ran.out + ran.err
        for options in ([], ["--saved", saved]):
            assert (await here.planned(*options))["plain"]["begins"] == 6
        assert await here.moved("plain") == [6, 7, 8, 9, 10]


@pytest.mark.parametrize("kind", ["keep", "mirror"])
async def test_copies_of_an_earlier_source_under_its_sequences(
    newest_version: str, kind: str, servers: SharedServers, scene: Callable[..., Any]
) -> None:
    here: Scene = await scene(kind, await servers.url(newest_version))
    await here.publish(10)
    await here.copied(10)
    await here.peer.api(f"STREAM.DELETE.{here.name}")
    await here.peer.create_stream(name=here.name, subjects=[f"{here.name}.>"])
    await here.publish(10)
    (stream,) = json.loads((await here.plan("--json", code=1)).out)["streams"]
    assert "is not the stream of that name" in stream["problems"][0]


@pytest.mark.exhaustive
async def test_consumers_of_a_cluster(newest_version: str, scene: Callable[..., Any]) -> None:
    """Those with one replica may be on another server than the leader of their stream, which does not count them."""
    async with NativeCluster(newest_version) as cluster:
        here: Scene = await scene("sources", cluster.urls[0], replicas=3)
        await here.publish(6)
        await here.copied(6)
        names = [f"c{number}" for number in range(8)]
        for number, name in enumerate(names):
            await here.consumer(name, 3, [0, 1], num_replicas=1 if number else 3)
        planned = await here.planned()
        assert sorted(planned) == names
        assert all(move["redelivered"] == [[3, 3]] for move in planned.values())
        assert await here.moved("c0") == await here.moved("c7") == [3, 4, 5, 6]
        await here.client.close()
        await here.target_client.close()


async def test_the_way_back_and_forth(twin_version: str, servers: SharedServers, scene: Callable[..., Any]) -> None:
    here: Scene = await scene("sources", await servers.url(twin_version))
    await here.publish(4)
    await here.copied(4)

    async def plan(rule: dict[str, Any]) -> dict[str, Any]:
        config = here.folder / "one.yaml"
        config.write_text(json.dumps(here.document(rule)), "utf-8")
        ran = await command_here("failover", "-c", str(config), "--stream", rule["sources"][0]["name"], "--json")
        (stream,) = json.loads(ran.out)["streams"]
        return dict(stream)

    async def holds(stream: str, payloads: list[bytes]) -> bool:
        count = int((await here.peer.api(f"STREAM.INFO.{stream}"))["state"]["messages"])
        return count >= len(payloads) and payloads == [
            message.payload for message in await stored_messages(here.peer, stream, count)
        ]

    rule, stored = here.rule(), [b"x"] * 4
    streams = [here.target, here.name]
    for turn in range(4):
        active, other = streams[turn % 2], streams[1 - turn % 2]
        entry = (await plan(rule))["way_back"]
        await here.peer.store(f"{active}.a.new".encode(), b"%d" % turn)
        stored.append(b"%d" % turn)
        rule = {"name": f"back{turn}", "kind": "sources", "stream": other, "sources": [entry]}
        with capture_logs() as log:
            async with running(settings_for(here.url, rule)):
                await until(partial(holds, other, stored))
        assert [each["event"] for each in log if each["log_level"] == "warning"] == []
        assert await holds(active, stored)
        if not turn:
            await here.consumer("late", 3, [0, 1], stream=active)
            await here.consumer("done", 5, list(range(5)), stream=active)
            done, late = (await plan(rule))["consumers"]
            assert (done["good"], done["begins"]) == (True, 6), done
            assert done["request"]["config"]["filter_subject"] == f"{other}.>"
            # Its other messages were copied before the failover.
            assert (late["begins"], late["not_acknowledged_and_not_arrived"]) == (5, [[3, 4]])


async def test_the_printed_permissions_are_enough(
    newest_version: str, native_server: Servers, scene: Callable[..., Any], tmp_path: Path
) -> None:
    saved = tmp_path / "saved.json"
    users = "{ user: all, password: all }"
    for user, *command in (("few",), ("saver", "--save", str(saved))):
        printed = await command_here("--permissions", "failover", *command, "--server", "nats://127.0.0.1:1")
        assert printed.code == 0, printed.err
        users += f", {{ user: {user}, password: few, permissions: {printed.out.partition('permissions:')[2]} }}"
    users = f"accounts {{ A {{ jetstream: enabled, users: [ {users} ] }} }}\n"
    (tmp_path / "password").write_text("few", "utf-8")
    async with native_server(newest_version, config=users) as server:
        here: Scene = await scene("native", server.url.replace("//", "//all:all@"))
        await here.publish(3)
        await here.copied(3)
        await here.consumer("plain", 2, [0])
        config = tmp_path / "few.yaml"
        config.write_text(
            f"connections: {{default: {{servers: ['{server.url}'], user: few, password_file: password}},\n"
            f"  saver: {{servers: ['{server.url}'], user: saver, password_file: password}}}}\n"
            "rules: [{name: a, kind: republish, stream: S, republish: {src: '>', dest: 'seen.>'}}]\n",
            "utf-8",
        )
        ran = await command_here("failover", "-c", str(config))
        assert (ran.code, "plain: acknowledged to 1, begins at 2\n      redelivered: 2\n" in ran.out) == (0, True), ran
        ran = await command_here("failover", "--save", str(saved), "-c", str(config), "--server", "saver")
        assert (ran.code, "streams: 2, durable consumers: 1, " in ran.out) == (0, True), ran
        ran = await command_here("failover", "-c", str(config), "--stream", "none")
        assert (ran.code, ran.out) == (1, "no stream is copied between these connections\n")
        ran = await command_here("failover", "--save", str(tmp_path), "-c", str(config))
        assert (ran.code, f"'{tmp_path}' is a directory" in ran.err) == (2, True), ran
