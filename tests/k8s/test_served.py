"""The program with an overlay's very configuration and variables, on a real server: what probes ask is answered.

Two things are other than in a cluster: the servers' address, and the port, which must be free here.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from nats_conformance.native_servers import free_port
from tests.k8s.charts import CHART, rendered
from tests.k8s.rendering import OVERLAYS, Manifest, render
from tests.k8s.workloads import Pod, of_kind, pods
from tests.live.raw_messages import RawPeer
from tests.live.shared_servers import Servers
from tests.live.sidecar_process import SidecarProcess
from tests.live.until import LIMIT, until

ELSEWHERE = "nats://nats.nats.svc:4222"
# Not the address that the program listens on when nothing else is said: as the node asks at the pod's.
POD_ADDRESS = "127.0.0.2"
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


class ConfigMapFolder:
    """A folder with a ConfigMap's files, as the node mounts it: links to a folder that is exchanged at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._versions = 0

    def put(self, data: dict[str, str]) -> None:
        """Write the files, or exchange them."""
        self._versions += 1
        version = self._folder / f"..{self._versions}"
        version.mkdir(parents=True)
        for name, text in data.items():
            (version / name).write_text(text, "utf-8")
        link = self._folder / "..data_tmp"
        link.symlink_to(version.name)
        link.rename(self._folder / "..data")
        for name in data:
            if not (self._folder / name).is_symlink():
                (self._folder / name).symlink_to(f"..data/{name}")


class PodHere:
    """The bridge's container of an overlay as a process of this machine."""

    def __init__(self, pod: Pod, data: dict[str, str], url: str, folder: Path) -> None:
        self.pod = pod
        self.port = free_port()
        self.mounted = ConfigMapFolder(folder)
        self._url = url
        self._folder = folder
        self._data = data
        self.put(data["config.yaml"])

    def put(self, text: str) -> None:
        """Change the configuration in the folder."""
        assert ELSEWHERE in text
        self.mounted.put({**self._data, "config.yaml": text.replace(ELSEWHERE, self._url)})

    @property
    def text(self) -> str:
        """The configuration as the overlay has it."""
        return self._data["config.yaml"]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[SidecarProcess]:
        """Start it; it is killed at the end."""
        container = self.pod.bridge
        (port,) = container["ports"]
        given = {entry["name"]: entry.get("value", "") for entry in container["env"]}
        assert given["BRIDGE_HTTP__LISTEN"] == f":{port['containerPort']}"
        given["BRIDGE_HTTP__LISTEN"] = f":{self.port}"
        arguments = [word.replace("/etc/nats-bridge", str(self._folder)) for word in container["args"]]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "nats_bridge", *arguments),
            env=given,
            stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        started = SidecarProcess(process)
        try:
            yield started
        finally:
            await started.kill()

    async def get(self, path: str) -> tuple[int, str]:
        """What the node or Prometheus gets from a path; 0 while nothing listens."""
        # The name in the request is the pod's address in a cluster.
        headers = {"Host": f"10.42.0.7:{self.port}"}
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(LIMIT)) as session,
                session.get(f"http://{POD_ADDRESS}:{self.port}{path}", headers=headers) as answer,
            ):
                return answer.status, await answer.text()
        except aiohttp.ClientConnectionError:
            return 0, ""

    async def probed(self, probe: str) -> int:
        """The status that a probe of the manifest gets."""
        return (await self.get(self.pod.bridge[probe]["httpGet"]["path"]))[0]


@pytest.fixture
def pod_here(tmp_path: Path) -> Callable[..., PodHere]:
    """`pod_here(overlay's manifests, url)`; each with a folder of its own."""
    made: list[PodHere] = []

    def make(manifests: tuple[Manifest, ...], url: str) -> PodHere:
        (pod,) = pods(manifests)
        (config,) = (each for each in of_kind(manifests, "ConfigMap") if each["metadata"]["name"] == "nats-bridge")
        made.append(PodHere(pod, config["data"], url, tmp_path / f"pod-{len(made)}"))
        return made[-1]

    return make


async def make_streams(peer: RawPeer) -> None:
    await peer.create_stream(name="ORDERS", subjects=["orders.>"])
    await peer.create_stream(name="ORDERS_EU", subjects=["eu.>"])


async def test_probes_and_metrics_are_answered_at_the_pods_address(
    manifests: tuple[Manifest, ...],
    pod_here: Callable[..., PodHere],
    native_server: Servers,
    raw_peer: Callable[[str], Awaitable[RawPeer]],
) -> None:
    async with native_server("2.10.27") as server:
        peer = await raw_peer(server.url)
        here = pod_here(manifests, server.url)
        async with here.running() as process:
            # Without its streams it has started and lives, but is not ready: the application may make them.
            await process.said("rule.waiting")
            await process.ready()
            assert [await here.probed(probe) for probe in PROBES] == [200, 200, 503]
            copies = await peer.collect("monitor.>")
            await make_streams(peer)

            await until(lambda: all_running(here))
            assert [await here.probed(probe) for probe in PROBES] == [200, 200, 200]
            await peer.store(b"orders.eu.1", b"an order")
            await copies.count(1)
            monitors = [*of_kind(manifests, "ServiceMonitor"), *of_kind(manifests, "PodMonitor")]
            (endpoint,) = (
                each
                for spec in monitors
                for each in [*spec["spec"].get("endpoints", []), *spec["spec"].get("podMetricsEndpoints", [])]
            )
            status, metrics = await here.get(endpoint["path"])
            assert status == 200
            assert 'rule="orders-monitor"' in metrics
            assert await process.stop() == 0


@pytest.fixture(params=["overlay", "chart"])
def replicated(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Manifest, ...]:
    """Two replicas: of the overlay, and of the chart with a configuration that does not mention leases."""
    if request.param == "overlay":
        return render(OVERLAYS["standalone"])
    settings = yaml.safe_load((OVERLAYS["standalone"] / "config.yaml").read_text("utf-8"))
    del settings["leadership"]
    config = tmp_path / "without.yaml"
    config.write_text(yaml.safe_dump(settings), "utf-8")
    return tuple(rendered(CHART, "--set-file", f"config={config}"))


async def test_of_two_replicas_one_works_and_both_are_ready(
    replicated: tuple[Manifest, ...],
    pod_here: Callable[..., PodHere],
    native_server: Servers,
    raw_peer: Callable[[str], Awaitable[RawPeer]],
) -> None:
    async with native_server("2.10.27") as server, contextlib.AsyncExitStack() as running:
        peer = await raw_peer(server.url)
        await make_streams(peer)
        replicas = [pod_here(replicated, server.url) for _ in range(manifests_replicas(replicated))]
        for replica in replicas:
            await running.enter_async_context(replica.running())

        async def leaders() -> list[int]:
            return [sum(rule["leader"] is True for rule in await rules_of(replica)) for replica in replicas]

        async def all_rules_led() -> bool:
            return sum(await leaders()) == 2

        async def all_ready() -> bool:
            return [await replica.probed("readinessProbe") for replica in replicas] == [200, 200]

        await until(all_rules_led)
        await until(all_ready)


async def all_running(replica: PodHere) -> bool:
    """Whether every rule works here; a standby is ready, too."""
    return {rule["state"] for rule in await rules_of(replica)} == {"ready"}


async def rules_of(replica: PodHere) -> list[dict[str, Any]]:
    status, text = await replica.get("/status")
    return list(yaml.safe_load(text)["rules"]) if status == 200 else []


def manifests_replicas(manifests: tuple[Manifest, ...]) -> int:
    (pod,) = pods(manifests)
    return int(pod.workload["spec"]["replicas"])


async def test_a_changed_configmap_is_taken_by_the_running_process(
    pod_here: Callable[..., PodHere], native_server: Servers, raw_peer: Callable[[str], Awaitable[RawPeer]]
) -> None:
    manifests = render(OVERLAYS["native-sidecar"])
    async with native_server("2.10.27") as server:
        peer = await raw_peer(server.url)
        await make_streams(peer)
        here = pod_here(manifests, server.url)
        async with here.running() as process:
            await process.ready()
            await until(lambda: all_running(here))
            copies = await peer.collect("seen.>")
            here.put(here.text.replace('"monitor.orders.>"', '"seen.orders.>"'))
            await process.said("reload.applied")
            await until(lambda: all_running(here))
            await peer.store(b"orders.eu.1", b"an order")
            await copies.count(1)
            assert [message[0] for message in copies.messages] == [b"seen.orders.eu.1"]


async def test_the_example_application_sees_its_orders_republished(
    pod_here: Callable[..., PodHere], native_server: Servers, tmp_path: Path
) -> None:
    manifests = render(OVERLAYS["native-sidecar"])
    (code,) = (each["data"]["app.py"] for each in of_kind(manifests, "ConfigMap") if "app.py" in each["data"])
    (app,) = (container for container in pods(manifests)[0].spec["containers"] if container["name"] == "orders")
    (variable,) = app["env"]
    assert variable == {"name": "NATS_URL", "value": ELSEWHERE}
    program = tmp_path / "app.py"
    program.write_text(code, "utf-8")
    async with native_server("2.10.27") as server, pod_here(manifests, server.url).running() as process:
        await process.ready()
        application = await asyncio.create_subprocess_exec(
            *(sys.executable, str(program)),
            env={"NATS_URL": server.url},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert application.stdout is not None
            async with asyncio.timeout(LIMIT):
                line = (await application.stdout.readline()).decode()
                assert line.startswith("monitor.orders.eu.")
                assert ": an order (sequence " in line
                application.terminate()
                await application.communicate()
            assert application.returncode == 0
        finally:
            if application.returncode is None:
                application.kill()
                await application.wait()


async def test_the_job_of_the_chart_checks_the_servers(
    native_server: Servers, raw_peer: Callable[[str], Awaitable[RawPeer]], tmp_path: Path
) -> None:
    config = f"config={OVERLAYS['standalone'] / 'config.yaml'}"
    made = rendered(CHART, "--set", "check.enabled=true", "--set-file", config)
    (container,) = of_kind(made, "Job")[0]["spec"]["template"]["spec"]["containers"]
    (data,) = (each["data"] for each in of_kind(made, "ConfigMap") if each["metadata"]["name"] == "nats-bridge-check")

    async def checked() -> tuple[int | None, str]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "nats_bridge"),
            *(word.replace("/etc/nats-bridge", str(tmp_path)) for word in container["args"]),
            env={entry["name"]: entry.get("value", "") for entry in container["env"]},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        return process.returncode, said.decode()

    async with native_server("2.10.27") as server:
        (tmp_path / "config.yaml").write_text(data["config.yaml"].replace(ELSEWHERE, server.url), "utf-8")
        code, said = await checked()
        assert code == 1
        assert "stream 'ORDERS' does not exist" in said
        await make_streams(await raw_peer(server.url))
        code, said = await checked()
        assert (code, said.count("ok ")) == (0, 2), said
