"""Scenarios about advisories and the audit of API requests."""

import json
from typing import Any

from nats_conformance.raw_client import Collected
from nats_conformance.scenarios.laboratory import Laboratory
from nats_conformance.scenarios.registry import Facts, scenario
from nats_conformance.scenarios.waiting import until

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
    """Create, update and delete a stream: advisories name the stream and contain no configuration."""
    account = await laboratory.account()
    received = await account.subscribe("$JS.EVENT.ADVISORY.STREAM.>")
    await account.create("S", subjects=["in.*"])
    await account.update("S", subjects=["in.>"])
    await account.request("STREAM.DELETE.S")
    await until(lambda: len(received.deliveries) >= 3, "three advisories of the stream")
    return {
        "subjects": [each.subject.decode().removeprefix("$JS.EVENT.ADVISORY.STREAM.") for each in received.messages],
        "actions": [each["action"] for each in _bodies(received)],
        "members": sorted({name for each in _bodies(received) for name in each} - _ENVELOPE),
        "have_headers": any(each.header_block for each in received.messages),
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
