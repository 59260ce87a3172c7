"""Scenarios about advisories and the audit of API requests."""

import json
from typing import Any

from nats_conformance.catalogue.case import Message
from nats_conformance.raw_client import Collected
from nats_conformance.scenarios.laboratory import Laboratory
from nats_conformance.scenarios.registry import Facts, scenario
from nats_conformance.scenarios.waiting import first_that, until

_ENVELOPE = frozenset({"type", "id", "timestamp"})


def _bodies(received: Collected) -> list[dict[str, Any]]:
    return [json.loads(each.payload) for each in received.messages]


@scenario
async def audit_of_deletes_and_purges(laboratory: Laboratory) -> Facts:
    """See which requests have an advisory: a read, a delete of one message, a purge, and the publication itself."""
    account = await laboratory.account()
    received = await account.subscribe(
        "$JS.EVENT.ADVISORY.API"
    )  # before the first request: an audit comes when it likes
    await account.create("S", subjects=["in.*"])
    await account.publish_all("in.a", ["1", "2", "3"])
    await account.request("STREAM.MSG.GET.S", {"seq": 1})
    await account.request("STREAM.MSG.DELETE.S", {"seq": 2})
    await account.request("STREAM.PURGE.S", {"filter": "in.a", "keep": 1})
    await account.request("STREAM.DELETE.S")

    def reported(verb: str) -> list[dict[str, Any]]:
        return [each for each in _bodies(received) if each["subject"] == f"$JS.API.STREAM.{verb}.S"]

    await until(lambda: all(map(reported, ("CREATE", "DELETE", "PURGE", "MSG.DELETE"))), "the audit of the requests")
    return {
        "requests": sorted(each["subject"].removeprefix("$JS.API.") for each in _bodies(received)),
        "delete_names_the_sequence": json.loads(reported("MSG.DELETE")[0]["request"]),
        "purge_names_the_filter": json.loads(reported("PURGE")[0]["request"]),
        "purge_reports_how_many": json.loads(reported("PURGE")[0]["response"])["purged"],
        "client_has_an_id": "id" in reported("PURGE")[0]["client"],
    }


@scenario
async def advisories_of_a_stream(laboratory: Laboratory) -> Facts:
    """Create, update and delete a stream: advisories name the stream and contain no configuration.

    A deleted stream discards the advisories that it has not sent yet (2.9.10 to 2.15.3). Thus the stream waits for the
    first two, and is created again until a server also sends the last one.
    """
    account = await laboratory.account()
    received = await account.subscribe("$JS.EVENT.ADVISORY.STREAM.>")

    def reported() -> dict[str, Message]:
        return {each.subject.decode().removeprefix("$JS.EVENT.ADVISORY.STREAM."): each for each in received.messages}

    async def whole_life() -> dict[str, Message] | None:
        await account.create("S", subjects=["in.*"])
        await account.update("S", subjects=["in.>"])
        await until(lambda: {"CREATED.S", "UPDATED.S"} <= reported().keys(), "the first advisories of the stream")
        await account.request("STREAM.DELETE.S")
        return reported() if "DELETED.S" in reported() else None

    advisories = await first_that(whole_life, "the advisory of a deleted stream")
    bodies = [json.loads(each.payload) for each in advisories.values()]
    return {
        "subjects": list(advisories),
        "actions": [each["action"] for each in bodies],
        "members": sorted({name for each in bodies for name in each} - _ENVELOPE),
        "have_headers": any(each.header_block for each in advisories.values()),
    }


@scenario
async def advisory_of_a_message_that_was_delivered_too_often(laboratory: Laboratory) -> Facts:
    """Reach `max_deliver`: an advisory has the stream's sequence, which is how dead letters are found."""
    account = await laboratory.account()
    await account.create("S", subjects=["in.*"])
    received = await account.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>")
    delivered = await account.subscribe("delivered")
    waits = {"max_deliver": 2, "ack_wait": 200_000_000}
    await account.consumer("S", ack_policy="explicit", deliver_subject="delivered", **waits)
    await account.publish("in.a", "x")
    await until(lambda: bool(received.deliveries), "the advisory")
    advisory = _bodies(received)[0]
    return {
        "subject": received.messages[0].subject.decode(),
        "deliveries_seen": len(delivered.deliveries),
        "stream_seq": advisory["stream_seq"],
        "deliveries": advisory["deliveries"],
    }
