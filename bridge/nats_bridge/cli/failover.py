"""`nats-bridge failover`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import click

from nats_bridge.cli.asking import ask, show
from nats_bridge.cli.connection_options import connection_options, known_connections
from nats_bridge.cli.options import only_permissions, print_permissions
from nats_bridge.errors import EXIT_GOOD, EXIT_NO, ConfigError
from nats_bridge.observability.printable import printable

if TYPE_CHECKING:
    from nats_bridge.jobs.failover.account import AccountState
    from nats_bridge.jobs.failover.plan import ConsumerMove, FailoverPlan, StreamPlan
    from nats_bridge.settings import Settings


_NAMED: Final = 10  # ranges that a line names


@click.command("failover")
@connection_options
@click.option("--to", "target", metavar="NAME", help="With -c: the connection with the copies.")
@click.option("--stream", metavar="NAME", help="Only the copies of this stream.")
@click.option(
    "--save",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Instead of planning, save streams, consumers and their positions for a later plan.",
)
@click.option(
    "--saved",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Use a file of --save instead of a connection to the source.",
)
@click.option(
    "--out",
    "folder",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Write the consumers' configurations to this directory.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def failover_command(save: Path | None, saved: Path | None, folder: Path | None, as_json: bool, **given: Any) -> int:
    """Plan how to move durable consumers to the copies of their streams. The plan shows where each consumer begins, and
    which messages are redelivered or lost. No server is changed.

    The plan includes streams that rules of the configuration copy from one connection (--server) to the other (--to),
    and streams that servers copy natively. The files in --out are CONSUMER.CREATE requests. You can also create the
    consumers with `nats consumer add STREAM --config FILE`. A plan from a --save file covers only the state at the time
    of the save, so save regularly. An existing file is replaced only when the new one is complete.

    Exit codes: 0 every consumer can continue with its next message, or the state was saved; 1 a consumer cannot, no
    stream is copied, or a stream or consumer did not answer.

    \b
    Example:
      nats-bridge failover -c bridge.yaml --server west --save west.json
      nats-bridge failover -c bridge.yaml --server west --to east --saved west.json --out consumers
      nats-bridge failover --server nats://127.0.0.1:4222
    """
    from nats_bridge.jobs.failover.account import load_account, saving_needs
    from nats_bridge.jobs.failover.plan import failover_needs, make_plan

    settings, source = known_connections(**given)
    target, stream = given["target"] or source, given["stream"] or ""
    if save is not None:
        if given["target"] or stream or saved or folder or as_json:
            raise click.UsageError("--save saves the whole account and does not plan: remove the options of the plan")
        if only_permissions():
            return print_permissions(settings, (source,), saving_needs(source))
        return _save(settings, source, save)
    if target not in settings.connections:
        raise ConfigError(f"--to {target}: no such connection; known connections: {', '.join(settings.connections)}")
    if only_permissions():
        return print_permissions(settings, (source, target), failover_needs(source, target))
    account = load_account(saved) if saved is not None else None
    plan = ask(make_plan(settings, source, target, stream, account))
    files = _write(plan, folder) if folder is not None else {}
    show(plan.as_dict, lambda: _lines(plan, files, is_saved=saved is not None), as_json=as_json)
    return EXIT_GOOD if plan.good else EXIT_NO


def _save(settings: Settings, name: str, file: Path) -> int:
    from nats_bridge.jobs.failover.account import save_account

    account = ask(_read(settings, name))
    save_account(account, file)
    silent = [f"stream {each}" for each in account.silent]
    silent += [f"{number} consumers of {each}" for each, number in account.unlisted.items()]
    consumers = [each for several in account.consumers.values() for each in several]
    durable = sum("durable_name" in each["config"] for each in consumers)
    click.echo(f"{file}: streams: {len(account.streams):,}, durable consumers: {durable:,}, as of {account.taken}")
    for each in silent:
        click.echo(f"without {printable(each)}: no answer", err=True)
    return EXIT_NO if silent else EXIT_GOOD


async def _read(settings: Settings, name: str) -> AccountState:
    from nats_bridge.client.connection_pool import connected
    from nats_bridge.jobs.failover.account import read_account

    async with connected(settings, {name}) as connections:
        return await read_account(connections[name])


def _write(plan: FailoverPlan, folder: Path) -> dict[tuple[str, str], Path]:
    """Write the consumers' configurations. Return the file of each."""
    written = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for stream in plan.streams:
            for move in stream.moves:
                if move.request is not None:
                    file = folder / f"{quote(stream.target, safe='')}.{quote(move.name, safe='')}.json"
                    file.write_text(json.dumps(move.request, indent=2, ensure_ascii=False) + "\n", "utf-8")
                    written[stream.target, move.name] = file
    except OSError as error:
        raise ConfigError(f"--out {folder}: {error.strerror}") from None
    return written


def _lines(plan: FailoverPlan, files: dict[tuple[str, str], Path], *, is_saved: bool) -> Iterator[str]:
    if is_saved:
        taken = printable(plan.taken)
        yield f"as of {taken}: messages acknowledged later are redelivered; messages stored later are not in the plan"
    for stream in plan.streams:
        yield from _of_stream(stream, files, is_saved=is_saved)
    for name in plan.silent:
        yield printable(f"no answer about stream {name}")
    if not plan.streams:
        yield "no stream is copied between these connections"


def _of_stream(stream: StreamPlan, files: dict[tuple[str, str], Path], *, is_saved: bool) -> Iterator[str]:
    yield printable(f"{stream.source} -> {stream.target}, by {', '.join(stream.by)}: {_state(stream)}")
    for problem in stream.problems:
        yield f"  {click.style('no', fg='red')}: {printable(problem)}"
    if stream.unlisted:
        yield f"  {click.style('no', fg='red')}: {stream.unlisted} consumers did not answer"
    for move in stream.moves:
        yield from _of_consumer(stream, move, files.get((stream.target, move.name)), is_saved=is_saved)
    if stream.ephemeral:
        yield f"  ephemeral, created by their clients: {', '.join(stream.ephemeral[:_NAMED])}" + (
            f" and {len(stream.ephemeral) - _NAMED:,} more" if len(stream.ephemeral) > _NAMED else ""
        )
    if stream.back.entry is not None:
        yield f"  way back: {json.dumps(stream.back.entry, ensure_ascii=False)}"
    else:
        yield f"  no way back: {printable(stream.back.obstacle)}"


def _state(stream: StreamPlan) -> str:
    if not stream.newest_at:
        return f"nothing of {stream.source_last:,} is copied"
    return f"copied to {stream.copied:,} of {stream.source_last:,}, the last copy is at {stream.newest_at:,}"


def _of_consumer(stream: StreamPlan, move: ConsumerMove, file: Path | None, *, is_saved: bool) -> Iterator[str]:
    from nats_bridge.jobs.failover.plan import ranges

    mark = click.style("ok", fg="green") if move.good else click.style("no", fg="red")
    place = f"begins at {move.begins:,}" if move.request is not None else "cannot be moved"
    yield f"  {mark}  {printable(move.name)}: acknowledged to {move.place.floor:,}, {place}"
    for problem in move.problems:
        yield f"      {printable(problem)}"
    if move.place.redelivered:
        rest = max(len(move.place.redelivered) - move.outstanding, 0)
        also = f"; it has acknowledged {rest:,} of them" if rest else ""
        yield f"      redelivered: {_listed(ranges(move.place.redelivered))}{also}"
    if move.place.again:
        again = _listed(ranges(move.place.again))
        yield f"      redelivered, although acknowledged: {again}, copied after later ones"
    if move.place.foreign:
        yield f"      receives {move.place.foreign:,} messages that are no copies of {stream.source}"
    unsure = "perhaps " if is_saved else ""
    if move.acknowledged:
        yield f"      {unsure}acknowledged, and not in {stream.target}: {_listed(move.acknowledged)}"
    if move.missing:
        yield f"      {unsure}not acknowledged, and not in {stream.target}: {_listed(move.missing)}"
    for note in move.notes:
        yield f"      {printable(note)}"
    if file is not None:
        yield f"      {file}"


def _listed(found: tuple[tuple[int, int], ...]) -> str:
    shown = [f"{first:,}" if first == last else f"{first:,} to {last:,}" for first, last in found[:_NAMED]]
    return ", ".join(shown) + (f" and {len(found) - _NAMED:,} more" if len(found) > _NAMED else "")
