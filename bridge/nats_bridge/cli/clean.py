"""`nats-bridge clean`: removes the durable consumers that keep the rules' positions, and leases."""

from collections.abc import Sequence
from pathlib import Path

import click

from nats_bridge.cli.asking import ask
from nats_bridge.cli.options import config_option
from nats_bridge.client.connection_pool import connected
from nats_bridge.client.jetstream_api import STREAM_NOT_FOUND, JetStreamApi
from nats_bridge.consuming.consumer_plan import Durable, marker_name
from nats_bridge.errors import ApiError
from nats_bridge.rule_kinds import kind_of
from nats_bridge.rules.leadership.lease_store import remove_lease
from nats_bridge.settings import Settings, load


async def clean(settings: Settings, rules: Sequence[str]) -> list[str]:
    """Delete the rules' durable consumers and leases. At its next start such a rule follows its `start` setting again.

    Args:
        rules: names of rules; empty for all rules.

    Returns:
        One line per rule: the consumer that was removed, or that nothing was found. With replicas, also a line about
            its lease.

    Raises:
        ConfigError: a rule of that name does not exist.
        ServerUnreachableError, CredentialsError, ApiError: a server does not answer.
    """
    chosen = [settings.rule_named(name) for name in rules] or list(settings.rules)
    leases = settings.leadership
    durables = {rule.name: kind_of(rule).durables(rule, settings.name) for rule in chosen}
    names = {durable.connection for each in durables.values() for durable in each}
    async with connected(settings, names | ({leases.connection} if leases is not None else set())) as connections:
        lines = []
        if leases is not None:
            api = connections[leases.connection].api
            for rule in chosen:
                removed = await remove_lease(api, leases.bucket, settings.name, rule.name)
                what = "removed" if removed else "nothing to remove:"
                lines.append(f"rule '{rule.name}': {what} lease in bucket '{leases.bucket}'")
        for rule in chosen:
            if not durables[rule.name]:
                lines.append(f"rule '{rule.name}': nothing to remove: it keeps nothing on a server")
            for durable in durables[rule.name]:
                what = await _remove(connections[durable.connection].api, durable)
                lines.append(f"rule '{rule.name}': {what} consumer '{durable.name}' of stream '{durable.stream}'")
        return lines


async def _remove(api: JetStreamApi, durable: Durable) -> str:
    try:
        info = await api.consumer_info(durable.stream, durable.name)
        if info is None:
            return "nothing to remove:"
        if not str(info["config"].get("description", "")).startswith(durable.owner):
            return "left alone, because it is not this rule's:"
        await api.delete_consumer(durable.stream, marker_name(durable.name))
        await api.delete_consumer(durable.stream, durable.name)
    except ApiError as error:
        if error.err_code != STREAM_NOT_FOUND:
            raise
        return "nothing to remove:"
    return "removed"


@click.command("clean")
@config_option
@click.argument("rules", nargs=-1, metavar="[RULE…]")
def clean_command(config: Path, rules: tuple[str, ...]) -> None:
    """Remove the sidecar's durable consumers and leases from servers, for the given rules or for all.

    The rules lose their positions, so each begins at its `start` again.

    \b
    Example:
      nats-bridge clean -c config/republish-monitor.yaml
      nats-bridge clean -c config/republish-monitor.yaml orders-monitor
    """
    for line in ask(clean(load(config), rules)):
        click.echo(line)
