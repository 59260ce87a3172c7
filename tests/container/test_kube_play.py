"""The manifests' pods, made by podman of the built image, on a real server: probes, rights, changed files, the end."""

from __future__ import annotations

import asyncio
import copy
import json

import pytest

from tests.container.engine import Image
from tests.container.played import SECRET, SERVERS, Played, played
from tests.k8s.rendering import OVERLAYS, Manifest, render
from tests.k8s.workloads import of_kind
from tests.live.raw_messages import OpenPeer, connected
from tests.live.shared_servers import Servers
from tests.live.until import until

BRIDGE = "nats-bridge"
APPLICATION = "orders"
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
LOGIN = "    user: me\n    password_file: /etc/nats-bridge-credentials/password\n"


def server_config(password: str) -> str:
    users = f"{{user: me, password: {password}}}, {{user: admin, password: p}}"
    return f"authorization {{users: [{users}], timeout: 60}}\n"


def with_login(manifests: tuple[Manifest, ...]) -> tuple[tuple[Manifest, ...], dict[str, str]]:
    """The manifests with a user whose password is in the Secret; and the ConfigMap's files."""
    changed = copy.deepcopy(manifests)
    (config,) = (each["data"] for each in of_kind(changed, "ConfigMap") if each["metadata"]["name"] == BRIDGE)
    line = next(line for line in config["config.yaml"].splitlines(keepends=True) if SERVERS in line)
    config["config.yaml"] = config["config.yaml"].replace(line, line + LOGIN)
    return changed, config


async def probed(pod: Played) -> list[int]:
    return [await pod.probed(probe) for probe in PROBES]


async def started(pod: Played) -> None:
    async def passed() -> bool:
        return await pod.probed("startupProbe") == 200

    await until(passed)


async def works(pod: Played) -> None:
    """Wait until every rule runs here, not on standby, and all probes pass."""

    async def led() -> bool:
        status, text = await pod.asked("/status")
        rules = json.loads(text)["rules"] if status == 200 else []
        leading = [rule["leader"] and rule["ready"] for rule in rules]
        return bool(rules) and all(leading) and await probed(pod) == [200, 200, 200]

    await until(led)


async def said(pod: Played, container: str, text: str) -> None:
    await until(lambda: text in pod.log(container))


def has_no_rights(facts: dict[str, str]) -> bool:
    capabilities = [int(value, 16) for name, value in facts.items() if name.startswith("Cap")]
    user = (facts["Uid"].split(), facts["Gid"].split()) == (["65532"] * 4, ["65532"] * 4)
    return user and not any(capabilities) and (facts["NoNewPrivs"], facts["Seccomp"]) == ("1", "2")


async def test_a_pod_is_probed_follows_secret_and_configmap_and_ends(
    image: Image, native_server: Servers, enduring_peer: OpenPeer
) -> None:
    manifests, config = with_login(render(OVERLAYS["standalone"]))
    async with (
        native_server("2.10.27", config=server_config("one")) as server,
        played(image, manifests, server.url, {"password": "one"}) as pod,
    ):
        peer = await enduring_peer(server.url.replace("//", "//admin:p@"))
        republished = await peer.collect("monitor.>")
        assert await probed(pod) == [0, 0, 0]
        await pod.start(BRIDGE)
        await started(pod)
        assert await probed(pod) == [200, 200, 503], "no streams yet"
        assert has_no_rights(pod.facts(BRIDGE))
        await peer.create_stream(name="ORDERS", subjects=["orders.>"])
        await peer.create_stream(name="ORDERS_EU", subjects=["eu.>"])
        await works(pod)
        await peer.store(b"orders.eu.1", b"an order")
        await republished.count(1)

        # The server knows another password; then the Secret has it, too.
        server.config = server_config("two")
        await asyncio.to_thread(server.restart)
        await said(pod, BRIDGE, '"connection.rejected"')

        async def is_rejected() -> bool:  # a restart would not help
            return await probed(pod) == [200, 200, 503]

        await until(is_rejected)
        pod.update(SECRET, {"password": "two"})
        await said(pod, BRIDGE, '"connection.back"')
        await works(pod)
        await connected(peer)
        await peer.store(b"orders.eu.2", b"an order")
        await republished.count(2)

        seen = await peer.collect("seen.>")
        changed = config["config.yaml"].replace('"monitor.orders.>"', '"seen.orders.>"').replace(SERVERS, server.url)
        pod.update(BRIDGE, {"config.yaml": changed})
        await said(pod, BRIDGE, '"reload.applied"')
        await works(pod)
        await peer.store(b"orders.eu.3", b"an order")
        await seen.count(1)

        assert await pod.stop(BRIDGE) == 0
        assert '"sidecar.stopped"' in pod.log(BRIDGE)


@pytest.mark.parametrize("overlay", ["native-sidecar", "classic-sidecar"])
async def test_an_application_and_its_sidecar_start_work_and_end(
    overlay: str, image: Image, native_server: Servers, raw_peer: OpenPeer
) -> None:
    """A native sidecar starts before its application and ends after it; a classic one does both together with it."""
    async with native_server("2.10.27") as server, played(image, render(OVERLAYS[overlay]), server.url) as pod:
        peer = await raw_peer(server.url)
        republished = await peer.collect("monitor.orders.>")
        await pod.start(BRIDGE)
        if overlay == "native-sidecar":
            await started(pod)
        await pod.start(APPLICATION)
        await works(pod)
        await said(pod, APPLICATION, "monitor.orders.eu.")
        assert has_no_rights(pod.facts(APPLICATION))

        if overlay == "native-sidecar":
            assert await pod.stop(APPLICATION) == 0
            stored = (await peer.api("STREAM.INFO.ORDERS"))["state"]["messages"]
            await republished.until_sequence(stored)
            assert await pod.stop(BRIDGE) == 0
        else:
            assert await pod.stop_all() == {0}
        assert '"sidecar.stopped"' in pod.log(BRIDGE)
