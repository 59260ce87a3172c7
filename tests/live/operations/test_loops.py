"""Loops on real servers: refused before anything starts, and reported by `check`; finite paths are allowed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from nats_bridge.client import account_identity as same_account
from nats_bridge.client.connection_pool import connected, connections_of
from nats_bridge.errors import RuleRefusedError
from nats_bridge.rule_kinds import kind_of
from nats_bridge.rules.context import RuleContext
from nats_bridge.rules.loops.account_graph import AccountGraph, Outlook
from nats_bridge.settings import Settings
from nats_conformance.native_servers import NativeCluster, fetch, free_port
from nats_conformance.native_servers.native_server import HOST
from nats_transforms.tested_versions import LIVE_VERSIONS
from tests.live.commands import command_here
from tests.live.cut_wire import CutWire, cut_wire
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, Servers, SharedServers
from tests.live.sidecar_process import SidecarProcess, document
from tests.live.sidecars import running, settings_for
from tests.live.until import LIMIT, until


def republish(name: str, stream: str, src: str, dest: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "kind": "republish", "stream": stream, "republish": {"src": src, "dest": dest}, **more}


@asynccontextmanager
async def graph(settings: Settings) -> AsyncIterator[AccountGraph]:
    async with connected(settings, connections_of(settings)) as opened:
        yield AccountGraph(settings, opened)


async def look(settings: Settings) -> Outlook:
    async with graph(settings) as accounts:
        return await accounts.look()


async def checked(directory: Path, written: dict[str, Any], *more: str) -> tuple[int, str, str]:
    """`nats-bridge check --server config`: exit code, standard output, standard error."""
    config = directory / "checked.yaml"
    config.write_text(json.dumps(written), "utf-8")
    ran = await command_here("check", "-c", str(config), "--server", "config", *more)
    return ran.code, ran.out, ran.err


async def test_the_two_streams_that_adr_28_warns_of(
    servers: SharedServers, twin_version: str, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    """One republishes natively into the other's subjects, and the other's rule back."""
    url = await servers.url(twin_version)
    peer = await raw_peer(url)
    a, b = unique_name("a"), unique_name("b")
    await peer.create_stream(name=a, subjects=[f"{a}.>"], republish={"src": f"{a}.>", "dest": f"{b}.>"})
    await peer.create_stream(name=b, subjects=[f"{b}.>"])
    back = republish("back", b, f"{b}.>", f"{a}.>")
    fine = republish("fine", b, f"{b}.>", f"elsewhere.{b}.>")
    reported = (
        f"rule 'back': loop: stream {b} → rule 'back' republishes {b}.> to {a}.> → stream {a} →"
        f" native republish {a}.> to {b}.> → stream {b}: choose a destination outside"
    )
    code, out, err = await checked(tmp_path, document(url, back, fine))
    assert code == 1
    assert f"no  {reported}" in err.splitlines()
    assert "ok  fine: streams found, no conflicts" in out.splitlines()
    code, out, _ = await checked(tmp_path, document(url, back, fine), "--json")
    answer = json.loads(out)
    assert (code, answer["ok"]) == (1, False)
    findings = [finding for finding in answer["findings"] if finding["rule"]]
    assert findings[0] == {"rule": "back", "ok": False, "code": "loop", "text": reported}
    assert (findings[1]["rule"], findings[1]["code"]) == ("fine", "good")

    config = tmp_path / "sidecar.yaml"
    config.write_text(json.dumps(document(url, fine, back, fail_fast=True)), "utf-8")
    process = await SidecarProcess.start(config)
    assert await process.ended() == 2
    assert (await process.said("sidecar.refused"))["reason"] == reported
    assert not any("sidecar.ready" in line for line in process.log)
    for stream in (a, b):
        assert not (await peer.api(f"CONSUMER.LIST.{stream}"))["total"], "the rule that is fine was not started either"


async def test_a_sources_rule_whose_copies_the_source_takes(
    servers: SharedServers, newest_version: str, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(newest_version)
    peer = await raw_peer(url)
    source, target = unique_name("source"), unique_name("target")
    await peer.create_stream(name=source, subjects=[f"{source}.>"])
    await peer.create_stream(name=target, subjects=[f"{target}.>"])

    def copying(dest: str) -> dict[str, Any]:
        entry = {"name": source, "subject_transforms": [{"src": f"{source}.>", "dest": dest}]}
        return {"name": "copy", "kind": "sources", "stream": target, "sources": [entry]}

    outlook = await look(settings_for(url, copying(f"{source}.copy.>")))
    loop = outlook.of("copy")
    assert loop is not None
    assert loop.path == f"stream {source} → rule 'copy' copies {source}.> to {source}.copy.> → stream {source}"
    assert (await look(settings_for(url, copying(f"{target}.>")))).of("copy") is None


async def test_three_streams_of_which_one_sources_natively(
    servers: SharedServers, twin_version: str, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(twin_version)
    peer = await raw_peer(url)
    a, b, c = unique_name("a"), unique_name("b"), unique_name("c")
    await peer.create_stream(name=a, subjects=[f"{a}.>"])
    await peer.create_stream(name=b, sources=[{"name": a}])
    await peer.create_stream(name=c, subjects=[f"{c}.>"])
    there, back = republish("there", b, ">", f"{c}.>"), republish("back", c, f"{c}.>", f"{a}.>")
    outlook = await look(settings_for(url, there, back))
    loop = outlook.of("back")
    assert loop is not None
    assert loop.path == (
        f"stream {c} → rule 'back' republishes {c}.> to {a}.> → stream {a} → native source > → stream {b} →"
        f" rule 'there' republishes > to {c}.> → stream {c}"
    )
    assert outlook.of("there") is not None
    assert (await look(settings_for(url, there))).of("there") is None


async def test_what_comes_to_an_end_runs(
    servers: SharedServers, newest_version: str, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """Raw orders go through a second stream and come back, to the first stream and not to its rule."""
    url = await servers.url(newest_version)
    peer = await raw_peer(url)
    orders, work = unique_name("orders"), unique_name("work")
    await peer.create_stream(name=orders, subjects=[f"{orders}.>"])
    await peer.create_stream(name=work, subjects=[f"{work}.>"])
    there = republish("there", orders, f"{orders}.raw.*", f"{work}.$1")
    back = republish("back", work, f"{work}.*", f"{orders}.done.$1")
    done = await peer.collect(f"{orders}.done.*")
    async with running(settings_for(url, there, back)) as sidecar:
        await peer.store(f"{orders}.raw.1".encode())
        await peer.store(f"{orders}.raw.2".encode())
        await done.count(2)
        await until(lambda: all(run.counters.as_dict()["republished"] == 2 for run in sidecar.runs))
    messages = (await peer.api(f"STREAM.INFO.{orders}"))["state"]["messages"]
    assert messages == 4


async def test_a_loop_that_appears_with_a_stream(servers: SharedServers, unique_name: Name, raw_peer: OpenPeer) -> None:
    url = await servers.url("2.15.3")
    peer = await raw_peer(url)
    a, b = unique_name("a"), unique_name("b")
    await peer.create_stream(name=a, subjects=[f"{a}.>"])
    there, back = republish("there", a, f"{a}.>", f"{b}.>"), republish("back", b, f"{b}.>", f"{a}.>")
    async with running(settings_for(url, there, back)) as sidecar:
        assert [supervisor.state for supervisor in sidecar.supervisors] == ["ready", "waiting"]
        await peer.create_stream(name=b, subjects=[f"{b}.>"])
        ours, late = sidecar.supervisors
        await until(lambda: late.state == "failed")
        assert ours.state == "ready"
        assert str(late.error) == (
            f"rule 'back': loop: stream {b} → rule 'back' republishes {b}.> to {a}.> → stream {a} →"
            f" rule 'there' republishes {a}.> to {b}.> → stream {b}: choose a destination outside"
        )
        assert not (await peer.api(f"CONSUMER.LIST.{b}"))["total"]


# -- accounts ----------------------------------------------------------------------------------------------------------

ACCOUNTS = """
accounts {
  ONE: {jetstream: enabled, users: [{user: one, password: secret}, {user: again, password: secret}]}
  TWO: {jetstream: enabled, users: [{user: two, password: secret}]}
  PLAIN: {users: [{user: plain, password: secret}]}
}
"""


def connections(directory: Path, url: str, **users: str) -> dict[str, Any]:
    """Connections of these names with these users."""
    password = directory / "password"
    password.write_text("secret")
    return {name: {"servers": [url], "user": user, "password_file": str(password)} for name, user in users.items()}


def ring(one: str, other: str) -> list[dict[str, Any]]:
    """Two rules without any stream: the second receives on one connection what the first publishes on the other."""
    kind = {"kind": "advisories"}
    there = kind | {"name": "there", "republish": {"src": "x.>", "dest": "y.>"}, "from": one, "to": one}
    back = kind | {"name": "back", "republish": {"src": "y.>", "dest": "x.>"}, "from": other, "to": other}
    return [there, back]


async def test_connections_are_distinguished_by_what_they_receive(
    native_server: Servers, twin_version: str, tmp_path: Path
) -> None:
    async with native_server(twin_version, config=ACCOUNTS) as server:
        named = connections(tmp_path, server.url, one="one", again="again", two="two", plain="plain")
        for other, rules in (("again", ["there", "back"]), ("two", []), ("plain", [])):
            outlook = await look(settings_for("", *ring("one", other), connections=named))
            assert [loop.rule for loop in outlook.loops] == rules
            assert outlook.unseen == ()


async def test_connections_to_different_servers_of_one_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(same_account, "_FORWARDING", LIMIT)  # the answer comes as soon as a message does
    async with NativeCluster(binary=fetch(LIVE_VERSIONS[-1])) as cluster:
        named = {name: {"servers": [node.url]} for name, node in zip("abc", cluster.nodes, strict=True)}
        outlook = await look(settings_for("", *ring("a", "c"), connections=named))
    assert [loop.rule for loop in outlook.loops] == ["there", "back"]


@asynccontextmanager
async def two_accounts(
    native_server: Servers, version: str, raw_peer: OpenPeer
) -> AsyncIterator[tuple[Settings, CutWire]]:
    """Rules that loop once a leafnode links the two servers, which it does when the wire lets it through."""
    port = free_port()
    hub = native_server(version, config=f'leafnodes {{listen: "{HOST}:{port}"}}\njetstream {{domain: hub}}').start()
    async with cut_wire(f"nats-leaf://{HOST}:{port}") as wire:
        wire.hold_back()
        remote = f'leafnodes {{remotes: [{{url: "{wire.url}"}}], reconnect: 1}}\njetstream {{domain: leaf}}'
        leaf = native_server(version, config=remote).start()
        await (await raw_peer(hub.url)).create_stream(name="A", subjects=["a.>"])
        await (await raw_peer(leaf.url)).create_stream(name="B", subjects=["b.>"])
        there = republish("there", "A", "a.>", "b.>", **{"from": "hub", "to": "hub"})
        back = republish("back", "B", "b.>", "a.>", **{"from": "leaf", "to": "leaf"})
        named = {"hub": {"servers": [hub.url]}, "leaf": {"servers": [leaf.url]}}
        yield settings_for("", there, back, connections=named), wire


async def test_accounts_that_are_linked_after_the_first_answer(
    native_server: Servers, newest_version: str, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rules start, and fail with the loop once a message gets through."""
    monkeypatch.setattr(same_account, "ANSWER", LIMIT)
    async with two_accounts(native_server, newest_version, raw_peer) as (settings, wire), running(settings) as sidecar:
        assert [supervisor.state for supervisor in sidecar.supervisors] == ["ready", "ready"]
        wire.let_through()
        await until(lambda: all(supervisor.state == "failed" for supervisor in sidecar.supervisors))
        assert not sidecar.finished.is_set()
        assert str(sidecar.supervisors[0].error) == (
            "rule 'there': loop: stream A → rule 'there' republishes a.> to b.> → stream B → rule 'back' republishes"
            " b.> to a.> → stream A: choose a destination outside"
        )


async def test_a_sidecar_stops_while_it_still_listens_for_late_answers(
    native_server: Servers, newest_version: str, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(same_account, "ANSWER", 1000 * LIMIT)
    async with two_accounts(native_server, newest_version, raw_peer) as (settings, _):
        async with running(settings) as sidecar:
            assert [supervisor.state for supervisor in sidecar.supervisors] == ["ready", "ready"]
        assert sidecar.error is None


async def test_two_connections_to_one_account_and_a_loop_through_both(
    native_server: Servers, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    async with native_server("2.15.3", config=ACCOUNTS) as server:
        peer = await raw_peer(server.url.replace("//", "//one:secret@"))
        await peer.create_stream(name="A", subjects=["a.>"])
        named = connections(tmp_path, server.url, one="one", again="again", two="two")
        rule = republish("r", "A", "a.>", "a.again.>", **{"from": "one"})
        code, _, err = await checked(tmp_path, document("", rule | {"to": "again"}, connections=named))
        assert code == 1
        assert "stream A → rule 'r' republishes a.> to a.again.> → stream A: choose" in err
        code, out, err = await checked(tmp_path, document("", rule | {"to": "two"}, connections=named))
        assert (code, err) == (0, "")
        assert out == "ok  r: streams found, no conflicts\n"


async def test_a_loop_of_the_server_alone_is_reported(
    native_server: Servers, newest_version: str, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    async with native_server(newest_version) as server:
        peer = await raw_peer(server.url)
        await peer.create_stream(name="A", subjects=["a.>"], republish={"src": "a.>", "dest": "b.>"})
        await peer.create_stream(name="B", subjects=["b.>"], republish={"src": "b.>", "dest": "a.>"})
        code, out, err = await checked(tmp_path, document(server.url, republish("r", "A", "a.>", "c.>")))
        assert (code, err) == (0, "")
        assert out.splitlines() == [
            "but native loop, which no rule takes part in: stream A → native republish a.> to b.> → stream B →"
            " native republish b.> to a.> → stream A",
            "ok  r: streams found, no conflicts",
        ]


async def test_a_user_who_may_not_list_streams(
    native_server: Servers, twin_version: str, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    """The rules' own streams are checked all the same."""
    users = """authorization: {users: [
      {user: all, password: secret}
      {user: few, password: secret, permissions: {publish: {deny: "$JS.API.STREAM.LIST"}, subscribe: ">"}}
    ]}"""
    async with native_server(twin_version, config=users) as server:
        peer = await raw_peer(server.url.replace("//", "//all:secret@"))
        for name in "ab":
            await peer.create_stream(name=name.upper(), subjects=[f"{name}.>"])
        named = connections(tmp_path, server.url, default="few")
        there, back = republish("there", "A", "a.>", "b.>"), republish("back", "B", "b.>", "a.>")
        code, out, err = await checked(tmp_path, document("", there, connections=named))
        assert code == 0, err
        assert out.splitlines() == [
            "but connection 'default': the user may not publish to $JS.API.STREAM.LIST: allow it in the user's"
            " permissions; loops through streams that no rule names are not found",
            "ok  there: streams found, no conflicts",
        ]
        async with running(settings_for("", there, connections=named)) as sidecar:
            assert [supervisor.state for supervisor in sidecar.supervisors] == ["ready"]
        code, _, err = await checked(tmp_path, document("", there, back, connections=named))
        assert code == 1
        assert err.count(": loop: stream ") == 2


async def test_a_target_user_who_may_not_read_the_stream(
    native_server: Servers, newest_version: str, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    """Not being allowed to look is no answer: what one connection publishes, the other receives."""
    users = """authorization: {users: [
      {user: all, password: secret}
      {user: few, password: secret, permissions: {publish: {deny: "$JS.API.STREAM.>"}, subscribe: ">"}}
    ]}"""
    async with native_server(newest_version, config=users) as server:
        await (await raw_peer(server.url.replace("//", "//all:secret@"))).create_stream(name="A", subjects=["a.>"])
        named = connections(tmp_path, server.url, default="all", few="few")
        settings = settings_for("", republish("itself", "A", "a.>", "a.again.>") | {"to": "few"}, connections=named)
        context = RuleContext(settings.name, "native", lambda run: None)
        (rule,) = settings.rules
        async with connected(settings, connections_of(settings)) as opened:
            with pytest.raises(RuleRefusedError, match="forms a cycle with the stream's subjects a"):
                await kind_of(rule).run(rule, settings, opened, context).check()


async def test_users_who_may_not_reach_each_other_s_inboxes(native_server: Servers, tmp_path: Path) -> None:
    few = 'permissions: {publish: "$JS.API.>", subscribe: ">"}'
    users = (
        f"authorization: {{users: [{{user: one, password: secret, {few}}}, {{user: two, password: secret, {few}}}]}}"
    )
    async with native_server("2.15.3", config=users) as server:
        named = connections(tmp_path, server.url, one="one", two="two")
        outlook = await look(settings_for("", *ring("one", "two"), connections=named))
    assert outlook.loops == ()
    assert outlook.unseen == (
        "connections 'one' and 'two': neither user may publish to the other's inbox, so it is not known whether they"
        " reach the same account; loops through both are not found",
    )


@pytest.mark.parametrize("streams", [600])
async def test_more_streams_than_one_answer_holds(
    streams: int, native_server: Servers, newest_version: str, raw_peer: OpenPeer
) -> None:
    async with native_server(newest_version) as server:
        peer = await raw_peer(server.url)
        for number in range(streams):
            await peer.create_stream(name=f"S{number:03}", subjects=[f"s{number:03}.>"], storage="memory")
        first, last = "000", f"{streams - 1:03}"
        there = republish("there", f"S{first}", f"s{first}.>", f"s{last}.>")
        back = republish("back", f"S{last}", f"s{last}.>", f"s{first}.>")
        async with graph(settings_for(server.url, there, back)) as accounts:
            assert [loop.rule for loop in (await accounts.look()).loops] == ["there", "back"]
            await peer.api(f"STREAM.DELETE.S{last}")
            assert (await accounts.look()).loops == ()
