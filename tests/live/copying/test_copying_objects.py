"""Object stores copied with kind `sources`: what works with the client that people use, and what does not.

What is claimed here is what docs/buckets.md says.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Any

import pytest
from nats.aio.client import Client
from nats.js.errors import ObjectNotFoundError
from nats.js.object_store import ObjectStore

from nats_bridge.settings import Settings
from nats_conformance.native_servers import NativeServer
from tests.live.shared_servers import Servers
from tests.live.sidecars import running, settings_for
from tests.live.tiers import with_all
from tests.live.until import LIMIT, until

Connect = Callable[..., Any]
VERSIONS = [*with_all("2.10.27"), "2.15.3"]
"""On 2.9.10 the meta data's roll-up makes consumers skip chunks: kd/messages/skipped."""
LARGE = bytes(range(256)) * 2000  # four chunks


def copying(server: NativeServer, **more: Any) -> Settings:
    entry = {"name": "OBJ_A", "subject_transforms": [{"src": "$O.A.>", "dest": "$O.B.>"}], **more}
    return settings_for(server.url, {"name": "objects", "kind": "sources", "stream": "OBJ_B", "sources": [entry]})


async def stores(client: Client) -> tuple[ObjectStore, ObjectStore]:
    stream = client.jetstream(timeout=LIMIT)
    return await stream.create_object_store("A"), await stream.create_object_store("B")


async def same(a: ObjectStore, b: ObjectStore, *names: str) -> None:
    """Wait until the copy of each object's meta data is there, which comes behind its chunks."""
    for name in names:
        theirs = await a.get_info(name, show_deleted=True)

        async def arrived(
            name: str = name, nuid: str | None = theirs.nuid, deleted: bool | None = theirs.deleted
        ) -> bool:
            try:
                info = await b.get_info(name, show_deleted=True)
            except ObjectNotFoundError:
                return False
            return (info.nuid, bool(info.deleted)) == (nuid, bool(deleted))

        await until(arrived)


async def chunks(client: Client, store: str) -> int:
    """How many chunks a store holds, of all objects."""
    request = json.dumps({"subjects_filter": f"$O.{store}.C.>"}).encode()
    info = json.loads((await client.request(f"$JS.API.STREAM.INFO.OBJ_{store}", request, timeout=LIMIT)).data)
    return sum((info["state"].get("subjects") or {}).values())


@pytest.mark.parametrize("version", VERSIONS)
async def test_objects_can_be_read_and_listed_in_the_copy(
    version: str, native_server: Servers, connect: Connect
) -> None:
    async with native_server(version) as server:
        client = await connect(server)
        a, b = await stores(client)
        await a.put("before.bin", LARGE)
        async with running(copying(server)):
            await a.put("after.bin", LARGE[::-1])
            await a.put("empty", b"")
            await a.put("a name/ü", b"x")
            await same(a, b, "before.bin", "after.bin", "empty", "a name/ü")
        for name, data in (("before.bin", LARGE), ("after.bin", LARGE[::-1]), ("empty", b""), ("a name/ü", b"x")):
            result = await b.get(name)
            assert result.data == data
            info = await a.get_info(name)
            assert (result.info.digest, result.info.size, result.info.nuid) == (info.digest, info.size, info.nuid)
            # What is said inside of the meta data is copied as it is.
            assert result.info.bucket == "A"
        assert [each.name for each in await b.list()] == [each.name for each in await a.list()]


@pytest.mark.parametrize("version", VERSIONS)
async def test_deleted_and_replaced_objects_leave_their_chunks_in_the_copy(
    version: str, native_server: Servers, connect: Connect
) -> None:
    async with native_server(version) as server:
        client = await connect(server)
        a, b = await stores(client)
        async with running(copying(server)):
            await a.put("deleted", LARGE)
            await a.put("replaced", LARGE)
            await same(a, b, "deleted", "replaced")
            await a.delete("deleted")
            await a.put("replaced", b"short")
            await same(a, b, "deleted", "replaced")
        assert (await b.get("replaced")).data == b"short"
        with pytest.raises(ObjectNotFoundError):
            await b.get("deleted")
        assert [each.name for each in await b.list(ignore_deletes=True)] == ["replaced"]
        # The client purges the chunks of the source's stream, which is no message and is not copied.
        assert (await chunks(client, "A"), await chunks(client, "B")) == (1, 9)


@pytest.mark.parametrize("rename", [False, True])
async def test_a_client_deletes_in_the_copy_if_the_metadata_names_it(
    rename: bool, native_server: Servers, connect: Connect
) -> None:
    async with native_server("2.15.3") as server:
        client = await connect(server)
        a, b = await stores(client)
        settings = copying(server, rename_objects=rename)
        async with running(settings) as sidecar:
            await a.put("a name/ü", LARGE)
            await same(a, b, "a name/ü")
            info = await b.get_info("a name/ü")
            assert info.bucket == ("B" if rename else "A")
            assert ("rename_objects: true" in str(sidecar.runs[0].remarks)) is not rename
            # As nats.go and the command line nats do: the marker goes to the bucket that the metadata names.
            subject = f"$O.{info.bucket}.M.{urlsafe_b64encode(info.name.encode()).decode()}"
            marker = info.as_dict() | {"deleted": True, "chunks": 0, "size": 0}
            stream = client.jetstream(timeout=LIMIT)
            await stream.publish(subject, json.dumps(marker).encode(), headers={"Nats-Rollup": "sub"})
        assert bool((await a.get_info("a name/ü", show_deleted=True)).deleted) is not rename
        if rename:
            assert (await b.get_info("a name/ü", show_deleted=True)).deleted
            assert (await a.get("a name/ü")).data == LARGE


async def test_a_watcher_of_the_copy_sees_objects_come_and_go(native_server: Servers, connect: Connect) -> None:
    async with native_server("2.15.3") as server:
        client = await connect(server)
        a, b = await stores(client)
        watcher: Any = await b.watch()
        assert await watcher.updates() is None
        async with running(copying(server)):
            await a.put("one", LARGE)
            reported = [await watcher.updates(timeout=LIMIT)]
            # A watcher gets meta data, which comes after the chunks: what it names can be read.
            assert (await b.get("one")).data == LARGE
            await a.delete("one")
            reported.append(await watcher.updates(timeout=LIMIT))
        assert [(info.name, bool(info.deleted), info.bucket) for info in reported] == [
            ("one", False, "A"),
            ("one", True, "A"),
        ]


async def test_links_point_where_they_pointed(native_server: Servers, connect: Connect) -> None:
    async with native_server("2.15.3") as server:
        client = await connect(server)
        a, b = await stores(client)
        await a.put("real", b"x")
        link = {
            "name": "link",
            "bucket": "A",
            "nuid": "n",
            "size": 0,
            "chunks": 0,
            "digest": "",
            "options": {"link": {"bucket": "A", "name": "real"}},
        }
        subject = f"$O.A.M.{urlsafe_b64encode(b'link').decode()}"
        async with running(copying(server)):
            stream = client.jetstream(timeout=LIMIT)
            await stream.publish(subject, json.dumps(link).encode(), headers={"Nats-Rollup": "sub"})
            await same(a, b, "link")
        assert (await b.get("link")).info.bucket == "A", "followed into the source's store"


async def test_a_restart_in_the_middle_of_an_object_leaves_it_whole(native_server: Servers, connect: Connect) -> None:
    async with native_server("2.15.3") as server:
        client = await connect(server)
        a, b = await stores(client)
        nuid = "NUID"
        stream = client.jetstream(timeout=LIMIT)
        for _ in range(2):
            async with running(copying(server)):
                await stream.publish(f"$O.A.C.{nuid}", LARGE[:100_000])
        await a.put("other", LARGE)
        async with running(copying(server)):
            await same(a, b, "other")
        assert (await b.get("other")).data == LARGE
        assert await chunks(client, "B") == await chunks(client, "A")


async def test_a_renamed_object_keeps_its_old_name_in_the_copy_as_well(
    native_server: Servers, connect: Connect
) -> None:
    async with native_server("2.15.3") as server:
        client = await connect(server)
        a, b = await stores(client)
        stream = client.jetstream(timeout=LIMIT)
        async with running(copying(server)):
            await a.put("old", LARGE)
            await same(a, b, "old")
            # As clients rename: the same chunks under another name, and the old name purged.
            info = (await a.get_info("old")).as_dict() | {"name": "new"}
            await stream.publish(f"$O.A.M.{urlsafe_b64encode(b'new').decode()}", json.dumps(info).encode())
            await stream.purge_stream("OBJ_A", subject=f"$O.A.M.{urlsafe_b64encode(b'old').decode()}")
            await same(a, b, "new")
        assert (await b.get("new")).data == LARGE
        assert [each.name for each in await a.list()] == ["new"]
        assert [each.name for each in await b.list()] == ["old", "new"]
