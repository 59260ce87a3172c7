"""A pod of the manifests that podman runs, and the part of the kubelet that podman 4.3 lacks.

`podman kube play` makes the pod: its containers with their image, command, variables, rights, limits and volumes. The
tests do the rest as the kubelet would: they probe, change the files of a ConfigMap or Secret, and stop containers in
order. What `adapted` changes in a manifest is all that podman cannot run.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import copy
import subprocess
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml

from nats_conformance.native_servers import free_port
from tests.container.engine import Engine, EngineError, Image
from tests.k8s.rendering import Manifest
from tests.k8s.workloads import Pod, of_kind, pods
from tests.live.until import LIMIT

SERVERS: Final = "nats://nats.nats.svc:4222"
SECRET: Final = "nats-bridge-credentials"
# Not the address that the program listens on when nothing else is said: as the node asks at the pod's.
_ADDRESS = "127.0.0.2"


def adapted(manifests: tuple[Manifest, ...], url: str, port: int) -> list[Manifest]:
    """Manifests that podman 4.3 can run in this machine's network.

    * The servers' address and the bridge's port are others here. Only one pod has the port.
    * An init container would have to end before the others start, also one with `restartPolicy: Always`.
    * It does not know `metadata.namespace`, and never mounts an optional Secret.
    """
    text = yaml.safe_dump_all(copy.deepcopy(manifests)).replace(SERVERS, url)
    changed: list[Manifest] = list(yaml.safe_load_all(text))
    for pod in pods(changed):
        pod.workload["spec"]["replicas"] = 1
        spec: Any = pod.spec
        spec["containers"] = pod.containers
        spec.pop("initContainers", None)
        for container in pod.containers:
            container.pop("ports", None)
            for variable in container["env"]:
                if variable["name"] == "BRIDGE_HTTP__LISTEN":
                    variable["value"] = f":{port}"
                if variable.get("valueFrom") == {"fieldRef": {"fieldPath": "metadata.namespace"}}:
                    del variable["valueFrom"]
                    variable["value"] = pod.workload["metadata"]["namespace"]
        for volume in spec["volumes"]:
            if "secret" in volume:
                volume["secret"]["optional"] = False
    return changed


class Played:
    """A pod that podman has made; its containers have not started.

    Attributes:
        pod: the pod as the manifests have it.
    """

    def __init__(self, engine: Engine, pod: Pod, port: int) -> None:
        self.pod = pod
        self._engine = engine
        self._name = f"{pod.workload['metadata']['name']}-pod-0"
        self._port = port

    async def start(self, container: str) -> None:
        """Start a container of it."""
        await asyncio.to_thread(self._engine.run, "start", self._of(container))

    async def stop(self, container: str) -> int:
        """Send SIGTERM to a container, and SIGKILL after the pod's grace; its exit code."""
        await asyncio.to_thread(self._engine.run, "stop", self._grace, self._of(container))
        return self._exit_code(container)

    async def stop_all(self) -> set[int]:
        """The same to all containers at once; their exit codes."""
        await asyncio.to_thread(self._engine.run, "pod", "stop", self._grace, self._name)
        return {self._exit_code(container["name"]) for container in self.pod.containers}

    def log(self, container: str) -> str:
        """The lines of a container so far."""
        command = self._engine.command("logs", self._of(container))
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True).stdout

    def facts(self, container: str) -> dict[str, str]:
        """/proc/…/status of a container's process 1."""
        lines = Path(f"/proc/{self._fact(container, 'State.Pid')}/status").read_text().splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    def update(self, volume: str, data: Mapping[str, str]) -> None:
        """Exchange the files of a ConfigMap or Secret, as the kubelet does after a change."""
        folder = Path(self._engine.run("volume", "inspect", "--format={{.Mountpoint}}", volume).strip())
        for name, text in data.items():
            written = folder / f".{name}"
            written.write_text(text, "utf-8")
            written.chmod(0o644)
            written.replace(folder / name)

    async def probed(self, probe: str) -> int:
        """The status that a probe of the bridge's container gets; 0 while nothing listens."""
        return (await self.asked(self.pod.bridge[probe]["httpGet"]["path"]))[0]

    async def asked(self, path: str) -> tuple[int, str]:
        """Status and body of a path, as a node asks for it."""
        url = f"http://{_ADDRESS}:{self._port}{path}"
        timeout = aiohttp.ClientTimeout(LIMIT)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(url, headers={"Host": f"10.42.0.7:{self._port}"}) as answer,
            ):
                return answer.status, await answer.text()
        except aiohttp.ClientConnectionError:
            return 0, ""

    @property
    def _grace(self) -> str:
        return f"--time={self.pod.spec['terminationGracePeriodSeconds']}"

    def _exit_code(self, container: str) -> int:
        return int(self._fact(container, "State.ExitCode"))

    def _of(self, container: str) -> str:
        return f"{self._name}-{container}"

    def _fact(self, container: str, member: str) -> str:
        return self._engine.run("container", "inspect", f"--format={{{{.{member}}}}}", self._of(container)).strip()


@contextlib.asynccontextmanager
async def played(
    image: Image, manifests: tuple[Manifest, ...], url: str, secret: Mapping[str, str] | None = None
) -> AsyncIterator[Played]:
    """Make the pod of rendered manifests, with a Secret for its credentials; it is removed at the end."""
    engine, port = image.engine, free_port()
    (pod,) = pods(manifests)
    engine.run("tag", image.name, pod.bridge["image"])
    files = secret or {"unused": "x"}
    data = {name: base64.b64encode(text.encode()).decode() for name, text in files.items()}
    declared = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "data": data}
    text = yaml.safe_dump_all([declared, *adapted(manifests, url, port)])
    volumes = [SECRET, *(each["metadata"]["name"] for each in of_kind(manifests, "ConfigMap"))]
    try:
        engine.run("kube", "play", "--network=host", "--start=false", "-", given=text)
        made = Played(engine, pod, port)
        made.update(SECRET, files)  # podman 4.3 writes what it should decode first
        yield made
    finally:
        name = f"{pod.workload['metadata']['name']}-pod-0"
        left = (("pod", "rm", "--force", "--time=0", name), ("volume", "rm", *volumes), ("secret", "rm", SECRET))
        for removal in left:
            with contextlib.suppress(EngineError):  # it may not have come so far
                engine.run(*removal)
