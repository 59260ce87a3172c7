"""Hands over rules of kind subject_transform.

The bridge answers publishers on `src` and stores on `dest`. To replace it, the server needs `src` among the stream's
subjects. While both are active, a message is stored twice, so the sidecar must be stopped first.
"""

from collections.abc import Mapping

from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import Json
from nats_bridge.consuming.missing_streams import existing_stream
from nats_bridge.kinds.ingress.model import SubjectTransformRule
from nats_bridge.rules.handoff.answer import Handoff, refused, stop
from nats_bridge.rules.handoff.stream_body import body_of, examined
from nats_bridge.settings import Settings
from nats_transforms.dialect import server_dialect
from nats_transforms.subject import collide, is_subset


async def hand_over(rule: SubjectTransformRule, settings: Settings, connections: Mapping[str, Connection]) -> Handoff:
    """Return the configuration that takes over; see `RuleKind.handoff`."""
    connection = connections[rule.source_connection]
    config = (await existing_stream(connection, rule.name, rule.stream))["config"]
    place = f"stream '{rule.stream}'"
    transform = rule.subject_transform
    wanted = {"src": transform.src or ">", "dest": transform.dest}
    if not server_dialect(connection.server_version).stream_fields_of_2_10:
        return refused(
            f"server {connection.server_version} ignores subject_transform: upgrade it first (the bridge keeps"
            " running), then"
            " run handoff again"
        )
    if config.get("mirror"):
        return refused(f"{place} is a native mirror: no client publishes to it")
    present = config.get("subject_transform")
    if present and not _same(present, wanted):
        return refused(
            f"{place} has a subject_transform already, {present.get('src') or '>'} to {present['dest']}, and a stream"
            " has only one: leave this rule to the bridge, or take the native one out"
        )
    body = body_of(config)
    subjects = list(body.get("subjects") or ())
    covered = any(is_subset(wanted["src"].encode(), each.encode()) for each in subjects)
    if present and covered:
        return Handoff(body, (f"Rule '{rule.name}' is handed over: {place} transforms so natively.",))
    if not covered:
        # One that `src` covers would overlap it, which servers refuse.
        kept = [each for each in subjects if not is_subset(each.encode(), wanted["src"].encode())]
        if across := [each for each in kept if collide(each.encode(), wanted["src"].encode())]:
            return refused(
                f"{place} has subject {', '.join(across)}, which overlaps {wanted['src']} in part: a stream's subjects"
                " may not; change it to one that covers both, then run handoff again"
            )
        body["subjects"] = [*kept, wanted["src"]]
    body["subject_transform"] = wanted
    return await examined(
        connection,
        body,
        config,
        (
            f"{stop(settings)}. Publishers on {wanted['src']} get no answer (no responders) until the update"
            " and must try again, as JetStream clients do; in the reverse order, messages would be stored twice.",
            f"Send the update to {connection.api.subject('STREAM.UPDATE.' + rule.stream)}: server"
            f" {connection.server_version} takes {wanted['src']} itself and stores it as {wanted['dest']}.",
            f"From then on the transform applies to every message of the stream that matches {wanted['src']}; subjects"
            " of the stream that do not match are stored as they are.",
        ),
    )


async def hand_back(rule: SubjectTransformRule, settings: Settings, connections: Mapping[str, Connection]) -> Handoff:
    """Return the configuration without the native transform that the rule repeats."""
    connection = connections[rule.source_connection]
    config = (await existing_stream(connection, rule.name, rule.stream))["config"]
    place = f"stream '{rule.stream}'"
    present = config.get("subject_transform")
    wanted = {"src": rule.subject_transform.src or ">", "dest": rule.subject_transform.dest}
    if not present:
        return refused(f"{place} has no native subject_transform: there is nothing to take back; start the sidecar")
    if not _same(present, wanted):
        return refused(
            f"{place} transforms {present.get('src') or '>'} to {present['dest']}, and the rule {wanted['src']} to"
            f" {wanted['dest']}: write the rule's subject_transform as the server's"
        )
    body = body_of(config)
    del body["subject_transform"]
    kept = [each for each in body.get("subjects") or () if each != wanted["src"]]
    if any(collide(each.encode(), wanted["src"].encode()) for each in kept):
        return refused(
            f"{place} also takes {', '.join(kept)}, which covers {wanted['src']}: the stream would also store "
            "untransformed messages; change its subjects first"
        )
    if not kept:
        return refused(
            f"{place} has no subject other than {wanted['src']}: add {wanted['dest']}, where the bridge stores "
            "messages, then run this again"
        )
    body["subjects"] = kept
    return await examined(
        connection,
        body,
        config,
        (
            f"Send the update to {connection.api.subject('STREAM.UPDATE.' + rule.stream)}: the server no longer takes"
            f" {wanted['src']}; publishers there get no answer (no responders) and must try again, as JetStream clients"
            " do.",
            "Start the sidecar; it answers them from then on.",
        ),
    )


def _same(one: Json, other: Json) -> bool:
    return ((one.get("src") or ">"), one.get("dest") or "") == (other["src"], other["dest"])
