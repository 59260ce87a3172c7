"""Records docs/handoff.md: runs the migration on real servers and prints what a terminal would show.

    python -m docs.record_migration            # prints the transcript
    python -m docs.record_migration --write    # and puts it into docs/handoff.md

Every line of output is that of a real process. Only the port and the folder are replaced, by 4222 and /data, and long
log lines are cut.
"""

from __future__ import annotations

import asyncio
import re
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from nats_bridge.client.connection_pool import connected
from nats_bridge.consuming.replay import Replay
from nats_bridge.settings import Settings
from nats_conformance.native_servers import NativeServer
from nats_transforms import header_block
from nats_transforms.copy_id import CopyId
from nats_transforms.dialect import NEWEST
from nats_transforms.source_record import HEADER
from nats_transforms.sourcing import compile_sourcing

PAGE = Path(__file__).parent / "handoff.md"
MARK = "<!-- recorded by docs/record_migration.py -->"
ENTRY = {"name": "ORDERS", "subject_transforms": [{"src": "orders.eu.*", "dest": "eu.{{wildcard(1)}}"}]}
RULE = """rules:
  - name: eu
    kind: sources
    stream: ORDERS_EU
    sources:
      - {name: ORDERS, subject_transforms: [{src: "orders.eu.*", dest: "eu.{{wildcard(1)}}"}]}
"""


class Recorder:
    """Prints, and keeps what it printed."""

    def __init__(self, server: NativeServer, folder: Path) -> None:
        self.lines: list[str] = []
        self._server, self._folder = server, folder

    def say(self, text: str) -> None:
        """One or more lines."""
        text = text.replace(f":{self._server.port}", ":4222").replace(str(self._folder), "/data")
        for line in text.rstrip("\n").split("\n"):
            self.lines.append(line)
            click.echo(line)

    def comment(self, text: str) -> None:
        """A remark between commands."""
        self.say(f"\n# {text}")

    def log(self, log: bytes, *wanted: str, width: int = 110) -> None:
        """Those log lines that begin a sentence with one of these words, without their times."""
        for line in log.decode().splitlines():
            plain = re.sub(r"\x1b\[[0-9;]*m", "", line)
            plain = re.sub(r"^\[\d+\] [^\[]*|^\d{4}-\d\d-\S+ +", "", plain)
            if any(word in plain for word in wanted):
                self.say(f"  {plain[:width].rstrip()}")


async def command(*arguments: str) -> tuple[int, str, str]:
    """A `nats-bridge` command: exit code, stdout, stderr."""
    process = await _started(*arguments)
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def _started(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nats_bridge", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


class Shop:
    """The application: it publishes numbered orders, before, between and after."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.orders = 0

    async def sells(self, orders: int) -> None:
        """Publish, each acknowledged by the stream."""
        async with connected(self._settings, {"default"}) as links:
            for _ in range(orders):
                self.orders += 1
                region = ("eu", "us", "eu")[self.orders % 3]
                subject = f"orders.{region}.{self.orders % 11}"
                # nats-py would wait for half a second.
                await links["default"].client.request(subject, b"%d" % self.orders, timeout=60)

    async def api(self, subject: str, body: dict[str, Any]) -> None:
        """One request to the JetStream API."""
        async with connected(self._settings, {"default"}) as links:
            await links["default"].api.request(subject, body)

    async def copied(self) -> tuple[list[tuple[bytes, bytes]], list[tuple[bytes, bytes]], list[str]]:
        """What should be in the target, what is, and who put it there."""
        sourcing = compile_sourcing(ENTRY, NEWEST)
        expected, found, by = [], [], []
        async with connected(self._settings, {"default"}) as links:
            api = links["default"].api
            for stream in ("ORDERS", "ORDERS_EU"):
                last = int((await api.stream_info(stream))["state"]["last_seq"])
                async for batch in Replay(api, stream).between(1, last):
                    for subject, _, block, payload in batch:
                        if stream == "ORDERS":
                            destination = sourcing.destination(subject)
                            expected += [(destination, payload)] if destination else []
                        else:
                            found.append((subject, payload))
                            ours = CopyId.parse(header_block.read(block, b"Nats-Msg-Id")) is not None
                            by.append("the bridge" if ours else "the server")
                            assert header_block.read(block, HEADER) is not None
        return expected, found, by

    async def complete(self) -> None:
        """Wait until the newest order that is meant is in the target."""
        while True:
            expected, found, _ = await self.copied()
            if found and expected[-1] == found[-1]:
                return
            await asyncio.sleep(0.05)


async def record(before: str = "2.9.10", after: str = "2.15.3") -> list[str]:
    """Run the migration; the transcript."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with NativeServer(before, directory=folder / "nats") as server:
            return await _record(server, folder, before, after)


async def _record(server: NativeServer, folder: Path, before: str, after: str) -> list[str]:
    here = Recorder(server, folder)
    config = folder / "eu.yaml"
    connections = f'connections:\n  default: {{servers: ["{server.url}"]}}\n'
    config.write_text(f'{connections}http: {{listen: ""}}\nlog: {{format: console}}\n{RULE}', "utf-8")
    settings = Settings.model_validate({"connections": {"default": {"servers": [server.url]}}, "rules": []})
    shop = Shop(settings)

    here.say(f"$ nats-server -js -sd /data/nats/store &                # {before}")
    await shop.api("STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.>"]})
    await shop.api("STREAM.CREATE.ORDERS_EU", {"name": "ORDERS_EU", "subjects": ["eu.*"]})
    await shop.sells(300)
    here.say("$ nats-bridge run -c eu.yaml &")
    sidecar = await _started("run", "-c", str(config))
    await shop.complete()
    await shop.sells(300)
    await shop.complete()
    here.comment("600 orders are sold, and those of eu copied. Could the server take over?")
    await _handoff(here, config)
    here.comment("so: stop the sidecar, and upgrade the server. 200 orders are sold in between")
    sidecar.send_signal(signal.SIGTERM)
    await sidecar.communicate()
    here.say("$ kill %2                                            # SIGTERM to nats-bridge")
    await shop.sells(100)
    await asyncio.to_thread(server.upgrade, after)
    here.say(f"$ kill %1; nats-server -js -sd /data/nats/store &         # {after}, same store")
    await shop.sells(100)
    await _handoff(here, config, "--apply")
    await shop.sells(100)
    await asyncio.to_thread(server.restart)
    await shop.sells(100)
    await shop.complete()
    here.comment("200 orders and a restart of the server. And a sidecar started by mistake?")
    here.say("$ nats-bridge run -c eu.yaml &")
    sidecar = await _started("run", "-c", str(config))
    here.log(await _until_failed(sidecar), "rule.failed", width=260)
    sidecar.send_signal(signal.SIGTERM)
    await sidecar.communicate()
    expected, found, by = await shop.copied()
    missing, repeated = len(set(expected) - set(found)), len(found) - len(set(found))
    here.comment(f"the proof: {shop.orders} orders sold, {len(expected)} of them on orders.eu.*")
    here.say(f"in ORDERS_EU       {len(found)}")
    here.say("\n".join(f"  by {who}    {by.count(who)}" for who in ("the bridge", "the server")))
    here.say(f"missing            {missing}")
    here.say(f"duplicated         {repeated}")
    here.say(f"same order         {'yes' if expected == found else 'no'}")
    return here.lines


async def _until_failed(sidecar: asyncio.subprocess.Process) -> bytes:
    """The line of its log with which its rule fails."""
    assert sidecar.stderr is not None
    async for line in sidecar.stderr:
        if b"rule.failed" in line:
            return line
    raise AssertionError("the sidecar ended")


async def _handoff(here: Recorder, config: Path, *options: str) -> None:
    here.say(" ".join(["$ nats-bridge handoff -c eu.yaml eu", *options, "> update.json"]))
    code, _, err = await command("handoff", "-c", str(config), "eu", *options)
    here.say("\n".join(f"  {line}" for line in err.splitlines() if re.search("no  eu|resumes|Sent", line)))
    assert code == (0 if options else 1), err


@click.command()
@click.option("--write", is_flag=True, help="Put the transcript into docs/handoff.md.")
def main(write: bool) -> None:
    """Run the migration and print what a terminal shows."""
    lines = asyncio.run(record())
    if write:
        head, _, _ = PAGE.read_text("utf-8").partition(MARK)
        PAGE.write_text(f"{head}{MARK}\n\n```text\n" + "\n".join(lines) + "\n```\n", "utf-8")


if __name__ == "__main__":
    main()
