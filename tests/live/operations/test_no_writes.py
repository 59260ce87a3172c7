"""The sidecar needs no place to write to: it does its work where no file can be written at all."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from pathlib import Path

from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecar_process import Scene, SidecarProcess, document


def _no_file_may_grow() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


async def test_a_sidecar_that_can_write_nothing_does_its_work(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("nowrites"))
    config = tmp_path / "sidecar.yaml"
    config.write_text(json.dumps(document(url, here.rule(), http={"listen": "127.0.0.1:0"})), "utf-8")
    process = SidecarProcess(
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "nats_bridge", "run", "-c", str(config)),
            stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            cwd="/",
            env={"HOME": "/nonexistent", "TMPDIR": "/nonexistent"},
            preexec_fn=_no_file_may_grow,
        )
    )
    try:
        await process.ready()
        await here.load.burst(200)
        await here.bridged.until_sequence(await here.end())
        assert await process.stop() == 0
    finally:
        await process.kill()
    assert here.bridged.sequences == list(range(1, 202))
    assert process.plain_lines == []
