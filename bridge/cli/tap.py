"""`nats-bridge tap`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nats_bridge.bridge.cli.asking import ask, stopping
from nats_bridge.bridge.cli.options import config_option, permissions_option, print_permissions
from nats_bridge.bridge.observability.printable import printable
from nats_bridge.bridge.settings import Settings, load
from nats_bridge.transforms.republish import Refusal
from nats_bridge.transforms.selection import Unselected
from nats_bridge.transforms.subject import text_of
from nats_bridge.transforms.timestamp import rfc3339_nano

if TYPE_CHECKING:
    from nats_bridge.bridge.jobs.tap import Tapped, Wanted


_LAST = b"Nats-Last-Sequence"
"""An added header whose value a tap does not look up."""


@click.command("tap")
@config_option
@click.argument("rule", metavar="RULE")
@click.option("--subject", default="", metavar="FILTER", help="Only messages with this subject; wildcards are fine.")
@click.option(
    "--from-sequence",
    "first",
    type=click.IntRange(min=1),
    metavar="N",
    help="From there in the rule's streams, none skipped.  [default: new messages]",
)
@click.option("--limit", "most", type=click.IntRange(min=1), metavar="N", help="End after so many messages.")
@click.option(
    "--rate",
    type=click.FloatRange(0.1, 100),
    default=10.0,
    show_default=True,
    metavar="N",
    help="At most so many messages a second.",
)
@click.option("--headers", is_flag=True, help="Show the messages' own headers. They can hold secrets.")
@click.option(
    "--payload",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="Show so much of each payload. It can hold secrets.",
)
@permissions_option
@click.option("--json", "as_json", is_flag=True, help="One JSON document a line on stdout.")
def tap_command(
    config: Path,
    rule: str,
    subject: str,
    first: int | None,
    most: int | None,
    rate: float,
    headers: bool,
    payload: int | None,
    permissions: bool,
    as_json: bool,
) -> int:
    """Show messages of RULE before and after: what it makes of each, or why nothing.

    The messages are those that the rule receives; the results are worked out here, as `nats-bridge test` does. It does
    not touch the sidecar, which need not run, and leaves nothing on servers. Of more new messages than --rate it skips
    some, and reports that on stderr.

    Exit codes: 0 so many are shown; 2 usage or configuration; 3 no server; 130 and 143 stopped by a signal.

    \b
    Example:
      nats-bridge tap monitor -c bridge.yaml --subject 'orders.eu.*' --limit 20
      nats-bridge tap monitor -c bridge.yaml --from-sequence 1 --payload 80 --json
    """
    from nats_bridge.bridge.jobs.tap import Wanted, tap_needs

    settings = load(config)
    wanted = Wanted(settings.rule_named(rule), subject, first or 0, most or 0, rate)
    if permissions:
        return print_permissions(settings, wanted.rule.connections, tap_needs(wanted))
    return ask(_tapped(settings, wanted, headers=headers, payload=payload, as_json=as_json))


async def _tapped(settings: Settings, wanted: Wanted, *, headers: bool, payload: int | None, as_json: bool) -> int:
    from nats_bridge.bridge.jobs.tap import Screen, tap

    def shows(tapped: Tapped) -> None:
        data = _data(tapped, headers=headers, payload=payload)
        if as_json:
            click.echo(json.dumps(data))
        else:
            for line in _lines(data):
                click.echo(line)

    screen = Screen(
        opened=lambda: click.echo(f"tap of rule '{wanted.rule.name}' ({wanted.rule.kind}); Ctrl-C ends it", err=True),
        shows=shows,
        skipped=lambda stream, sequence: click.echo(
            f"skipped to sequence {sequence} of {stream}: more than {wanted.rate:g} messages a second (--rate)",
            err=True,
        ),
    )
    with stopping() as stop:
        await tap(settings, wanted, stop.event, screen)
    return stop.code


def _data(tapped: Tapped, *, headers: bool, payload: int | None) -> dict[str, Any]:
    """What is shown of a message; of the message itself no more than was asked for."""
    incoming, message = tapped.incoming, tapped.incoming.message
    stored = bool(incoming.stream)
    data: dict[str, Any] = {
        "stream": incoming.stream or None,
        "sequence": message.sequence if stored else None,
        "time": rfc3339_nano(message.time_ns).decode(),
        "subject": text_of(message.subject),
        "size": len(message.payload),
        "made": [],
        "nothing": [],
    }
    if headers:
        data["headers"] = [[text_of(name), text_of(value)] for name, value in _headers(message.header_block)]
    if payload:
        data["payload"] = text_of(message.payload[:payload])
    for outcome in tapped.outcomes:
        if isinstance(outcome, Unselected | Refusal):
            data["nothing"].append(outcome.reason)
        else:
            data["made"].append(_made(message.header_block, outcome))
    return data


def _made(before: bytes, outcome: Any) -> dict[str, Any]:
    """What is published or stored, and which headers it has more and less than the message."""
    old, new = Counter(_headers(before)), Counter(_headers(outcome.header_block))
    return {
        "subject": text_of(outcome.subject),
        "size": len(outcome.payload),
        "added": {text_of(name): None if name == _LAST else text_of(value) for name, value in new - old},
        "removed": [text_of(name) for name, _ in old - new],
    }


def _headers(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    for line in block.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            yield name, value.strip(b" \t")


def _lines(data: dict[str, Any]) -> Iterator[str]:
    place = f"{data['stream']} {data['sequence']}  " if data["stream"] else ""
    before = f"{place}{printable(data['subject'])} ({data['size']:,} B)"
    for made in data["made"]:
        size = "" if made["size"] == data["size"] else f" ({made['size']:,} B)"
        yield f"{before} → {printable(made['subject'])}{size}"
        added = [
            f"{printable(name)}: {'?' if value is None else printable(value)}" for name, value in made["added"].items()
        ]
        if added:
            yield f"    added    {', '.join(added)}"
        if made["removed"]:
            yield f"    removed  {', '.join(map(printable, made['removed']))}"
    if not data["made"]:
        yield f"{before} → nothing; {printable('; '.join(data['nothing']))}"
    if "headers" in data:
        for name, value in data["headers"]:
            yield f"    header   {printable(name)}: {printable(value)}"
    if "payload" in data:
        yield f"    payload  {printable(data['payload'])}"
