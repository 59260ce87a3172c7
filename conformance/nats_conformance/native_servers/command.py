"""`nats-conform servers`: lists native servers in reach, and gets more."""

import sys

import click

from nats_conformance.native_servers.errors import ServersError
from nats_conformance.native_servers.fetching import available, fetch


@click.group()
def servers() -> None:
    """Fetch and list native NATS servers, which are kept in a cache folder.

    \b
    Example:
      nats-conform servers fetch 2.10.27 2.15
      nats-conform servers list
    """


@servers.command("list")
def list_servers() -> None:
    """List the servers on PATH and in the cache.

    \b
    Example:
      nats-conform servers list
    """
    found = available()
    for one in found:
        click.echo(f"{one.version:<10} {one.origin:<6} {one.binary}")
    if not found:
        click.echo("no native server found; fetch one with: nats-conform servers fetch 2.15", err=True)


@servers.command("fetch")
@click.argument("versions", nargs=-1, required=True, metavar="V...")
def fetch_servers(versions: tuple[str, ...]) -> None:
    """Fetch native servers and print the path of each one.

    V is a full version (2.10.27), or a minor line (2.10) for its newest patch. The command tries PATH, the
    cache, go install and Debian packages (without root), in this order. It reports each step on stderr.

    \b
    Example:
      nats-conform servers fetch 2.9.10 2.10.27 2.15.3
    """
    for version in versions:
        try:
            binary = fetch(version, report=lambda text: click.echo(text, err=True))
        except ServersError as error:
            click.echo(f"nats-conform servers fetch: {error}", err=True)
            sys.exit(error.exit_code)
        click.echo(str(binary))
