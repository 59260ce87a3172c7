"""Messages that servers from 2.12 on treat as more than messages: batches, counters, schedules."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from nats_conformance.scenarios.account import Account, message
from nats_conformance.scenarios.laboratory import Laboratory
from nats_conformance.scenarios.registry import Facts, scenario
from nats_conformance.scenarios.texts import header_of, headers_named, lines_of, payloads_of, subjects_of
from nats_conformance.scenarios.waiting import arrived, first_that

_START, _APPEND, _COMMIT = 0, 1, 2
"""The operations of messages in a fast batch."""


def _member(number: int, *more: str) -> list[str]:
    return ["Nats-Batch-Id: b", f"Nats-Batch-Sequence: {number}", *more]


@scenario
async def atomic_batch_is_republished_at_its_commit(laboratory: Laboratory) -> Facts:
    """Publish a batch of three messages: see which are republished before and after the last one commits it."""
    account, received = await laboratory.republishing(allow_atomic=True)
    await account.publish("in.a", "1", _member(1))
    await account.publish("in.a", "2", _member(2))
    await account.client.flush()
    before = payloads_of(received)
    answer = await account.publish("in.a", "3", _member(3, "Nats-Batch-Commit: 1"))
    await account.client.flush()
    return {
        "before_the_commit": before,
        "in_all": payloads_of(received),
        "sequences": [header_of(each, "Nats-Sequence") for each in received.messages],
        "last_sequences": [header_of(each, "Nats-Last-Sequence") for each in received.messages],
        "own_headers": headers_named(received.messages[-1])[:3],
        "seq": answer["seq"],
        "count": answer.get("count"),
    }


@scenario
async def batch_with_a_gap(laboratory: Laboratory) -> Facts:
    """A batch that lacks a message is abandoned: nothing is stored or republished, and an advisory reports it."""
    account, received = await laboratory.republishing(allow_atomic=True)
    advisories = await account.subscribe("$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.>")
    await account.publish("in.a", "1", _member(1))
    answer = await account.publish("in.a", "3", _member(3, "Nats-Batch-Commit: 1"))
    (advisory,) = await arrived(advisories, 1)
    await account.client.flush()
    return {
        "err_code": answer.get("error", {}).get("err_code"),
        "reason": json.loads(advisory.message.payload)["reason"],
        "republished": payloads_of(received),
        "messages": (await account.state("S"))["messages"],
    }


@scenario
async def schedule_is_republished_twice(laboratory: Laboratory) -> Facts:
    """Store a schedule: it is republished when it is stored, and its message when it fires."""
    account, received = await laboratory.republishing(allow_msg_schedules=True)
    at = (datetime.now(UTC) + timedelta(seconds=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    await account.publish("in.plan", "x", [f"Nats-Schedule: @at {at}", "Nats-Schedule-Target: in.fired"])
    schedule, produced = (each.message for each in await arrived(received, 2))
    return {
        "subjects": subjects_of(received),
        "headers_of_the_schedule": headers_named(schedule),
        "headers_of_what_it_produced": headers_named(produced),
        "scheduler": header_of(produced, "Nats-Scheduler"),
        "next": header_of(produced, "Nats-Schedule-Next"),
        "payloads": payloads_of(received),
    }


def _publish_in_fast_batch(account: Account, number: int, operation: int) -> None:
    # The reply subject identifies the message for the subscriber of the answers.
    account.client.publish(message("in.a", str(number)), f"answer.b.10.fail.{number}.{operation}.$FI".encode())


@scenario
async def fast_batch_is_republished(laboratory: Laboratory) -> Facts:
    """Three messages of a fast batch (2.14): stored and republished as others, confirmed by one answer at the end."""
    account, received = await laboratory.republishing(allow_batched=True)
    answers = await account.subscribe("answer.>")
    for number, operation in ((1, _START), (2, _APPEND), (3, _COMMIT)):
        _publish_in_fast_batch(account, number, operation)
    await arrived(received, 3)
    stored = await account.holding("S", 3)

    async def committed() -> dict[str, Any] | None:
        reported = [json.loads(each.message.payload) for each in answers.deliveries]
        return next((each for each in reported if "stream" in each), None)

    answer = await first_that(committed, "the answer to the commit")
    return {
        "republished": payloads_of(received),
        "stored": payloads_of(stored),
        "headers": headers_named(stored[-1].message),
        "batch": answer.get("batch"),
        "count": answer.get("count"),
        "seq": answer["seq"],
    }


@scenario
async def fast_batch_of_a_stream_that_takes_none(laboratory: Laboratory) -> Facts:
    """Its first message is answered with an error, and not stored."""
    account = await laboratory.account()
    await account.create("S", subjects=["in.*"])
    answers = await account.subscribe("answer.>")
    _publish_in_fast_batch(account, 1, _START)
    (answer,) = await arrived(answers, 1)
    return {
        "err_code": json.loads(answer.message.payload)["error"]["err_code"],
        "messages": (await account.state("S"))["messages"],
    }


@scenario
async def counters_of_two_sources(laboratory: Laboratory) -> Facts:
    """Source two counter streams into the subject of a counter that clients count as well."""
    account = await laboratory.account()
    for name, increments in (("A", ("5", "4")), ("B", ("6",))):
        await account.create(name, subjects=[f"{name}.*"], allow_msg_counter=True)
        for increment in increments:
            await account.publish(f"{name}.hits", "", [f"Nats-Incr: {increment}"])
    await account.create("T", subjects=["all.*"], allow_msg_counter=True)
    before = await account.publish("all.hits", "", ["Nats-Incr: 3"])
    sources = [{"name": each, "subject_transforms": [{"src": f"{each}.*", "dest": "all.$1"}]} for each in ("A", "B")]
    await account.update("T", sources=sources)
    stored = await account.holding("T", 4)
    return {"before_the_sources": before["val"], "total": json.loads(stored[-1].message.payload)["val"]}


async def _fired(account: Account, *more: str) -> None:
    at = (datetime.now(UTC) - timedelta(seconds=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    await account.publish("in.plan", "x", [f"Nats-Schedule: @at {at}", "Nats-Schedule-Target: in.due", *more])
    await account.reached("S", 2)


@scenario
async def what_a_schedule_fires(laboratory: Laboratory) -> Facts:
    """Store a schedule that is due at once, with a header of its publisher and a TTL for its message."""
    account = await laboratory.account()
    await account.create("S", subjects=["in.*"], allow_msg_schedules=True, allow_msg_ttl=True)
    await _fired(account, "Nats-Schedule-TTL: 1h", "A: 1")
    (fired,) = [each.message for each in await account.stored("S") if each.sequence > 1]
    return {
        "lines": lines_of(fired),
        "payload": fired.payload.decode(),
        "left": subjects_of(await account.stored("S")),
    }


@scenario
async def fired_message_in_a_copy(laboratory: Laboratory) -> Facts:
    """Copy a message from a schedule into a stream with sources, which cannot have schedules."""
    account = await laboratory.account()
    await account.create("S", subjects=["in.*"], allow_msg_schedules=True)
    await _fired(account)
    await account.create("T", sources=[{"name": "S", "opt_start_seq": 2}])
    (copy,) = await account.holding("T", 1)
    return {
        "subject": copy.message.subject.decode(),
        "headers": headers_named(copy.message),
        "payload": copy.message.payload.decode(),
    }
