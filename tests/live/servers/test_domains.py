"""A sidecar that is connected to a hub, and rules on the streams of a leaf's JetStream domain."""

from __future__ import annotations

import tempfile
from typing import Any

import pytest
import structlog.testing

from nats_bridge.errors import RuleRefusedError
from nats_bridge.permissions.granting import as_text, grants_of
from nats_bridge.settings import Settings
from nats_conformance.native_servers.native_server import HOST, LEAF_LISTENER
from tests.live.copies import Copies
from tests.live.raw_messages import OpenPeer
from tests.live.servers.domains import Domains, Servers, linked_domains
from tests.live.sidecars import running, settings_for
from tests.live.until import until

MANY = 3000
"""Messages whose deliveries need flow control."""


@pytest.fixture
async def domains(twin_version: str, native_server: Servers, raw_peer: OpenPeer) -> Domains:
    return await linked_domains(twin_version, native_server, raw_peer)


@pytest.mark.parametrize("way", [{"domain": "leaf"}, {"api_prefix": "$JS.leaf.API"}], ids=["domain", "prefix"])
@pytest.mark.parametrize("delivery", ["at_most_once", "at_least_once"])
async def test_streams_of_a_leaf_are_republished_at_the_hub(
    domains: Domains, way: dict[str, str], delivery: str
) -> None:
    """The hub has a stream of the same name, which is not touched; the position survives a restart of the sidecar."""
    await domains.at_hub.create_stream(name="S", subjects=["h.>"])
    await domains.at_leaf.create_stream(name="S", subjects=["s.>"])
    seen = await domains.at_hub.collect("d.>")
    rule = {
        "name": "r",
        "stream": "S",
        "from": "leaf",
        "republish": {"src": "s.>", "dest": "d.>"},
        "start": "first",
        "delivery": delivery,
    }
    settings = domains.settings(rule, way=way)
    for number in range(MANY):
        domains.at_leaf.publish(b"s.%d" % (number % 9), b"x" * 1000)
    async with running(settings):
        await seen.count(MANY)
    await domains.at_leaf.store(b"s.a@b.c")
    async with running(settings) as sidecar:
        await seen.count(MANY + 1)
        assert sidecar.supervisors[0].counters()["republished"] == 1
    assert seen.messages[-1][0] == b"d.a@b.c"
    assert (await domains.at_hub.api("CONSUMER.LIST.S"))["total"] == 0
    assert (await domains.at_leaf.api("CONSUMER.LIST.S"))["total"] == 1


async def test_a_delete_in_another_domain_is_not_that_of_the_leafs_stream(domains: Domains) -> None:
    await domains.at_hub.create_stream(name="S", subjects=["h.>"])
    await domains.at_leaf.create_stream(name="S", subjects=["s.>"])
    rule = {"name": "r", "stream": "S", "from": "leaf", "republish": {"src": "s.>", "dest": "d.>"}, "start": "first"}
    seen = await domains.at_hub.collect("d.>")
    await domains.at_hub.store(b"h.a")
    await domains.at_leaf.store(b"s.a")
    async with running(domains.settings(rule)):
        await seen.count(1)
        await domains.at_hub.api("STREAM.MSG.DELETE.S", {"seq": 1})
        audit = await domains.at_hub.collect("$JS.EVENT.ADVISORY.API")
        await domains.at_hub.flushed()
        await domains.at_hub.api("STREAM.PURGE.S")
        await audit.count(1)
        await domains.at_leaf.store(b"s.a")
        await seen.count(2)
    assert b"Nats-Last-Sequence: 1\r\n" in seen.messages[1][2]


async def test_copies_out_of_the_leafs_domain(domains: Domains) -> None:
    copies = await Copies.make(domains.at_leaf, "S", target_peer=domains.at_hub)
    for number in range(MANY):
        domains.at_leaf.publish(b"S.%d" % (number % 9), b"x" * 1000)
    rule = copies.rule(entry={"from": "leaf"})
    async with running(domains.settings(rule)):
        await copies.holds(MANY)
    await domains.at_leaf.store(b"S.later")
    async with running(domains.settings(rule)):
        await copies.holds(MANY + 1)
    await copies.are_exact()


async def test_copies_into_the_leafs_domain(domains: Domains) -> None:
    copies = await Copies.make(domains.at_hub, "S", target_peer=domains.at_leaf)
    for number in range(MANY):
        domains.at_hub.publish(b"S.%d" % (number % 9), b"x" * 1000)
    rule = copies.rule(to="leaf")
    async with running(domains.settings(rule)):
        await copies.holds(MANY)
    await domains.at_hub.store(b"S.later")
    async with running(domains.settings(rule)):
        await copies.holds(MANY + 1)
    await copies.are_exact()


async def test_a_bucket_of_the_leafs_domain_is_a_source_but_no_target(domains: Domains) -> None:
    bucket = {"max_msgs_per_subject": 1, "allow_rollup_hdrs": True, "deny_delete": True, "discard": "new"}
    for peer, name in ((domains.at_leaf, "A"), (domains.at_hub, "B")):
        await peer.create_stream(name=f"KV_{name}", subjects=[f"$KV.{name}.>"], **bucket)
    await domains.at_leaf.store(b"$KV.A.k", b"v")
    rule = {"name": "r", "kind": "kv_sources", "bucket": "B", "sources": [{"bucket": "A", "from": "leaf"}]}
    async with running(domains.settings(rule)):

        async def there() -> bool:
            return bool((await domains.at_hub.api("STREAM.INFO.KV_B"))["state"]["messages"])

        await until(there)
    back = {"name": "r", "kind": "kv_sources", "bucket": "A", "to": "leaf", "sources": [{"bucket": "B"}]}
    with pytest.raises(RuleRefusedError, match=r"leafnodes between domains pass no message to \$KV"):
        async with running(domains.settings(back)):
            pass


async def test_leases_in_the_leafs_domain(domains: Domains) -> None:
    """Two replicas at the hub and one at the leaf: one leads, and after a clean stop another one."""
    await domains.at_leaf.create_stream(name="S", subjects=["s.>"])
    rule = {"name": "r", "stream": "S", "from": "leaf", "republish": {"src": "s.>", "dest": "d.>"}, "start": "first"}
    settings = domains.settings(rule, leadership={"connection": "leaf"})
    seen = await domains.at_hub.collect("d.>")
    async with running(settings) as first:
        await until(lambda: first.supervisors[0].state == "ready")
        async with running(settings) as second:
            await domains.at_leaf.store(b"s.1")
            await seen.count(1)
            await first.stop()
            await until(lambda: second.supervisors[0].state == "ready")
            await domains.at_leaf.store(b"s.2")
            await seen.count(2)
    assert (await domains.at_hub.api("STREAM.NAMES"))["streams"] is None
    assert "KV_" in str((await domains.at_leaf.api("STREAM.NAMES"))["streams"])


async def test_the_printed_permissions_suffice(twin_version: str, native_server: Servers, raw_peer: OpenPeer) -> None:
    """Those of a user at the hub, who reaches the leaf's streams and leases."""
    rule = {
        "name": "r",
        "stream": "S",
        "republish": {"src": "s.>", "dest": "d.>"},
        "start": "first",
        "delivery": "at_least_once",
    }

    def settings(url: str, password_file: str) -> Settings:
        user = {"servers": [url], "domain": "leaf", "user": "u", "password_file": password_file}
        return settings_for("", rule, connections={"default": user}, leadership={})

    with tempfile.NamedTemporaryFile("w") as secret:
        secret.write("p")
        secret.flush()
        allowed = as_text(grants_of(settings("nats://127.0.0.1:4222", secret.name)))
        users = f"{{user: admin, password: p}}\n{{user: u, password: p\n{allowed}\n}}"
        hub = native_server(
            twin_version,
            config=f"leafnodes {{{LEAF_LISTENER}}}\njetstream {{domain: hub}}\n"
            f"accounts {{A {{jetstream: enabled, users: [\n{users}\n]}}}}",
        ).start()
        url = f"nats-leaf://admin:p@{HOST}:{hub.leaf_port}"
        remote = f'leafnodes {{remotes: [{{url: "{url}"}}]}}\njetstream {{domain: leaf}}'
        leaf = native_server(twin_version, config=remote).start()
        at_leaf = await raw_peer(leaf.url)
        at_hub = await raw_peer(hub.url.replace("nats://", "nats://admin:p@"))

        async def linked() -> bool:
            return await at_hub.request_raw(b"$JS.leaf.API.INFO") is not None

        await until(linked)
        await at_leaf.create_stream(name="S", subjects=["s.>"])
        seen = await at_hub.collect("d.>")
        for number in range(MANY):
            at_leaf.publish(b"s.%d" % number, b"x" * 1000)
        with structlog.testing.capture_logs() as logs:
            async with running(settings(hub.url, secret.name)):
                await seen.count(MANY)
        assert not [line for line in logs if line["event"] == "connection.refused"]


async def test_the_api_of_another_account(twin_version: str, native_server: Servers, raw_peer: OpenPeer) -> None:
    """An import under another name, with what its consumers deliver to and are answered on."""
    shared = [f'{{service: {{account: A, subject: "{each}"}}}}' for each in ("$JS.ACK.>", "$JS.FC.>", "s.>")]
    shared += ['{service: {account: A, subject: "$JS.API.>"}, to: "JSA.API.>"}']
    imports = ", ".join((*shared, '{stream: {account: A, subject: "_INBOX_b.>"}}'))
    services = ("$JS.API.>", "$JS.ACK.>", "$JS.FC.>", "s.>")
    exports = ", ".join((*(f'{{service: "{each}"}}' for each in services), '{stream: "_INBOX_b.>"}'))
    users = "users: [{{user: {0}, password: p}}]"
    server = native_server(
        twin_version,
        config="jetstream {}\nno_auth_user: b\naccounts {\n"
        f"A {{jetstream: enabled, {users.format('a')}, exports: [{exports}]}}\n"
        f"B {{jetstream: enabled, {users.format('b')}, imports: [{imports}]}}\n}}",
    ).start()
    there, here = await raw_peer(server.url.replace("nats://", "nats://a:p@")), await raw_peer(server.url)
    await there.create_stream(name="S", subjects=["s.>"])
    await here.create_stream(name="C", subjects=["c.>"])
    for number in range(MANY):
        there.publish(b"s.%d" % number, b"x" * 1000)
    seen = await here.collect("d.>")
    named = {
        "default": {"servers": [server.url]},
        "other": {"servers": [server.url], "api_prefix": "JSA.API", "inbox_prefix": "_INBOX_b"},
    }
    rules: list[dict[str, Any]] = [
        {
            "name": "r",
            "stream": "S",
            "from": "other",
            "republish": {"src": "s.>", "dest": "d.>"},
            "start": "first",
            "delivery": "at_least_once",
        },
        {
            "name": "c",
            "kind": "sources",
            "stream": "C",
            "sources": [{"name": "S", "from": "other", "subject_transforms": [{"src": "s.>", "dest": "c.>"}]}],
        },
    ]
    async with running(settings_for("", *rules, connections=named)):
        await seen.count(MANY)

        async def copied() -> bool:
            return bool((await here.api("STREAM.INFO.C"))["state"]["messages"] == MANY)

        await until(copied)
