"""Finds the handoff of a rule's kind."""

from dataclasses import replace

from nats_bridge.client.connection import Connection
from nats_bridge.client.connection_pool import connected
from nats_bridge.client.jetstream_api import JetStreamApi
from nats_bridge.errors import ApiError, ConfigError
from nats_bridge.rule_kinds import kind_of
from nats_bridge.rules.handoff.answer import Handoff, Wish, refused
from nats_bridge.rules.leadership.lease_store import remove_lease
from nats_bridge.settings import Rule, Settings


async def hand_over(settings: Settings, name: str, wish: Wish) -> Handoff:
    """Return the configuration that takes over from a rule, after sending it if the wish says `apply`.

    Args:
        wish: how.

    Raises:
        ConfigError: the rule or the source does not exist.
        BridgeError: a server cannot be reached or does not answer, a stream does not exist, or the update was refused.
    """
    rule = settings.rule_named(name)
    kind = kind_of(rule)
    if reason := kind.refuses_handoff(rule):
        return refused(reason)
    _check_sources(rule, wish)
    leases = settings.leadership
    names = set(rule.connections) | ({leases.connection} if leases is not None and wish.apply else set())
    async with connected(settings, names) as connections:
        answer = await kind.handoff(rule, settings, connections, wish)
        if answer.ok and wish.apply:
            taken = await kind.take_over(rule, settings, connections, answer, wish)
            answer = taken or await _sent(connections[rule.connections[0]], answer)
            if answer.ok and leases is not None and kind.durables(rule, settings.name):
                answer = await _without_lease(
                    connections[leases.connection].api, leases.bucket, settings.name, answer, name
                )
        return answer


async def _sent(connection: Connection, answer: Handoff) -> Handoff:
    """Send the update to the connection of the stream that it is about: the first that a rule names."""
    assert answer.update is not None
    request = f"STREAM.UPDATE.{answer.update['name']}"
    await connection.api.request(request, answer.update)
    return Handoff(answer.update, (*answer.steps, f"Sent: {connection.api.subject(request)} was accepted."))


async def _without_lease(api: JetStreamApi, bucket: str, sidecar: str, answer: Handoff, rule: str) -> Handoff:
    """Remove the rule's lease: a later rule of that name must not resume at the position in it."""
    try:
        await remove_lease(api, bucket, sidecar, rule)
    except ApiError as error:
        step = f"Remove the rule's lease: nats-bridge clean -c FILE {rule}. This command could not ({error})."
        return replace(answer, steps=(*answer.steps, step))
    return answer


def _check_sources(rule: Rule, wish: Wish) -> None:
    sources = {source.name for source in rule.entries}
    for source in wish.after:
        if source not in sources:
            known = f"; its sources are {', '.join(sorted(sources))}" if sources else ""
            raise ConfigError(f"--after {source}=…: rule '{rule.name}' copies nothing from it{known}")
