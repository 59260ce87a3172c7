"""Messages that servers from 2.12 on treat as more than messages: batches, counters, schedules."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from nats_bridge.conformance.scenarios.laboratory import Laboratory
from nats_bridge.conformance.scenarios.registry import scenario
from nats_bridge.conformance.scenarios.texts import header_of, headers_named, payloads_of, subjects_of
from nats_bridge.conformance.scenarios.waiting import arrived

_REPUBLISH = {"src": "in.*", "dest": "out.$1"}


def _member(number: int, *more: str) -> list[str]:
    return ["Nats-Batch-Id: b", f"Nats-Batch-Sequence: {number}", *more]


@scenario
async def atomic_batch_is_republished_at_its_commit(laboratory: Laboratory) -> Mapping[str, Any]:
    """Three messages of a batch: what is republished before the last one commits it, and what after."""
    account = await laboratory.connect(await laboratory.server())
    await account.create("S", subjects=["in.*"], allow_atomic=True, republish=_REPUBLISH)
    heard = await account.hear("out.>")
    await account.publish("in.a", "1", _member(1))
    await account.publish("in.a", "2", _member(2))
    await account.client.flush()
    before = payloads_of(heard)
    answer = await account.publish("in.a", "3", _member(3, "Nats-Batch-Commit: 1"))
    await account.client.flush()
    return {
        "before_the_commit": before,
        "in_all": payloads_of(heard),
        "sequences": [header_of(each, "Nats-Sequence") for each in heard.messages],
        "last_sequences": [header_of(each, "Nats-Last-Sequence") for each in heard.messages],
        "own_headers": headers_named(heard.messages[-1])[:3],
        "seq": answer["seq"],
        "count": answer.get("count"),
    }


@scenario
async def batch_with_a_gap(laboratory: Laboratory) -> Mapping[str, Any]:
    """A batch that lacks a message is abandoned: nothing is stored or republished, and an advisory reports it."""
    account = await laboratory.connect(await laboratory.server())
    await account.create("S", subjects=["in.*"], allow_atomic=True, republish=_REPUBLISH)
    heard = await account.hear("out.>")
    advisories = await account.hear("$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.>")
    await account.publish("in.a", "1", _member(1))
    answer = await account.publish("in.a", "3", _member(3, "Nats-Batch-Commit: 1"))
    (advisory,) = await arrived(advisories, 1)
    await account.client.flush()
    return {
        "err_code": answer.get("error", {}).get("err_code"),
        "reason": json.loads(advisory.message.payload)["reason"],
        "republished": payloads_of(heard),
        "messages": (await account.state("S"))["messages"],
    }


@scenario
async def counter_is_republished_as_its_total(laboratory: Laboratory) -> Mapping[str, Any]:
    """``Nats-Incr`` on a stream of counters: the copy holds the new total, and the header as it was published."""
    account = await laboratory.connect(await laboratory.server())
    await account.create("S", subjects=["in.*"], allow_msg_counter=True, republish=_REPUBLISH)
    heard = await account.hear("out.>")
    first = await account.publish("in.a", "", ["Nats-Incr: +5"])
    second = await account.publish("in.a", "", ["Nats-Incr: +3"])
    await account.client.flush()
    return {
        "totals": [first.get("val"), second.get("val")],
        "republished": payloads_of(heard),
        "increments": [header_of(each, "Nats-Incr") for each in heard.messages],
    }


@scenario
async def schedule_is_republished_twice(laboratory: Laboratory) -> Mapping[str, Any]:
    """A schedule is republished when it is stored, and what it produces is republished when it fires."""
    account = await laboratory.connect(await laboratory.server())
    await account.create("S", subjects=["in.*"], allow_msg_schedules=True, republish=_REPUBLISH)
    heard = await account.hear("out.>")
    at = (datetime.now(UTC) + timedelta(seconds=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    await account.publish("in.plan", "x", [f"Nats-Schedule: @at {at}", "Nats-Schedule-Target: in.fired"])
    schedule, produced = (each.message for each in await arrived(heard, 2))
    return {
        "subjects": subjects_of(heard),
        "headers_of_the_schedule": headers_named(schedule),
        "headers_of_what_it_produced": headers_named(produced),
        "scheduler": header_of(produced, "Nats-Scheduler"),
        "next": header_of(produced, "Nats-Schedule-Next"),
        "payloads": payloads_of(heard),
    }
