"""Repairs on real servers: what is missing, wrong or too much is put right, and nothing that is newer is lost."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nats_bridge.bridge.settings import Connection
from nats_bridge.native_servers import NativeServer
from nats_bridge.pipeline.diff.provenance import REPAIR_HEADER
from nats_bridge.pipeline.diff.repair.job import Repair, repairer
from nats_bridge.pipeline.diff.repair.job import Wanted as RepairWanted
from nats_bridge.pipeline.diff.repair.steps import Rules
from nats_bridge.pipeline.diff.request import Place, Wanted
from nats_bridge.pipeline.diff.rules import transform_of
from nats_bridge.pipeline.diff.run import Result, compared
from nats_bridge.pipeline.errors import OptionError
from nats_bridge.pipeline.permissions import repair_permissions
from nats_bridge.pipeline.progress import Progress
from nats_bridge.transforms.republish import StoredMessage
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.sidecars import running, settings_for
from tests.live.stored_messages import stored_messages
from tests.live.until import until
from tests.spark.histories import Stored, block, history

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Name = Callable[[str], str]


@pytest.fixture
def version() -> str:
    return "2.15.3"


class Pair:
    """Two streams, of which the right one is repaired."""

    def __init__(
        self,
        spark: SparkSession,
        url: str,
        peer: RawPeer,
        name: str,
        **wanted: Any,
    ) -> None:
        connection = Connection.model_validate({"servers": [url]})
        self.peer, self.left, self.right = peer, f"{name}L", f"{name}R"
        self._spark, self._wanted = spark, wanted
        self.places = Place(self.left, connection), Place(self.right, connection)

    def from_capture(self, folder: Path) -> None:
        """Take the left side from there."""
        self.places = Place(str(folder)), self.places[1]

    def comparing(self) -> AbstractContextManager[Result]:
        return compared(self._spark, *self.places, Wanted(**self._wanted))

    async def repair(self, in_between: Callable[[], Any] | None = None, **wanted: Any) -> Repair:
        """Compare, let something happen, and repair."""
        loop = asyncio.get_running_loop()

        def work() -> Repair:
            with repairer(self.places[1]) as one, self.comparing() as result:
                if in_between is not None:
                    asyncio.run_coroutine_threadsafe(in_between(), loop).result()
                return one.repair(result, RepairWanted(**wanted), Progress("repair"))

        return await asyncio.to_thread(work)

    async def stored(self, stream: str) -> list[StoredMessage]:
        state = (await self.peer.api(f"STREAM.INFO.{stream}"))["state"]
        return await stored_messages(self.peer, stream, state["messages"])

    async def latest(self, stream: str) -> dict[bytes, bytes]:
        return {one.subject.split(b".", 1)[1]: one.payload for one in await self.stored(stream)}


def counted(repair: Repair) -> dict[tuple[str, str], int]:
    return dict(sorted(Counter({(group.action, group.kind): n for group, n in repair.groups.items()}).items()))


async def buckets(spark: SparkSession, url: str, peer: RawPeer, name: str, login: dict[str, str] | None = None) -> Pair:
    """Two buckets with other subjects, ten keys of them equal, and some that are not."""
    rule = transform_of(f"{name}L.>", f"{name}R.>", f"{name}L")
    pair = Pair(spark, url, peer, name, by="subject", rule=rule)
    for stream in (pair.left, pair.right):
        await peer.create_stream(
            name=stream, subjects=[f"{stream}.>"], max_msgs_per_subject=1, allow_rollup_hdrs=True, allow_direct=True
        )
    purged = block(b"KV-Operation: PURGE", b"Nats-Rollup: sub")
    revised = block(b"Nats-Expected-Last-Subject-Sequence: 0")
    for number in range(10):
        await peer.store(f"{pair.left}.same.{number}".encode(), b"%d" % number, revised)
        await peer.store(f"{pair.right}.same.{number}".encode(), b"%d" % number)
    for key, left, right in (
        ("missing", b"new", None),
        ("wrong", b"new", b"old"),
        ("purged", b"", b"old"),
        ("extra", None, b"old"),
    ):
        if right is not None:
            await peer.store(f"{pair.right}.{key}".encode(), right)
        if left is not None:
            await peer.store(f"{pair.left}.{key}".encode(), left, b"" if left else purged)
    return pair


async def test_a_bucket_gets_the_newest_of_each_key(
    spark: SparkSession, url: str, peer: RawPeer, unique_name: Name, tmp_path: Path
) -> None:
    pair = await buckets(spark, url, peer, unique_name("KV"))
    before = await pair.latest(pair.right)
    shown = await pair.repair(plan=tmp_path / "plan")
    assert (shown.applied, shown.is_complete) == (None, False)
    assert await pair.latest(pair.right) == before
    lines = [json.loads(line) for line in (tmp_path / "plan").read_text("utf-8").splitlines()]
    assert sorted((line["action"], line["message"].rpartition(".")[2]) for line in lines) == [
        ("none", "extra"),
        ("put", "missing"),
        ("put", "purged"),
        ("put", "wrong"),
    ]
    done = await pair.repair(apply=True, delete=True)
    assert done.applied is not None
    assert (done.applied.stored, done.applied.deleted, done.is_complete) == (3, 1, True)
    assert await pair.latest(pair.right) == await pair.latest(pair.left)
    assert (await pair.repair(apply=True, delete=True)).groups == {}


async def test_what_is_newer_than_the_comparison_stays(
    spark: SparkSession, url: str, peer: RawPeer, unique_name: Name
) -> None:
    pair = await buckets(spark, url, peer, unique_name("newer"))

    async def others_write() -> None:
        for key in ("missing", "wrong", "extra"):
            await peer.store(f"{pair.right}.{key}".encode(), b"newest")

    done = await pair.repair(others_write, apply=True, delete=True)
    assert done.applied is not None
    assert (done.applied.stored, done.applied.newer, done.is_complete) == (1, 2, False)
    found = await pair.latest(pair.right)
    assert [found[key] for key in (b"missing", b"wrong", b"extra")] == [b"newest"] * 3


async def test_the_printed_permissions_are_enough(
    spark: SparkSession,
    version: str,
    native_server: Callable[..., NativeServer],
    raw_peer: OpenPeer,
    tmp_path: Path,
) -> None:
    connections = []
    for side in ("left", "right"):
        (tmp_path / side).write_text(side, "utf-8")
        login = {"user": side, "password_file": str(tmp_path / side)}
        connections.append({"servers": ["nats://127.0.0.1:4222"], **login})
    left, right = (
        Place(name, Connection.model_validate(connection), subjects=(f"{name}.>",))
        for name, connection in zip(("TL", "TR"), connections, strict=True)
    )
    printed = repair_permissions(left, right, by="subject", delete=True).split("permissions: ")[1:]
    users = [
        f"{{ user: {side}, password: {side}, permissions: {allowed}\n}}"
        for side, allowed in zip(("left", "right"), printed, strict=True)
    ]
    everything = "{ user: all, password: all }"
    config = f"accounts {{ A {{ jetstream: enabled, users: [ {everything}, {', '.join(users)} ] }} }}\n"
    async with native_server(version, config=config) as server:
        peer = await raw_peer(server.url.replace("://", "://all:all@"))
        pair = await buckets(spark, server.url, peer, "T")
        logins = [Connection.model_validate({**connection, "servers": [server.url]}) for connection in connections]
        pair.places = replace(left, connection=logins[0]), replace(right, connection=logins[1])
        done = await pair.repair(apply=True, delete=True)
        assert done.is_complete, done
        assert await pair.latest(pair.right) == await pair.latest(pair.left)


def published(folder: Path, subject: str, numbers: Iterable[int]) -> Path:
    """A capture of messages that have ids."""
    messages = [
        Stored(number, subject, block(b"Nats-Msg-Id: %d" % number, b"A: 1"), b"%d" % number) for number in numbers
    ]
    return history(folder, messages, stream="CAPTURED")


async def test_a_stream_gets_back_what_a_capture_has_of_it(
    spark: SparkSession, url: str, peer: RawPeer, unique_name: Name, tmp_path: Path
) -> None:
    pair = Pair(spark, url, peer, unique_name("ids"), by="id", allowed=frozenset({"order"}))
    subject = f"{pair.right}.a"
    pair.from_capture(published(tmp_path / "left", subject, range(1, 21)))
    await peer.create_stream(name=pair.right, subjects=[f"{pair.right}.>"], duplicate_window=100_000_000)
    for number in [*range(1, 21), 5]:
        if number not in (3, 4):
            data = b"other" if number == 7 else b"%d" % number
            await peer.store(subject.encode(), data, block(b"Nats-Msg-Id: %d" % number, b"A: 1"))
        if number == 20:
            await asyncio.sleep(0.2)  # no event: the server forgets ids by its clock
    shown = await pair.repair()
    assert counted(shown) == {("append", "missing"): 2, ("none", "duplicated"): 1, ("none", "payload"): 1}
    done = await pair.repair(apply=True, delete=True)
    assert done.applied is not None
    assert (done.applied.stored, done.applied.deleted, done.is_complete) == (3, 2, True), done
    assert sorted(int(one.payload) for one in await pair.stored(pair.right)) == list(range(1, 21))
    assert (await pair.repair()).groups == {}


async def test_a_stream_that_remembers_an_id_without_the_message_says_so(
    spark: SparkSession, url: str, peer: RawPeer, unique_name: Name, tmp_path: Path
) -> None:
    pair = Pair(spark, url, peer, unique_name("ids"), by="id")
    pair.from_capture(published(tmp_path / "left", f"{pair.right}.a", (1, 2)))
    await peer.create_stream(name=pair.right, subjects=[f"{pair.right}.>"])
    for number in (1, 2):
        await peer.store(f"{pair.right}.a".encode(), b"%d" % number, block(b"Nats-Msg-Id: %d" % number, b"A: 1"))
    await peer.api(f"STREAM.MSG.DELETE.{pair.right}", {"seq": 2})
    done = await pair.repair(apply=True)
    assert done.applied is not None
    assert (done.applied.stored, done.applied.remembered, done.is_complete) == (0, 1, False)


async def copied_pair(
    spark: SparkSession, url: str, peer: RawPeer, name: str, *, messages: int = 20, **wanted: Any
) -> tuple[Pair, dict[str, Any]]:
    """A stream, and one that copies it by a rule or natively."""
    rule = transform_of(f"{name}L.>", f"{name}R.>", f"{name}L")
    pair = Pair(spark, url, peer, name, rule=rule, **wanted)
    await peer.create_stream(name=pair.left, subjects=[f"{pair.left}.>"])
    for number in range(1, messages + 1):
        await peer.store(f"{pair.left}.{number % 3}".encode(), b"%d" % number, block(b"A: %d" % number))
    entry = {"name": pair.left, "subject_transforms": [{"src": f"{pair.left}.>", "dest": f"{pair.right}.>"}]}
    return pair, entry


async def holds(peer: RawPeer, stream: str, messages: int) -> bool:
    return int((await peer.api(f"STREAM.INFO.{stream}"))["state"]["messages"]) == messages


async def test_copies_that_were_lost_are_appended_and_move_no_position(
    spark: SparkSession,
    version: str,
    native_server: Callable[..., NativeServer],
    raw_peer: OpenPeer,
    tmp_path: Path,
) -> None:
    async with native_server(version) as server:
        peer = await raw_peer(server.url)
        pair, entry = await copied_pair(spark, server.url, peer, "T", allowed=frozenset({"order"}))
        await peer.create_stream(name=pair.right, subjects=[f"{pair.right}.>"], sources=[entry])
        await until(lambda: holds(peer, pair.right, 20))
        for sequence in (3, 4, 11):
            await peer.api(f"STREAM.MSG.DELETE.{pair.right}", {"seq": sequence})
        changed = block(b"A: 9", b"Nats-Repair-Source: TL 9 > > TL.0")
        await peer.store(f"{pair.right}.0".encode(), b"again", changed)  # a copy twice, and wrong
        done = await pair.repair(apply=True, delete=True)
        assert done.applied is not None
        assert (done.applied.stored, done.applied.deleted, done.is_complete) == (3, 1, True), counted(done)
        assert (await pair.repair()).groups == {}
        assert sum(REPAIR_HEADER in one.header_block for one in await pair.stored(pair.right)) == 3
        # The server continues after what it has copied, though it looks for its position again.
        await peer.close()
        server.restart()
        peer = pair.peer = await raw_peer(server.url)
        await peer.store(f"{pair.left}.x".encode(), b"21", block(b"A: 21"))
        await until(lambda: holds(peer, pair.right, 21))
        payloads = sorted(int(one.payload) for one in await pair.stored(pair.right))
        assert payloads == list(range(1, 22))


async def test_what_a_rule_brings_itself_is_left_to_it_until_it_is_stopped_permanently(
    spark: SparkSession, url: str, peer: RawPeer, unique_name: Name
) -> None:
    pair, entry = await copied_pair(spark, url, peer, unique_name("behind"), allowed=frozenset({"order"}))
    await peer.create_stream(name=pair.right, subjects=[f"{pair.right}.>"])
    rule = {"name": "copy", "kind": "sources", "stream": pair.right, "sources": [entry]}
    async with running(settings_for(url, rule)):
        await until(lambda: holds(peer, pair.right, 20))
    await peer.api(f"STREAM.MSG.DELETE.{pair.right}", {"seq": 4})
    await peer.store(f"{pair.left}.x".encode(), b"21")
    kept = await pair.repair(apply=True)
    assert sorted(group.reason[:17] for group in kept.groups) == ["among the newest ", "behind all that w"]
    assert await holds(peer, pair.right, 19)
    async with running(settings_for(url, rule)):  # which takes the one for deleted, and brings the other
        await until(lambda: holds(peer, pair.right, 20))
    for sequence in (9, 20):
        await peer.api(f"STREAM.MSG.DELETE.{pair.right}", {"seq": sequence})
    await peer.store(f"{pair.left}.x".encode(), b"22")
    done = await pair.repair(apply=True, stopped=True)
    assert done.is_complete
    assert sorted(int(one.payload) for one in await pair.stored(pair.right)) == list(range(1, 23))
    assert (await pair.repair(stopped=True)).groups == {}


async def test_a_copy_that_is_wrong_is_replaced_where_that_is_asked_for(
    spark: SparkSession, url: str, peer: RawPeer, unique_name: Name
) -> None:
    pair, _ = await copied_pair(spark, url, peer, unique_name("wrong"), allowed=frozenset({"order"}))
    await peer.create_stream(name=pair.right, subjects=[f"{pair.right}.>"])
    for number in range(1, 11):
        made = block(b"A: %d" % number, b"Nats-Bridge-Source: %b %d > > x" % (pair.left.encode(), number))
        await peer.store(f"{pair.right}.{number % 3}".encode(), b"%d" % (0 if number == 5 else number), made)
    await peer.store(
        f"{pair.right}.2".encode(), b"20", block(b"A: 20", b"Nats-Bridge-Source: %b 20 > > x" % pair.left.encode())
    )
    kept = await pair.repair(apply=True, stopped=True)
    assert kept.applied is not None
    assert (kept.applied.stored, kept.undone, kept.is_complete) == (9, 1, False), counted(kept)
    done = await pair.repair(apply=True, delete=True)
    assert done.applied is not None
    assert (done.applied.stored, done.applied.deleted, done.is_complete) == (1, 1, True), counted(done)
    assert sorted(int(one.payload) for one in await pair.stored(pair.right)) == list(range(1, 21))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"retention": "workqueue"}, "loses what its consumers have read"),
        ({"no_ack": True}, "confirms nothing"),
        ({"subject_transform": {"src": ">", "dest": "x.>"}}, "transforms subjects at its ingress"),
    ],
)
async def test_streams_that_are_not_repaired(
    config: dict[str, Any], said: str, spark: SparkSession, url: str, peer: RawPeer, unique_name: Name
) -> None:
    pair = Pair(spark, url, peer, unique_name("unfit"))
    await peer.create_stream(name=pair.right, subjects=[f"{pair.right}.>"], **config)
    with pytest.raises(OptionError, match=said):
        await pair.repair()


RULES = Rules("provenance:right", True, "", 100, 0, True, {"": (10, 50)}, {}, False)


@pytest.mark.parametrize(
    ("changes", "finding", "expected"),
    [
        ({}, ("missing", "20", 20, 0), ("append", "")),
        ({}, ("missing", "51", 51, 0), ("none", "behind all that was copied")),
        ({"stopped": True}, ("missing", "51", 51, 0), ("append", "")),
        ({"checked_after": {"": 15}}, ("missing", "20", 20, 0), ("none", "among the newest 131,072 copies")),
        ({"checked_after": {"": 15}}, ("missing", "14", 14, 0), ("append", "")),
        ({"checked_after": {"": 15}, "stopped": True}, ("missing", "20", 20, 0), ("append", "")),
        ({}, ("missing", "9", 9, 0), ("none", "older than all that the right side holds")),
        ({"forgets": False}, ("missing", "9", 9, 0), ("append", "")),
        ({"by": "provenance", "held": {"S": (10, 50)}}, ("missing", "S 20", 3, 0), ("append", "")),
        ({"by": "provenance", "held": {"S": (10, 50)}}, ("missing", "T 20", 3, 0), ("none", "behind")),
        ({"by": "id", "held": {}}, ("missing", "x", 3, 0), ("append", "")),
        ({"keeps": 1}, ("missing", "20", 20, 0), ("none", "the stream keeps 1 of each subject")),
        ({"by": "sequence"}, ("missing", "20", 20, 0), ("none", "a stream takes no message in its middle")),
        ({"by": "sequence"}, ("missing", "101", 101, 0), ("none", "behind all that was copied")),
        ({"by": "sequence"}, ("extra", "20", 0, 20), ("delete", "")),
        ({}, ("payload", "20", 20, 7), ("replace", "")),
        ({"deletes": False}, ("payload", "20", 20, 7), ("none", "needs a deletion")),
        ({"denied": "sealed"}, ("payload", "20", 20, 7), ("none", "sealed")),
        ({"by": "subject", "deletes": False}, ("payload", "a", 20, 7), ("put", "")),
        ({"by": "subject"}, ("missing", "a", 20, 0), ("put", "")),
        ({}, ("duplicated", "20", 0, 7), ("delete", "")),
        ({}, ("duplicated", "20", 7, 0), ("none", "twice on the left")),
        ({}, ("order", "20", 7, 8), ("none", "a stream does not change its order")),
        ({}, ("unidentified", "", 0, 8), ("none", "nothing identifies it")),
    ],
)
def test_what_a_finding_asks_for(
    changes: dict[str, Any], finding: tuple[str, str, int, int], expected: tuple[str, str]
) -> None:
    action, reason = replace(RULES, **changes).decide(*finding)
    assert (action, reason[: len(expected[1])]) == expected
