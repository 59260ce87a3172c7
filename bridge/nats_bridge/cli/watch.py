"""`nats-bridge watch`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from nats_bridge.cli.asking import ask, show, stopping
from nats_bridge.cli.connection_options import connection_options, known_connections
from nats_bridge.cli.options import only_permissions, print_permissions
from nats_bridge.errors import EXIT_GOOD, EXIT_NO
from nats_bridge.observability.printable import printable

if TYPE_CHECKING:
    from nats_bridge.kinds.watching.watch import LinkState
    from nats_bridge.settings import Settings


_BETWEEN = 1.0  # seconds between two looks
_REQUESTS = 200.0  # per second, at most


@click.command("watch")
@connection_options
@click.option(
    "--stalled-after",
    type=click.FloatRange(min=1),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds without progress until a mirror or source with missing messages counts as stalled.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def watch_command(stalled_after: float, as_json: bool, **given: Any) -> int:
    """Check whether every native mirror and source of an account makes progress. If one is stalled, print the likely
    reason and a remedy.

    The command compares the messages in source and target, and does not rely on the lag that the server reports.
    Nothing is changed. The command ends when every mirror and source is up to date, stalled, or still making progress
    after --stalled-after.

    Exit codes: 0 all make progress; 1 a mirror or source is stalled.

    \b
    Example:
      nats-bridge watch --server nats://127.0.0.1:4222
      nats-bridge watch --server prod --stalled-after 30
    """
    settings, name = known_connections(**given)
    if only_permissions():
        from nats_bridge.kinds.watching.permissions import account_needs

        return print_permissions(settings, (name,), account_needs(name))
    return ask(_watched(settings, name, stalled_after, as_json=as_json))


async def _watched(settings: Settings, name: str, stalled_after: float, *, as_json: bool) -> int:
    from nats_bridge.client.connection_pool import connected
    from nats_bridge.client.tasks import happens
    from nats_bridge.kinds.watching.request_rate import RequestRate
    from nats_bridge.kinds.watching.watch import Watch

    states: list[LinkState] = []
    async with connected(settings, {name}) as connections:
        clock = asyncio.get_running_loop().time
        watch = Watch(connections[name], stalled_after, RequestRate(_REQUESTS))
        with stopping() as stop:
            states = await watch.look()
            began = clock()  # progress shows from the second look on, however long the first one took
            while not all(_is_certain(state, clock() - began >= stalled_after) for state in states):
                if await happens(stop.event, within=_BETWEEN):
                    break
                states = await watch.look()
    show(lambda: _data(states), lambda: _lines(states), as_json=as_json)
    return stop.code or (EXIT_GOOD if all(map(_is_good, states)) else EXIT_NO)


def _is_certain(state: LinkState, enough: bool) -> bool:
    return not state.behind or state.reason is not None or (enough and state.stalled == 0)


def _is_good(state: LinkState) -> bool:
    return state.reason is None and state.condition != "unknown"


def _data(states: Sequence[LinkState]) -> dict[str, Any]:
    return {"ok": all(map(_is_good, states)), "links": [state.as_dict() for state in states]}


def _lines(states: Sequence[LinkState]) -> Iterator[str]:
    if not states:
        yield "no stream in this account is a mirror or has sources"
    for state in states:
        yield from _of_link(state)


def _of_link(state: LinkState) -> Iterator[str]:
    if state.condition == "unknown":
        why = state.reason.text if state.reason else "its server does not answer"
        yield f"{click.style('no ', fg='red')} {printable(state.link.name)}: unknown: {printable(why)}"
    elif state.reason is None:
        missing = "up to date" if not state.missing else f"{state.missing:,} missing, makes progress"
        yield f"{click.style('ok ', fg='green')} {printable(state.link.name)}: {missing}, at {state.position:,}"
    else:
        missing = "messages are missing" if not state.missing else f"{state.missing:,} missing"
        lag = ", although the server reports lag 0" if state.reported_lag == 0 else ""
        yield (
            f"{click.style('no ', fg='red')} {printable(state.link.name)}: stalled for {state.stalled:,.0f} s at"
            f" {state.position:,}, {missing}{lag}"
        )
        yield f"    likely: {printable(state.reason.text)}"
        yield f"    remedy: {printable(state.reason.remedy)}"
    if state.overtaken:
        yield f"    lost: the source removed {state.overtaken:,} sequences before they were copied"
