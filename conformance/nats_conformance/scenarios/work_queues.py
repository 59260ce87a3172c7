"""Scenarios for streams that delete consumed messages: work queues and interest, with copies and republish."""

from nats_conformance.scenarios.account import REPUBLISH, message
from nats_conformance.scenarios.laboratory import Laboratory
from nats_conformance.scenarios.registry import Facts, scenario
from nats_conformance.scenarios.texts import payloads_of
from nats_conformance.scenarios.waiting import arrived


@scenario
async def consumer_of_a_sourced_work_queue(laboratory: Laboratory) -> Facts:
    """See which consumers a work queue reports when another stream sources it."""
    account = await laboratory.account()
    await account.create("Q", subjects=["in.*"], retention="workqueue")
    await account.publish_all("in.a", ["1"])
    await account.create("T", sources=[{"name": "Q"}])
    await account.holding("T", 1)
    await account.emptied("Q")
    found = (await account.request("CONSUMER.LIST.Q")).get("consumers") or []
    return {
        "names": [each["name"].partition("_SRC_")[0] + "_SRC_" for each in found],
        "ack_policy": [each["config"]["ack_policy"] for each in found],
        "left": (await account.state("Q"))["messages"],
    }


@scenario
async def work_queue_is_republished_once(laboratory: Laboratory) -> Facts:
    """Republish a work queue: messages are sent when they are stored; the worker's acknowledgement sends nothing."""
    account = await laboratory.account()
    await account.create("Q", subjects=["in.*"], retention="workqueue", republish=REPUBLISH)
    received = await account.subscribe("out.>")
    work = await account.subscribe("work")
    await account.consumer("Q", ack_policy="explicit", deliver_subject="work")
    await account.publish_all("in.a", ["1"])
    (job,) = await arrived(work, 1)
    account.send(job.reply.decode(), "+ACK")
    await account.emptied("Q")
    await account.publish_all("in.a", ["2"])
    await account.client.flush()
    return {"emptied": True, "republished": payloads_of(received)}


@scenario
async def interest_without_interest(laboratory: Laboratory) -> Facts:
    """Publish a message that no consumer selects: it gets a sequence, but is neither stored nor republished."""
    account, received = await laboratory.republishing(retention="interest")
    before = await account.publish("in.a", "1")
    await account.consumer("S", ack_policy="explicit", filter_subject="in.a")
    await account.publish("in.b", "2")
    after = await account.publish("in.a", "3")
    await account.client.flush()
    state = await account.state("S")
    return {
        "sequences": [before.get("seq"), after.get("seq")],
        "messages": state["messages"],
        "republished": payloads_of(received),
    }


@scenario
async def observer_of_an_interest_stream(laboratory: Laboratory) -> Facts:
    """Create a consumer as servers use it among themselves (`direct`): it counts as interest."""
    account, received = await laboratory.republishing(retention="interest")
    seen = await account.subscribe("seen")
    config = {"deliver_subject": "seen", "ack_policy": "none", "direct": True}
    refused = await account.refusal("CONSUMER.CREATE.S", {"stream_name": "S", "config": config})
    await account.publish("in.a", "1")
    await arrived(seen, 1)
    return {
        "err_code": refused,
        "republished": payloads_of(received),
        "consumer_count": (await account.state("S"))["consumer_count"],
    }


@scenario
async def observer_of_a_work_queue(laboratory: Laboratory) -> Facts:
    """Create the same consumer on a work queue: it is accepted next to a worker, and leaves it the messages."""
    account = await laboratory.account()
    await account.create("Q", subjects=["in.*"], retention="workqueue")
    await account.consumer("Q", ack_policy="explicit")
    seen = await account.subscribe("seen")
    plain = {"deliver_subject": "seen", "ack_policy": "none"}
    second_worker = await account.refusal("CONSUMER.CREATE.Q", {"stream_name": "Q", "config": plain})
    direct = {**plain, "direct": True}
    observer = await account.refusal("CONSUMER.CREATE.Q", {"stream_name": "Q", "config": direct})
    await account.publish("in.a", "1")
    await arrived(seen, 1)
    return {
        "second_worker_err_code": second_worker,
        "observer_err_code": observer,
        "left_for_the_worker": (await account.state("Q"))["messages"],
    }


@scenario
async def stream_without_acknowledgements(laboratory: Laboratory) -> Facts:
    """Set `no_ack`: publishers get no answers, but messages are republished."""
    account, received = await laboratory.republishing(no_ack=True)
    answers = await account.subscribe("answer")
    account.client.publish(message("in.a", "x"), b"answer")
    await arrived(received, 1)
    await account.client.flush()
    return {"republished": payloads_of(received), "answers": len(answers.deliveries)}
