"""Hands over rules of kind republish.

Native republish has no position: it begins with the first message that is stored after the update. The bridge must
finish the messages that were stored earlier and not yet republished; `takeover` does that.
"""

from collections.abc import Mapping

from nats_bridge.client.account_identity import same_account
from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import Json
from nats_bridge.consuming.consumer_plan import durable_name
from nats_bridge.consuming.missing_streams import existing_stream
from nats_bridge.errors import ConsumerInUseError
from nats_bridge.kinds.republish.model import RepublishRule
from nats_bridge.kinds.republish.takeover import take_over_from_sidecar
from nats_bridge.rules.handoff.answer import NO_SERVER_SELECTS, OTHERWISE, Handoff, Wish, refused, stop
from nats_bridge.rules.handoff.stream_body import body_of, examined
from nats_bridge.settings import Settings
from nats_transforms.dialect import server_dialect


async def take_over(
    rule: RepublishRule, settings: Settings, connections: Mapping[str, Connection], answer: Handoff, wish: Wish
) -> Handoff | None:
    """Republish up to the server's first message; see `RuleKind.take_over`."""
    if wish.back or not rule.durable or len(answer.steps) == 1:  # one step reports that it is done already
        return None
    assert answer.update is not None
    dialect = settings.dialect_of(rule)
    try:
        end = await take_over_from_sidecar(rule, settings.name, dialect, connections, answer.update)
    except ConsumerInUseError:
        return refused(
            f"a sidecar still runs the rule (consumer '{durable_name(settings.name, rule.name)}' of stream"
            f" '{rule.stream}' is in use): stop all replicas of the sidecar, then run this command again"
        )
    return Handoff(
        answer.update,
        (
            f"Sent. Stream '{rule.stream}': everything up to sequence {end} was republished by the bridge, the server"
            f" republishes what comes after it.",
            f"The rule's consumer is deleted; do not start rule '{rule.name}' again.",
            *_weaker_delivery(rule),
        ),
    )


async def hand_over(rule: RepublishRule, settings: Settings, connections: Mapping[str, Connection]) -> Handoff:
    """Return the configuration that takes over; see `RuleKind.handoff`."""
    source, target = connections[rule.source_connection], connections[rule.target_connection]
    info = await existing_stream(source, rule.name, rule.stream)
    config, place = info["config"], f"stream '{rule.stream}'"
    wanted: Json = {"src": rule.republish.src or ">", "dest": rule.republish.dest}
    if rule.republish.headers_only:
        wanted["headers_only"] = True
    present = config.get("republish")
    if present and _same(present, wanted):
        return Handoff(body_of(config), (f"Rule '{rule.name}' is handed over: {place} republishes so natively.",))
    problems = []
    if rule.exclude:
        problems.append(
            f"exclude {', '.join(rule.exclude)}: servers have no such option and would republish these: select "
            "the messages with republish.src, or keep this rule on the bridge"
        )
    if rule.where is not None:
        problems.append(f"where: {NO_SERVER_SELECTS}")
    if present:
        problems.append(
            f"{place} republishes natively already, {present['src']} to {present['dest']}, and a stream has only one"
            " republish: leave this rule to the bridge, or take the native one out"
        )
    if target is not source and not await same_account(source, target, patiently=True):
        problems.append(
            f"to: {rule.target_connection}: a server republishes only in the account of the stream: leave this rule to"
            " the bridge"
        )
    if not server_dialect(source.server_version).republish_can_be_edited:
        problems.append(
            f"server {source.server_version} refuses to change republish of an existing stream (10052): upgrade it"
            " first (the bridge keeps republishing), then run handoff again"
        )
    if problems:
        return refused(*problems)
    body = body_of(config) | {"republish": wanted}
    return await examined(source, body, config, await _steps(rule, settings, source))


async def hand_back(rule: RepublishRule, settings: Settings, connections: Mapping[str, Connection]) -> Handoff:
    """Return the configuration without the native republish that the rule repeats."""
    source = connections[rule.source_connection]
    info = await existing_stream(source, rule.name, rule.stream)
    config, place = info["config"], f"stream '{rule.stream}'"
    present = config.get("republish")
    wanted = {
        "src": rule.republish.src or ">",
        "dest": rule.republish.dest,
        "headers_only": rule.republish.headers_only,
    }
    if not present:
        return refused(f"{place} has no native republish: there is nothing to take back; start the sidecar")
    if not _same(present, wanted):
        return refused(
            f"{place} republishes {present['src']} to {present['dest']}, and the rule {wanted['src']} to"
            f" {wanted['dest']}: write the rule's republish as the server's"
        )
    if not server_dialect(source.server_version).republish_can_be_edited:
        return refused(
            f"server {source.server_version} refuses to change republish of an existing stream (10052): it stays native"
        )
    body = body_of(config)
    del body["republish"]
    steps = []
    consumer = durable_name(settings.name, rule.name)
    if rule.durable and await source.api.consumer_info(rule.stream, consumer):
        steps.append(
            f"Remove the position of earlier times, consumer '{consumer}': nats-bridge clean -c FILE {rule.name}."
            " The sidecar would republish everything since then again."
        )
    last = int(info["state"]["last_seq"])
    return Handoff(
        body,
        (
            *steps,
            "Stop the publishers for a moment: native republish keeps no position, so it is unknown whether a"
            " message that is stored around the update was republished.",
            f"Send the update to {source.api.subject('STREAM.UPDATE.' + rule.stream)}: the server stops republishing.",
            f"Write start: {{sequence: {last + 1}}} into the rule (the stream's last sequence, {last} now, plus 1) and"
            " start the sidecar; it republishes from there on, and start counts only this once.",
            "Start the publishers again.",
        ),
    )


def _same(one: Json, other: Json) -> bool:
    return all((one.get(name) or "") == (other.get(name) or "") for name in ("src", "dest", "headers_only"))


async def _steps(rule: RepublishRule, settings: Settings, connection: Connection) -> list[str]:
    begun = (
        f"Send the update to {connection.api.subject('STREAM.UPDATE.' + rule.stream)}: server"
        f" {connection.server_version} republishes what is stored from then on, and nothing that was stored before."
    )
    if not rule.durable:
        return [
            f"{stop(settings)}. The rule keeps no position (durable: false): what is stored until the update"
            " is not republished.",
            begun,
            *_weaker_delivery(rule),
        ]
    state = (await connection.api.stream_info(rule.stream))["state"]
    return [
        f"{stop(settings)}. Publishers need not pause.",
        "Run this command again with --apply. It takes the rule over from the stopped sidecar, sends the update, sees"
        " with which message the server begins, republishes the messages before it, and removes the rule's consumer.",
        OTHERWISE,
        "Stop the publishers for a moment: native republish has no position, so exactly one of the two must "
        "republish each message.",
        f"Wait until the sidecar has republished everything (its position, in /status, is {state['last_seq']} or what"
        " the stream's last sequence is by then).",
        f"{stop(settings)}.",
        begun,
        f"Start the publishers again. nats-bridge clean -c FILE {rule.name} removes the consumer"
        f" '{durable_name(settings.name, rule.name)}', which kept the rule's position.",
        *_weaker_delivery(rule),
    ]


def _weaker_delivery(rule: RepublishRule) -> list[str]:
    if rule.delivery == "at_most_once":
        return []
    return ["Warning: native republish is at most once. The rule's at_least_once ends with the handoff."]
