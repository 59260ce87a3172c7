"""Scenarios for consumer features of 2.11 that affect a client that watches a stream: pausing, priority groups."""

import json
from collections.abc import Mapping

from nats_conformance.catalogue.case import Json
from nats_conformance.scenarios.laboratory import Laboratory
from nats_conformance.scenarios.registry import Facts, scenario
from nats_conformance.scenarios.texts import payloads_of
from nats_conformance.scenarios.waiting import arrived, first_that

_LATER = "2099-01-01T00:00:00Z"
_WHILE_PAUSED = 2
_GROUP: Mapping[str, Json] = {"ack_policy": "explicit", "priority_policy": "overflow", "priority_groups": ["g"]}


def _request(stream: str, **config: Json) -> Json:
    return {"stream_name": stream, "config": config}


@scenario
async def paused_consumer(laboratory: Laboratory) -> Facts:
    """Pause a push consumer before two messages, and resume it before a third. Advisories report both."""
    account = await laboratory.account()
    await account.create("S", subjects=["in.*"])
    work = await account.subscribe("work")
    advisories = await account.subscribe("$JS.EVENT.ADVISORY.CONSUMER.PAUSE.S.D")
    await account.consumer("S", deliver_subject="work", ack_policy="none")
    paused = await account.request("CONSUMER.PAUSE.S.D", {"pause_until": _LATER})
    await account.publish_all("in.a", ["1", "2"])

    async def pending() -> int | None:
        # A consumer counts a stored message a moment after the publisher has its answer.
        count: int = (await account.request("CONSUMER.INFO.S.D"))["num_pending"]
        return count if count >= _WHILE_PAUSED else None

    while_paused = await first_that(pending, "the count of two messages that are not delivered")
    await account.request("CONSUMER.PAUSE.S.D", {})
    # Up to 2.15.1 a resumed consumer reads the stream when the next message is stored.
    await account.publish_all("in.a", ["3"])
    delivered = await arrived(work, 3)
    reported = await arrived(advisories, 2)
    return {
        "paused": paused["paused"],
        "pending_while_paused": while_paused,
        "delivered": payloads_of([each.message for each in delivered]),
        "advisories": [json.loads(each.message.payload)["paused"] for each in reported],
    }


@scenario
async def priority_group_of_a_push_consumer(laboratory: Laboratory) -> Facts:
    """A consumer that delivers to a subject asks for a priority group."""
    account = await laboratory.account()
    await account.create("S", subjects=["in.*"])
    config = _request("S", durable_name="D", deliver_subject="work", **_GROUP)
    return {"err_code": await account.refusal("CONSUMER.DURABLE.CREATE.S.D", config)}


@scenario
async def watching_next_to_a_priority_group(laboratory: Laboratory) -> Facts:
    """A watching consumer next to one with a priority group: on a work queue, and on a stream with limits."""
    account = await laboratory.account()
    answers: dict[str, int | None] = {}
    plain: dict[str, Json] = {"deliver_subject": "seen", "ack_policy": "none"}
    await account.create("Q", subjects=["in.*"], retention="workqueue")
    await account.consumer("Q", **_GROUP)
    answers["second_consumer_err_code"] = await account.refusal(
        "CONSUMER.CREATE.Q", _request("Q", deliver_subject="seen", ack_policy="explicit")
    )
    observer = _request("Q", **plain, direct=True)
    answers["observer_err_code"] = await account.refusal("CONSUMER.CREATE.Q", observer)
    await account.create("S", subjects=["of.*"])
    await account.consumer("S", **_GROUP)
    answers["limits_stream_err_code"] = await account.refusal("CONSUMER.CREATE.S", _request("S", **plain))
    return answers
