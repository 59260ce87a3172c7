"""`nats-bridge demo`: runs native republish next to the bridge's on one stream, and compares them."""

import asyncio
import json
import tempfile
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import click

from nats_conformance.catalogue.case import Message
from nats_conformance.implementations.bridge_process import RunningSidecar
from nats_conformance.native_servers import NativeServer, fetch
from nats_conformance.raw_client import Collected, RawClient

_ORDERS = [
    Message(b"orders.eu.42", b"", b'{"total": 17}'),
    Message(b"orders.us.7", b"NATS/1.0\r\nCustomer: Ada\r\n\r\n", b'{"total": 3}'),
    Message(b"orders.eu.42", b"NATS/1.0\r\nTag: a\r\nTag: b\r\ntag:  spaced \r\n\r\n", b'{"total": 18}'),
    Message(b"orders.eu.43", b"NATS/1.0\r\nNats-Sequence: 999\r\n\r\n", b""),
    Message(b"orders.us.7", "NATS/1.0\r\nName: Zoë\r\n\r\n".encode(), b'{"total": 4}'),
    Message(b"invoices.1", b"", b"not meant by the rule"),
    Message(b"orders.eu.42", b"NATS/1.0\r\nNats-Msg-Id: once\r\n\r\n", b'{"total": 19}'),
    Message(b"orders.eu.42", b"NATS/1.0\r\nNats-Msg-Id: once\r\n\r\n", b'{"total": 19}'),
]
_REPUBLISHED = len(_ORDERS) - 2
"""The stream refuses one as a duplicate, and one is for another rule's subject."""
_DESTINATION = "{{partition(3,1,2)}}.{{wildcard(1)}}.{{wildcard(2)}}"
_CONFIGURATION = Path(__file__).with_name("demo.json")
"""The stream of the server, and the configuration of the bridge without its connections."""


async def _demonstrate(url: str, folder: Path) -> tuple[list[Message], list[Message]]:
    """Create a stream with native republish, run a sidecar next to it, publish, and return what each republished.

    The subjects come back without their first token. The server at `url` has JetStream and is 2.10 or newer.
    """
    given = json.loads(_CONFIGURATION.read_text("utf-8"))
    given["bridge"]["connections"] = {"default": {"servers": [url]}}
    configuration = folder / "demo.yaml"
    configuration.write_text(json.dumps(given["bridge"]), "utf-8")
    client = await RawClient.connect(url)
    try:
        await client.api("STREAM.CREATE.ORDERS", given["stream"])
        native, bridged = await client.subscribe(b"native.>"), await client.subscribe(b"bridge.>")
        sidecar = await RunningSidecar.start(configuration)
        try:
            for order in _ORDERS:
                client.publish(order)
            for side in (native, bridged):
                await client.arrived(side, _REPUBLISHED)
            await sidecar.stop()  # before it ends, it republishes everything stored
        finally:
            await sidecar.kill()
        await client.flush()
        return _without_first_token(native), _without_first_token(bridged)
    finally:
        await client.close()


def _without_first_token(side: Collected) -> list[Message]:
    return [replace(each, subject=each.subject.partition(b".")[2]) for each in side.messages]


def command(version: str = "2.15.3") -> int:
    """Run the demo and print it. Return the exit code: 0 if both sides are equal, byte for byte and in order.

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
        native, bridged = asyncio.run(_demonstrate(server.url, Path(folder)))
    click.echo("4. What came out:\n")
    for pair in zip_longest(native, bridged):
        for side, shown in zip(("native", "bridge"), pair, strict=True):
            _show(side, shown)
        same = pair[0] == pair[1]
        click.echo(click.style("   same bytes\n" if same else "   DIFFERENT\n", fg="green" if same else "red"))
    if native and native == bridged:
        click.echo(f"{len(native)} of {len(native)} republished messages agree: subject, header bytes, payload, order.")
        return 0
    click.echo(f"They do not agree: {len(native)} native, {len(bridged)} bridged.")
    return 1


def _show(side: str, shown: Message | None) -> None:
    if shown is None:
        click.echo(f"   {side}  (nothing)")
        return
    click.echo(click.style(f"   {side}  {side}.{shown.subject.decode()}", bold=True) + f"  {shown.payload.decode()}")
    for line in shown.header_block.decode("utf-8", "replace").rstrip("\r\n").split("\r\n")[1:]:
        click.echo(f"           {line}")


@click.command("demo")
@click.option("--server-version", "version", metavar="V", help="Version of the native server to start.")
def demo_command(version: str | None) -> int:
    """Start a native server, republish a stream natively and with the bridge, and compare the messages byte for byte.

    The exit code is 0 if both sides agree.

    \b
    Example:
      nats-bridge demo
      nats-bridge demo --server-version 2.10.27
    """
    return command(version) if version else command()
