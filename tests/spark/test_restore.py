"""All streams of a server, captured and restored on another one, by the commands as they are."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import nats
import nats.js.errors
import pytest
import yaml

from nats_bridge.cli import main
from nats_transforms.timestamp import rfc3339_nano
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Servers
from tests.live.stored_messages import stored_messages
from tests.live.until import until
from tests.spark.engines import Spark
from tests.spark.histories import block


class Commands:
    """Runs commands in this process, with its session, or without."""

    def __init__(self, capfd: pytest.CaptureFixture[str], session: Spark) -> None:
        self._capfd = capfd
        self._engine = ("--engine", "local" if session is None else "spark")

    async def run(self, *arguments: str, code: int = 0) -> str:
        """What it printed on stdout, or on stderr where it is to fail."""
        self._capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            await asyncio.to_thread(main, [*arguments, *(self._engine if "capture" in arguments else ())])
        printed = self._capfd.readouterr()
        assert ended.value.code == code, printed.err
        return printed.err if code else printed.out


async def held(peer: RawPeer, stream: str) -> list[tuple[int, bytes, bytes, bytes]]:
    """What the stream holds."""
    state = (await peer.api(f"STREAM.INFO.{stream}"))["state"]
    found = await stored_messages(peer, stream, state["messages"])
    return [(one.sequence, one.subject, one.header_block, one.payload) for one in found]


async def config_of(peer: RawPeer, stream: str) -> dict[str, Any]:
    config: dict[str, Any] = (await peer.api(f"STREAM.INFO.{stream}"))["config"]
    config["metadata"] = {
        name: value
        for name, value in config.get("metadata", {}).items()
        if not name.startswith(("_nats.", "nats-bridge"))
    }
    return config


async def filled(peer: RawPeer) -> None:
    """Streams as people have them: with gaps, ids, a bucket, a work queue, and a consumer that is half through."""
    await peer.create_stream(
        name="ORDERS", subjects=["orders.>"], max_msgs=95, deny_delete=True, republish={"src": ">", "dest": "seen.>"}
    )
    for number in range(1, 101):
        lines = block(b"Nats-Msg-Id: %d" % number, b"Nats-Expected-Stream: ORDERS") if number % 10 == 0 else b""
        await peer.store(f"orders.{'eu' if number % 4 else 'us'}.{number}".encode(), b"%d" % number, lines)
    work = {"durable_name": "work", "ack_policy": "all"}
    await peer.api("CONSUMER.DURABLE.CREATE.ORDERS.work", {"stream_name": "ORDERS", "config": work})
    inbox = peer.client.new_inbox()
    arrived = await peer.collect(inbox)
    peer.publish(b"$JS.API.CONSUMER.MSG.NEXT.ORDERS.work", b"40", b"", inbox.encode())
    await peer.request_raw((await arrived.count(40))[39][1], b"+ACK")
    await peer.create_stream(
        name="KV_prices",
        subjects=["$KV.prices.>"],
        max_msgs_per_subject=1,
        allow_rollup_hdrs=True,
        deny_delete=True,
        discard="new",
        allow_direct=True,
    )
    for number in range(40):
        await peer.store(f"$KV.prices.{number % 7}".encode(), b"%d" % number)
    await peer.store(b"$KV.prices.3", b"", block(b"KV-Operation: PURGE", b"Nats-Rollup: sub"))
    await peer.create_stream(name="JOBS", subjects=["jobs"], retention="workqueue")
    await peer.store(b"jobs", b"one")
    await peer.create_stream(name="EMPTY", subjects=["empty"])
    await peer.create_stream(name="COPY", mirror={"name": "ORDERS"})
    await reaches(peer, "COPY", 100)


async def reaches(peer: RawPeer, stream: str, last: int) -> None:
    """Wait until the stream has this sequence."""

    async def has() -> bool:
        return bool((await peer.api(f"STREAM.INFO.{stream}"))["state"]["last_seq"] == last)

    await until(has)


@pytest.fixture
def commands(capfd: pytest.CaptureFixture[str], session: Spark) -> Commands:
    return Commands(capfd, session)


@pytest.fixture
async def both(native_server: Servers, raw_peer: OpenPeer, commands: Commands, tmp_path: Path) -> Any:
    """Two servers: `(server, peer)` each; the commands, and the directory of the capture."""
    first, second = native_server("2.15.3"), native_server("2.15.3")
    first.start()
    second.start()
    peer = await raw_peer(first.url)
    await filled(peer)
    return (first, peer), (second, await raw_peer(second.url)), commands, tmp_path / "backup"


async def test_the_printed_permissions_are_enough(
    native_server: Servers, raw_peer: OpenPeer, commands: Commands, tmp_path: Path
) -> None:
    """Of two accounts, one is captured, and the other one gets everything."""
    backup, accounts = str(tmp_path / "backup"), []
    for name, command in (("from", ("capture", "--all")), ("to", ("restore",))):
        printed = await commands.run("--permissions", *command, backup, "--server", "nats://127.0.0.1:4222")
        allowed = printed.partition("permissions:")[2]
        users = f"{{ user: all-{name}, password: all }}, {{ user: {name}, password: few, permissions: {allowed} }}"
        accounts.append(f"{name} {{ jetstream: enabled, users: [ {users} ] }}")
    async with native_server("2.15.3", config="accounts {\n" + "\n".join(accounts) + "\n}\n") as server:

        def few(user: str) -> tuple[str, str]:
            login = {"servers": [server.url], "user": user, "password_file": str(password)}
            rules = [{"name": "watch", "kind": "watch"}]
            config = tmp_path / f"{user}.yaml"
            config.write_text(yaml.safe_dump({"connections": {"default": login}, "rules": rules}), "utf-8")
            return "-c", str(config)

        password = tmp_path / "password"
        password.write_text("few", "utf-8")
        peer, other = [await raw_peer(server.url.replace("//", f"//all-{name}:all@")) for name in ("from", "to")]
        await filled(peer)
        await commands.run("capture", "--all", backup, *few("from"))
        await commands.run("restore", backup, *few("to"))
        for stream in ("ORDERS", "KV_prices", "JOBS", "EMPTY"):
            assert await config_of(other, stream) == await config_of(peer, stream)
        assert await held(other, "KV_prices") == await held(peer, "KV_prices")
        assert (await other.api("CONSUMER.INFO.ORDERS.work"))["config"]["opt_start_seq"] == 46


async def test_everything_there_and_back(both: Any) -> None:
    """In one test, as each capture of a stream is a job of Spark's."""
    (first, peer), (second, other), commands, backup = both
    here, there = ("--server", first.url), ("--server", second.url)
    said = json.loads(await commands.run("capture", "--all", str(backup), "--json", *here))
    assert [each["stream"] for each in said["streams"]] == ["COPY", "EMPTY", "KV_prices", "ORDERS"]
    assert (said["configured"], said["failed"]) == ([{"stream": "JOBS", "messages_not_captured": 1}], [])

    # Up to a sequence, held: nothing is open yet.
    of_orders = ("restore", str(backup), "--stream", "ORDERS")
    printed = await commands.run(*of_orders, "--to", "50", "--hold", *there)
    assert printed.startswith("ORDERS: 45 messages (6 to 50) restored")
    assert await other.request_raw(b"orders.eu.1", b"too early") is None
    assert (await other.api("CONSUMER.INFO.ORDERS.work"))["error"]["err_code"] == 10014
    # Later with a newer capture, of everything.
    for number in (101, 102):
        await peer.store(f"orders.us.{number}".encode(), b"%d" % number)
    await reaches(peer, "COPY", 102)
    printed = await commands.run("capture", "--all", str(backup), *here)
    assert f"{backup}/JOBS: no message captured of 1, only the configuration" in printed
    said = json.loads(await commands.run("restore", str(backup), "--json", *there))["streams"]
    assert {each["stream"]: (each["state"], each["messages"]) for each in said} == {
        "COPY": ("restored", 97),
        "EMPTY": ("restored", 0),
        "JOBS": ("restored", 0),
        "KV_prices": ("restored", 7),
        "ORDERS": ("restored", 52),
    }
    for stream in ("ORDERS", "COPY", "KV_prices"):
        kept = (await peer.api(f"STREAM.INFO.{stream}"))["state"]["first_seq"]
        wanted = [
            (sequence, subject, lines.replace(b"Nats-Expected-Stream: ORDERS\r\n", b""), payload)
            for sequence, subject, lines, payload in await held(peer, stream)
        ]
        found = [each for each in await held(other, stream) if each[0] >= kept]
        assert found == wanted, stream
        last = [(await one.api(f"STREAM.INFO.{stream}"))["state"]["last_seq"] for one in (peer, other)]
        assert last[0] == last[1]
    for stream in ("ORDERS", "KV_prices", "JOBS", "EMPTY"):
        assert await config_of(other, stream) == await config_of(peer, stream)
    assert "mirror" not in await config_of(other, "COPY")
    # Open: the next message has the next sequence, and consumers are there.
    assert (await other.store(b"orders.eu.1", b"the next"))["seq"] == 103
    assert (await other.api("CONSUMER.INFO.ORDERS.work"))["config"]["opt_start_seq"] == 46
    printed = await commands.run("restore", str(backup), *there)
    assert "ORDERS: restored by an earlier run, up to 102" in printed

    printed = await commands.run(*of_orders, "--as", "OLD", *there, code=2)
    assert "is stored by stream 'ORDERS' already" in printed
    assert "--transform SRC DEST" in printed

    # Under another name, other subjects, and up to a time.
    moment = (await stored_messages(peer, "ORDERS", 60))[-1].time_ns
    transform = ("--as", "OLD", "--transform", "orders.eu.*", "old.{{wildcard(1)}}")
    said = json.loads(await commands.run(*of_orders, *transform, "--to", rfc3339_nano(moment), "--json", *there))
    (summary,) = said["streams"]
    expected = [
        (sequence, b"old." + subject.split(b".")[2], payload)
        for sequence, subject, _, payload in await held(peer, "ORDERS")
        if sequence < summary["last"] + 1 and subject.startswith(b"orders.eu.")
    ]
    # The capture holds more than the stream does now.
    copied = [(sequence, subject, payload) for sequence, subject, _, payload in await held(other, "OLD")]
    assert copied[-len(expected) :] == expected
    assert (await config_of(other, "OLD"))["subjects"] == ["old.*"]
    assert summary["left_out"] == ["consumer work"]
    printed = await commands.run(*of_orders, *transform, *there, code=2)
    assert f"stream 'OLD': was restored up to sequence {summary['last']} and opened, and 102 is wanted" in printed


@pytest.mark.parametrize("version", ["2.10.27", "2.15.3"])
async def test_an_object_store_comes_back_without_chunks_of_replaced_objects(
    version: str, native_server: Servers, raw_peer: OpenPeer, commands: Commands, tmp_path: Path
) -> None:
    backup = str(tmp_path / "backup")
    async with native_server(version) as server, native_server(version) as target:
        here, there = ("--server", server.url), ("--server", target.url)
        peer, other = await raw_peer(server.url), await raw_peer(target.url)
        client, theirs = await nats.connect(server.url), await nats.connect(target.url)
        store = await client.jetstream().create_object_store("files")
        for name, size in (("replaced", 500_000), ("deleted", 300_000), ("kept", 200_000)):
            await store.put(name, name.encode()[:1] * size)
        await peer.store(b"$O.files.C.slow", b"of an object that is not described yet")
        await commands.run("capture", "--all", backup, *here)
        await commands.run("restore", backup, "--hold", *there)

        await store.put("replaced", b"new" * 100_000)
        await store.delete("deleted")
        described = (await store.get_info("kept")).as_dict() | {"name": "slow", "nuid": "slow", "chunks": 1}
        await peer.store(b"$O.files.M.c2xvdw==", json.dumps(described).encode(), block(b"Nats-Rollup: sub"))
        live = await held(peer, "OBJ_files")
        await peer.store(b"$O.files.C.never", b"of an object that was never described")
        await commands.run("capture", "--all", backup, *here)
        printed = await commands.run("restore", backup, *there)
        assert "chunks of replaced or deleted objects removed again" in printed

        assert await held(other, "OBJ_files") == live
        restored = await theirs.jetstream().object_store("files")
        assert (await restored.get("replaced")).data == b"new" * 100_000
        assert (await restored.get("kept")).data == b"k" * 200_000
        with pytest.raises(nats.js.errors.ObjectNotFoundError):
            await restored.get("deleted")
        await client.close()
        await theirs.close()


@pytest.mark.parametrize("version", ["2.10.27", "2.15.3"])
async def test_a_work_queue_is_held_until_opened_with_its_newest_configuration(
    version: str, native_server: Servers, raw_peer: OpenPeer, commands: Commands, tmp_path: Path
) -> None:
    backup = str(tmp_path / "backup")
    async with native_server(version) as server, native_server(version) as target:
        here, there = ("--server", server.url), ("--server", target.url)
        peer, other = await raw_peer(server.url), await raw_peer(target.url)
        jobs = {"name": "JOBS", "subjects": ["jobs.>"], "retention": "workqueue", "max_msgs": 7, "deny_purge": True}
        await peer.create_stream(**jobs)
        work = {"durable_name": "work", "ack_policy": "explicit"}
        await peer.api("CONSUMER.DURABLE.CREATE.JOBS.work", {"stream_name": "JOBS", "config": work})
        await peer.store(b"jobs.1", b"not captured")
        for _ in range(2):  # the second run finds it closed
            await commands.run("capture", "--all", backup, *here)
            printed = await commands.run("restore", backup, "--hold", *there)
            assert printed.startswith("JOBS: 0 messages restored; held: run it again without --hold to open it")
            assert await other.request_raw(b"jobs.1", b"too early") is None
            assert (await other.api("CONSUMER.INFO.JOBS.work"))["error"]["err_code"] == 10014

        await peer.api("STREAM.UPDATE.JOBS", {**jobs, "subjects": ["jobs.>", "tasks.>"]})
        await commands.run("capture", "--all", backup, *here)
        printed = await commands.run("restore", backup, *there)
        assert printed.startswith("JOBS: 0 messages restored; consumers: work")
        assert await config_of(other, "JOBS") == await config_of(peer, "JOBS")
        assert (await other.store(b"tasks.1", b"the first"))["seq"] == 1


async def test_existing_streams_are_left_as_they_are(
    native_server: Servers, raw_peer: OpenPeer, commands: Commands, tmp_path: Path
) -> None:
    backup = str(tmp_path / "backup")
    async with native_server("2.15.3") as server:
        here = ("--server", server.url)
        peer = await raw_peer(server.url)
        for name in ("ALPHA", "BETA"):
            await peer.create_stream(name=name, subjects=[f"{name}.>"])
            await peer.store(f"{name}.x".encode(), name.encode())
        await commands.run("capture", "--all", backup, *here)
        before = await held(peer, "ALPHA")
        await peer.api("STREAM.DELETE.ALPHA")
        await peer.store(b"BETA.x", b"not in the backup")

        printed = await commands.run("restore", backup, "--stream", "ALPHA", "--stream", "BETA", *here, code=2)
        assert "stream 'BETA': exists, with 2 messages: restore it under another name with --as NAME" in printed
        assert (await peer.api("STREAM.INFO.ALPHA"))["error"]["err_code"] == 10059, "nothing is half done"
        printed = await commands.run("restore", backup, *here)
        assert printed.startswith("ALPHA: 1 message (1 to 1) restored")
        assert "BETA: exists, and stays as it is\n" in printed
        assert await held(peer, "ALPHA") == before
        assert [payload for *_, payload in await held(peer, "BETA")] == [b"BETA", b"not in the backup"]
        # ALPHA counts as restored by an earlier run.
        said = json.loads(await commands.run("restore", backup, "--json", *here))["streams"]
        assert [(each["stream"], each["state"]) for each in said] == [("ALPHA", "there"), ("BETA", "exists")]
        await peer.api("STREAM.DELETE.ALPHA")
        await peer.create_stream(name="ALPHA", subjects=["ALPHA.>"])
        assert "exists, with 0 messages" in await commands.run("restore", backup, *here, code=2)
