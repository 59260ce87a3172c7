"""Scenarios for removals by limits and time, and their effect on republished messages."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from nats_conformance.catalogue.case import Json
from nats_conformance.scenarios.laboratory import Laboratory
from nats_conformance.scenarios.registry import Facts, register, scenario
from nats_conformance.scenarios.texts import header_of, headers_named, numbers_of, payloads_of
from nats_conformance.scenarios.waiting import arrived

_SECOND = 1_000_000_000


async def _numbers_behind_expiry(laboratory: Laboratory, headers: Sequence[str] = (), **stream: Json) -> Facts:
    """Return the numbers of a republished message whose predecessor, with these headers, has expired.

    The message refers to none, and the sequence continues. A message that expires by its TTL leaves no marker here.
    """
    account, received = await laboratory.republishing(**stream)
    await account.publish_all("in.a", ["1"], headers)
    await account.emptied("S")
    await account.publish_all("in.a", ["2"])
    return numbers_of((await arrived(received, 2))[1].message)


register("last-sequence-behind-expiry", partial(_numbers_behind_expiry, max_age=_SECOND // 5))
register(
    "last-sequence-behind-a-message-ttl", partial(_numbers_behind_expiry, headers=["Nats-TTL: 1s"], allow_msg_ttl=True)
)


@scenario
async def delete_marker_is_republished(laboratory: Laboratory) -> Facts:
    """Expire and delete the last message of subjects: an expiry's marker is republished; a delete leaves none."""
    account, received = await laboratory.republishing(
        subject_delete_marker_ttl=60 * _SECOND, allow_msg_ttl=True, allow_rollup_hdrs=True
    )
    await account.publish_all("in.deleted", ["1"])
    await account.request("STREAM.MSG.DELETE.S", {"seq": 1})
    await account.publish_all("in.expired", ["2"])
    # Not before: the message could expire before it is deleted.
    await account.update("S", max_age=_SECOND, duplicate_window=_SECOND)
    marker = (await arrived(received, 3))[2].message
    return {
        "headers": headers_named(marker),
        "subject": header_of(marker, "Nats-Subject"),
        "reason": header_of(marker, "Nats-Marker-Reason"),
        "ttl": header_of(marker, "Nats-TTL"),
        "rollup": header_of(marker, "Nats-Rollup"),
        **numbers_of(marker),
        "payload": marker.payload.decode(),
    }


@scenario
async def message_of_the_largest_size(laboratory: Laboratory) -> Facts:
    """Publish a message of exactly `max_payload`: it is republished with the server's additional lines."""
    limit = 1024
    account, received = await laboratory.republishing(f"max_payload: {limit}")
    answer = await account.publish("in.a", "x" * limit)
    (copy,) = await arrived(received, 1)
    return {
        "stored_as": answer["seq"],
        "payload_size": len(copy.message.payload),
        "larger_than_the_limit": len(copy.message.payload) + len(copy.message.header_block) > limit,
    }


@scenario
async def full_target_waits(laboratory: Laboratory) -> Facts:
    """A target that refuses new messages when it is full: sourcing resumes, without loss, as soon as there is room."""
    _, account = await laboratory.with_source("1", "2", "3", "4")
    await account.create("T", sources=[{"name": "O"}], max_msgs=2, discard="new")
    full = payloads_of(await account.holding("T", 2))
    await account.update("T", max_msgs=10)
    return {"when_full": full, "stored": payloads_of(await account.holding("T", 4))}


@scenario
async def filtered_mirror_and_its_gaps(laboratory: Laboratory) -> Facts:
    """Mirror with a filter: see the gaps before the first message, between messages, and at the end."""
    _, account = await laboratory.with_source()
    for subject in ("in.b", "in.a", "in.b", "in.a", "in.b"):
        await account.publish_all(subject, ["x"])
    await account.create("M", mirror={"name": "O", "filter_subject": "in.a"})
    await account.holding("M", 2)
    before = (await account.info("M", {"deleted_details": True}))["state"]
    await account.publish_all("in.a", ["x"])
    await account.reached("M", 6)
    after = (await account.info("M", {"deleted_details": True}))["state"]
    return {"with_a_gap_at_the_end": _numbers(before), "with_a_later_message": _numbers(after)}


def _numbers(state: Mapping[str, Any]) -> Facts:
    return {
        "messages": state["messages"],
        "first_seq": state["first_seq"],
        "last_seq": state["last_seq"],
        "deleted": state.get("deleted", []),
    }
