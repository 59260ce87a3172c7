"""Sidecars inside a live test whose configuration file changes while they run."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from nats_bridge.app.reload.coordinator import ReloadFacts
from nats_bridge.app.reload.file_watch import content_hash
from nats_bridge.app.sidecar import Sidecar
from nats_bridge.rules.supervisor import RuleSupervisor
from nats_bridge.settings import load
from tests.live.sidecar_process import document


class Reloading:
    """A running sidecar, and the file that it reads again."""

    def __init__(self, url: str, path: Path) -> None:
        self.url = url
        self.path = path
        self.sidecar: Sidecar

    def write(self, *rules: dict[str, Any], **more: Any) -> None:
        """Write the configuration with these rules."""
        # Only `reload` must take it, unless a test is about the watch.
        written = document(self.url, *rules, **{"reload": {"watch": False}, **more})
        self.path.write_text(json.dumps(written), "utf-8")

    async def reload(self, *rules: dict[str, Any], **more: Any) -> ReloadFacts:
        """Write the configuration, and have it read."""
        self.write(*rules, **more)
        return await self.sidecar.reload("test")

    async def applied(self, *rules: dict[str, Any], **more: Any) -> ReloadFacts:
        """`reload`, which must be taken."""
        facts = await self.reload(*rules, **more)
        assert (facts.result, facts.reason) == ("applied", "")
        return facts

    def supervisor(self, name: str) -> RuleSupervisor:
        """The supervisor of a rule."""
        (supervisor,) = [supervisor for supervisor in self.sidecar.supervisors if supervisor.rule.name == name]
        return supervisor


@asynccontextmanager
async def reloading(url: str, directory: Path, *rules: dict[str, Any], **more: Any) -> AsyncIterator[Reloading]:
    """A started sidecar whose file can be changed, drained at the end."""
    here = Reloading(url, directory / "bridge.yaml")
    here.write(*rules, **more)
    here.sidecar = Sidecar(load(here.path), here.path, content_hash(here.path))
    await here.sidecar.start()
    try:
        yield here
    finally:
        await here.sidecar.stop()
