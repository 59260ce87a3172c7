"""Records docs/init.md: runs `nats-bridge init` on a real server and prints what a terminal would show.

    python -m docs.record_init            # prints the transcripts
    python -m docs.record_init --write    # and puts them into docs/init.md

Every line of output is that of a real process. Only the port and the folder are replaced. A test runs it again and
compares, so the page shows what the command prints today.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import click

from nats_bridge.native_servers import NativeServer
from tests.live.commands import command
from tests.live.raw_messages import RawPeer
from tests.live.sidecar_process import SidecarProcess
from tests.live.stored_messages import stored_messages
from tests.live.until import until

PAGE = Path(__file__).parent / "init.md"
_BLOCK = "<!-- recorded: {} -->\n\n```console\n{}\n```\n"
ORDERS_EU: dict[str, Any] = {
    "name": "ORDERS_EU",
    "sources": [{"name": "ORDERS", "subject_transforms": [{"src": "orders.eu.*", "dest": "eu.{{wildcard(1)}}"}]}],
}


class Terminal:
    """Keeps what a terminal would show."""

    def __init__(self, server: NativeServer, folder: Path) -> None:
        self.lines: list[str] = []
        self.folder = folder
        self.server = server

    def say(self, text: str) -> None:
        """One or more lines."""
        text = re.sub(r"\x1b\[[0-9;]*m", "", text)
        for line in text.replace(f":{self.server.port}", ":4222").rstrip("\n").split("\n"):
            self.lines.append(line.rstrip())

    async def init(self, words: str, code: int) -> None:
        """The command, and what it says."""
        self.say(f"{chr(10) if self.lines else ''}$ nats-bridge init {words}")
        at = "--server", self.server.url
        ran = await command("init", *at, *shlex.split(words), folder=self.folder)
        self.say(ran.out + ran.err)
        assert ran.code == code, ran

    def cat(self, name: str) -> None:
        """Show a file."""
        self.say(f"{chr(10) if self.lines else ''}$ cat {name}\n{(self.folder / name).read_text('utf-8')}")


async def record_options() -> list[str]:
    """Rules by options."""
    return await _recorded("2.10.27", _options)


async def record_ignored() -> list[str]:
    """What 2.9 ignored, and the rule for it."""
    return await _recorded("2.9.10", _ignored)


async def _recorded(version: str, play: Callable[[Terminal, RawPeer], Awaitable[None]]) -> list[str]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with NativeServer(version) as server:
            peer = await RawPeer.connect(server.url)
            terminal = Terminal(server, folder)
            try:
                await play(terminal, peer)
            finally:
                await peer.close()
            return terminal.lines


async def _options(here: Terminal, peer: RawPeer) -> None:
    await peer.create_stream(name="ORDERS", subjects=["orders.>"])
    await peer.create_stream(name="JOBS", subjects=["jobs.>"], retention="workqueue")
    durable = {"durable_name": "workers", "ack_policy": "explicit", "max_deliver": 5}
    await peer.api("CONSUMER.DURABLE.CREATE.JOBS.workers", {"stream_name": "JOBS", "config": durable})
    for number in range(3):
        await peer.store(b"orders.eu.%d" % number)
    rules = "--republish ORDERS 'orders.>' 'monitor.orders.>' --dead-letters JOBS 'dlq.JOBS.{{wildcard(1)}}'"
    await here.init(f"{rules} -o shop.yaml", 0)


async def _ignored(here: Terminal, peer: RawPeer) -> None:
    await peer.create_stream(name="ORDERS", subjects=["orders.>"])
    for number in range(30):
        await peer.store(b"orders.%s.%d" % ((b"eu", b"us")[number % 2], number))
    (here.folder / "orders_eu.json").write_text(json.dumps(ORDERS_EU, indent=2) + "\n", "utf-8")
    await peer.create_stream(**ORDERS_EU)
    await until(lambda: _holds(peer, 30))
    here.cat("orders_eu.json")
    await here.init("--from orders_eu.json -o eu.yaml", 1)
    here.cat("eu.yaml")
    here.say("\n# 15 of the 30 messages should not be there, so: all copied again")
    here.say("$ nats stream rm ORDERS_EU -f")
    await peer.api("STREAM.DELETE.ORDERS_EU")
    update = next(line.strip() for line in here.lines if line.startswith("  nats request "))
    here.say(f"$ {update.replace('UPDATE', 'CREATE')}")
    await peer.create_stream(**json.loads(shlex.split(update)[-1]))
    here.say("\n$ nats-bridge check -c eu.yaml --server config")
    here.say(await _check(here.folder / "eu.yaml"))
    here.say("$ nats-bridge run -c eu.yaml &")
    sidecar = await SidecarProcess.start(here.folder / "eu.yaml")
    await sidecar.ready()
    found = await stored_messages(peer, "ORDERS_EU", 15)
    assert await sidecar.stop() == 0
    assert await _holds(peer, 15)
    assert all(message.subject.startswith(b"eu.") for message in found)
    here.say("\n# in ORDERS_EU now: 15 messages, all of them on eu.*")


async def _holds(peer: RawPeer, messages: int) -> bool:
    return int((await peer.api("STREAM.INFO.ORDERS_EU"))["state"]["messages"]) == messages


async def _check(config: Path) -> str:
    ran = await command("check", "-c", str(config), "--server", "config")
    assert ran.code == 0, ran.err
    return ran.out


async def _all() -> dict[str, list[str]]:
    return {"options": await record_options(), "ignored": await record_ignored()}


def with_transcripts(page: str, recorded: dict[str, list[str]]) -> str:
    """The page with what was recorded."""
    for name, lines in recorded.items():
        pattern = re.escape(f"<!-- recorded: {name} -->") + r"\n(\n```console\n.*?\n```\n)?"
        block = _BLOCK.format(name, "\n".join(lines))
        page = re.sub(pattern, lambda _, block=block: block, page, count=1, flags=re.DOTALL)  # type: ignore[misc]
    return page


@click.command()
@click.option("--write", is_flag=True, help="Put the transcripts into docs/init.md.")
def main(write: bool) -> None:
    """Run the sessions and print what a terminal shows."""
    recorded = asyncio.run(_all())
    for lines in recorded.values():
        click.echo("\n".join(lines) + "\n")
    if write:
        PAGE.write_text(with_transcripts(PAGE.read_text("utf-8"), recorded), "utf-8")


if __name__ == "__main__":
    main()
