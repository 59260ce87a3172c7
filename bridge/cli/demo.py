"""`nats-bridge demo`: runs native republish next to the bridge's on one stream, and compares them."""

from __future__ import annotations

import asyncio
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import click

from nats_bridge.bridge.app.sidecar import Sidecar
from nats_bridge.bridge.client.operations import publication
from nats_bridge.bridge.client.wire import Delivered, WireClient
from nats_bridge.bridge.settings import Settings
from nats_bridge.native_servers import NativeServer, fetch

_ORDERS = [
    (b"orders.eu.42", b"", b'{"total": 17}'),
    (b"orders.us.7", b"NATS/1.0\r\nCustomer: Ada\r\n\r\n", b'{"total": 3}'),
    (b"orders.eu.42", b"NATS/1.0\r\nTag: a\r\nTag: b\r\ntag:  spaced \r\n\r\n", b'{"total": 18}'),
    (b"orders.eu.43", b"NATS/1.0\r\nNats-Sequence: 999\r\n\r\n", b""),
    (b"orders.us.7", "NATS/1.0\r\nName: Zoë\r\n\r\n".encode(), b'{"total": 4}'),
    (b"invoices.1", b"", b"not meant by the rule"),
    (b"orders.eu.42", b"NATS/1.0\r\nNats-Msg-Id: once\r\n\r\n", b'{"total": 19}'),
    (b"orders.eu.42", b"NATS/1.0\r\nNats-Msg-Id: once\r\n\r\n", b'{"total": 19}'),
]
_DESTINATION = "{{partition(3,1,2)}}.{{wildcard(1)}}.{{wildcard(2)}}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The messages that each side republished: (subject without its first token, header block, payload)."""

    native: list[tuple[bytes, bytes, bytes]]
    bridged: list[tuple[bytes, bytes, bytes]]

    @property
    def agree(self) -> bool:
        """Whether both sides are equal, byte for byte and in order."""
        return bool(self.native) and self.native == self.bridged


class _Seen:
    """Collects what arrives under one first token, without that token, until a given stream sequence."""

    def __init__(self, last_sequence: int) -> None:
        self.messages: list[tuple[bytes, bytes, bytes]] = []
        self.complete = asyncio.Event()
        self._mark = b"\r\nNats-Sequence: %d\r\n" % last_sequence

    def add(self, batch: list[Delivered]) -> None:
        for subject, _, block, payload in batch:
            self.messages.append((subject.partition(b".")[2], block, payload))
            if self._mark in block:
                self.complete.set()


async def _demonstrate(url: str) -> Outcome:
    """Create a stream with native republish, run a sidecar next to it, publish, and collect both results.

    Args:
        url: a server with JetStream, 2.10 or newer.
    """
    client = WireClient()
    await client.connect(url)
    try:
        stream = {
            "name": "ORDERS",
            "subjects": ["orders.>", "invoices.>"],
            "storage": "memory",
            "republish": {"src": "orders.*.*", "dest": f"native.{_DESTINATION}"},
        }
        await client.request("$JS.API.STREAM.CREATE.ORDERS", json.dumps(stream).encode(), timeout=10)
        rule = {
            "name": "demo",
            "kind": "republish",
            "stream": "ORDERS",
            "republish": {"src": "orders.*.*", "dest": f"bridge.{_DESTINATION}"},
        }
        settings = Settings.model_validate(
            {
                "name": "nats-bridge-demo",
                "connections": {"default": {"servers": [url]}},
                "http": {"listen": ""},
                "fail_fast": True,
                "dialect": "native",
                "rules": [rule],
            }
        )
        # The last order is a duplicate that the stream refuses, so it is one message shorter.
        native, bridged = _Seen(len(_ORDERS) - 1), _Seen(len(_ORDERS) - 1)
        await client.subscribe_batches("native.>", native.add, lambda *_: None)
        await client.subscribe_batches("bridge.>", bridged.add, lambda *_: None)
        await client.flush()
        sidecar = Sidecar(settings)
        await sidecar.start()
        try:
            for subject, block, payload in _ORDERS:
                client.write_raw(publication(subject, b"", block, payload))
            async with asyncio.timeout(30):
                await native.complete.wait()
                await bridged.complete.wait()
        finally:
            await sidecar.stop()
        return Outcome(native.messages, bridged.messages)
    finally:
        await client.close()


def command(version: str = "2.15.3") -> int:
    """Run the demo and print it; return the exit code: 0 if both sides agree.

    Raises:
        ServersError: no server of that version could be had.
    """
    click.echo(f"1. A native server {version}:")
    binary = fetch(version, report=lambda line: click.echo(f"   {line}"))
    with tempfile.TemporaryDirectory() as folder, NativeServer(binary=binary, store_dir=Path(folder)) as server:
        click.echo(f"   running at {server.url}")
        click.echo("2. Stream ORDERS (orders.>, invoices.>), republished twice from orders.*.*:")
        click.echo(f"   by the server itself to native.{_DESTINATION}")
        click.echo(f"   by nats-bridge       to bridge.{_DESTINATION}")
        click.echo(f"3. {len(_ORDERS)} messages published, one of them for another rule's subject, one a duplicate.")
        outcome = asyncio.run(_demonstrate(server.url))
    click.echo("4. What came out:\n")
    for number in range(max(len(outcome.native), len(outcome.bridged))):
        _show("native", outcome.native, number)
        _show("bridge", outcome.bridged, number)
        same = outcome.native[number : number + 1] == outcome.bridged[number : number + 1]
        click.echo(click.style("   same bytes\n" if same else "   DIFFERENT\n", fg="green" if same else "red"))
    count = len(outcome.native)
    if outcome.agree:
        click.echo(f"{count} of {count} republished messages agree: subject, header bytes, payload, order.")
        return 0
    click.echo(f"They do not agree: {count} native, {len(outcome.bridged)} bridged.")
    return 1


def _show(side: str, messages: list[tuple[bytes, bytes, bytes]], number: int) -> None:
    if number >= len(messages):
        click.echo(f"   {side}  (nothing)")
        return
    subject, block, payload = messages[number]
    lines = block.decode("utf-8", "replace").rstrip("\r\n").split("\r\n")[1:]
    click.echo(click.style(f"   {side}  {side}.{subject.decode()}", bold=True) + f"  {payload.decode()}")
    for line in lines:
        click.echo(f"           {line}")


@click.command("demo")
@click.option("--server-version", "version", metavar="V", help="Version of the native server to start.")
def demo_command(version: str | None) -> int:
    """Start a native server, republish a stream natively and with the bridge, and compare what comes out.

    Exit code 0: both sides agree, byte for byte. It removes everything afterwards.

    \b
    Example:
      nats-bridge demo
      nats-bridge demo --server-version 2.10.27
    """
    return command(version) if version else command()
