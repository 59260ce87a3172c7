"""`nats-bridge status`."""

import contextlib
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import click

from nats_bridge.cli.status.asking import (
    DEFAULT_URL,
    ask_for_status,
    ask_whether_alive,
    status_url,
    url_of_listener,
)
from nats_bridge.cli.status.table import status_lines
from nats_bridge.errors import EXIT_GOOD, EXIT_NO, ServerUnreachableError

_PLAIN_WIDTH = 160  # columns if the output is not a terminal
_BETWEEN = 1.0  # seconds from one look of --watch to the next


@click.command("status")
@click.option("--url", metavar="URL", help=f"The sidecar's HTTP address.  [default: {DEFAULT_URL}]")
@click.option(
    "-c",
    "--config",
    "config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Ask the sidecar at the http.listen of this configuration instead.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--live", is_flag=True, help="Check only whether the process is alive.")
@click.option("--watch", is_flag=True, help="Refresh every second until Ctrl-C.")
def status_command(url: str | None, config: Path | None, as_json: bool, live: bool, watch: bool) -> int:
    """Show a running sidecar: its rules, rates, lag and last errors.

    Exit codes: 0 the sidecar is ready; 1 it is not, and the output lists the reasons; 3 it does not answer.

    \b
    Example:
      nats-bridge status
      nats-bridge status --watch
      nats-bridge status -c config/republish-monitor.yaml --json
    """
    if live and (watch or as_json):
        raise click.UsageError("--live cannot be combined with --watch or --json: it requests /livez once")
    if watch and as_json:
        raise click.UsageError("--watch cannot be combined with --json: run --json repeatedly instead")
    address = _address(url, config)
    if live:
        lives, reported = ask_whether_alive(address)
        click.echo(reported.rstrip())
        return EXIT_GOOD if lives else EXIT_NO
    if watch:
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is the way to end it
            _show_again_and_again(address)
        return EXIT_GOOD
    document = ask_for_status(address, history=as_json)
    _print(document, as_json)
    return EXIT_GOOD if document["ready"] else EXIT_NO


def _address(url: str | None, config: Path | None) -> str:
    if url is not None and config is not None:
        raise click.UsageError("--url and -c cannot be combined; remove one of them")
    if config is None:
        return status_url(DEFAULT_URL if url is None else url)
    from nats_bridge.settings import load  # not for a probe, which asks again and again, by URL

    return status_url(url_of_listener(load(config, unreadable=[]).http.address))


def _print(document: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(document, indent=2))
        return
    width = shutil.get_terminal_size((_PLAIN_WIDTH, 24)).columns if sys.stdout.isatty() else _PLAIN_WIDTH
    for line in status_lines(document, width):
        click.echo(line)


def _show_again_and_again(address: str) -> None:
    document: dict[str, Any] | None = None
    while True:
        silent = ""
        try:
            document = ask_for_status(address, history=False)
        except ServerUnreachableError as error:
            silent = str(error)
        if sys.stdout.isatty():
            size = shutil.get_terminal_size()
            sys.stdout.write("\x1b[H\x1b[2J" + "\n".join(_frame(document, silent, size.columns, size.lines)))
        else:  # a file or a pipe has room for all
            lines = [silent] if silent or document is None else status_lines(document, _PLAIN_WIDTH)
            sys.stdout.write("\n".join([*lines, "", ""]))
        sys.stdout.flush()
        time.sleep(_BETWEEN)


def _frame(document: dict[str, Any] | None, silent: str, width: int, height: int) -> list[str]:
    """Return the lines that fit on the screen."""
    head = [click.style(silent[:width], fg="red")] if silent else []
    foot = [click.style("Ctrl-C ends"[:width], dim=True)]
    if document is None:
        return [*head, *foot][-height:]
    lines, room = status_lines(document, width), height - len(head) - len(foot)
    if len(lines) > room:
        # Not all can be shown, so rules that are not ready come first.
        rules = sorted(document["rules"], key=lambda rule: rule.get("ready") is True)
        lines = status_lines({**document, "rules": rules}, width)[: max(room, 0)]
    return [*head, *lines, *foot][-height:]
