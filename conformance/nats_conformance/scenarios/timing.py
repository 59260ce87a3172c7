"""Scenarios for the order of events."""

from nats_conformance.scenarios.account import REPUBLISH, message
from nats_conformance.scenarios.laboratory import Laboratory
from nats_conformance.scenarios.registry import Facts, scenario
from nats_conformance.scenarios.texts import header_of, subjects_of
from nats_conformance.scenarios.waiting import arrived

_MANY = 500


@scenario
async def republish_comes_before_the_acknowledgement(laboratory: Laboratory) -> Facts:
    """On the publisher's own connection the copy arrives before the stream's answer."""
    account = await laboratory.account()
    await account.create("S", subjects=["in.*"], republish=REPUBLISH)
    received = await account.subscribe(">")  # one subscription, so that its order is the order of the wire
    for number in range(_MANY):
        account.client.publish(message("in.a", str(number)), b"answer.%d" % number)
    await arrived(received, 3 * _MANY)
    order = subjects_of(received)
    copies = [at for at, subject in enumerate(order) if subject == "out.a"]
    answers = {subject: at for at, subject in enumerate(order) if subject.startswith("answer.")}
    return {
        "copies": len(copies),
        "answers": len(answers),
        "every_copy_is_before_its_answer": all(at < answers[f"answer.{number}"] for number, at in enumerate(copies)),
    }


@scenario
async def order_of_two_publishers(laboratory: Laboratory) -> Facts:
    """Two connections publish at the same time on several subjects: copies come in the order of the stream."""
    server = await laboratory.server()
    watcher = await laboratory.connect(server)
    await watcher.create("S", subjects=["in.*"], republish=REPUBLISH)
    received = await watcher.subscribe("out.>")
    publishers = [await laboratory.connect(server) for _ in range(2)]
    for number in range(_MANY):
        for publisher in publishers:
            publisher.send(f"in.{number % 7}", str(number))
    for publisher in publishers:
        await publisher.client.flush()
    await arrived(received, 2 * _MANY)
    sequences = [int(header_of(each, "Nats-Sequence") or 0) for each in received.messages]
    return {
        "copies": len(sequences),
        "in_order_of_the_stream": sequences == sorted(sequences),
        "every_one_once": sorted(sequences) == list(range(1, 2 * _MANY + 1)),
    }


@scenario
async def reply_of_the_publisher(laboratory: Laboratory) -> Facts:
    """Publish with a reply subject: the copy has none, so the publisher gets one answer."""
    account, received = await laboratory.republishing()
    await account.publish("in.a", "1")
    (copy,) = await arrived(received, 1)
    return {"reply": copy.reply.decode()}


@scenario
async def time_of_a_mirror_and_of_a_source(laboratory: Laboratory) -> Facts:
    """Compare times: a mirror keeps the source's time; a sourced message has the time of arrival."""
    _, account = await laboratory.with_source()
    await account.publish("in.a", "1")
    (source,) = await account.stored("O")
    await account.create("M", mirror={"name": "O"})
    await account.create("T", sources=[{"name": "O"}])
    (mirrored,) = await account.holding("M", 1)
    (sourced,) = await account.holding("T", 1)
    return {
        "mirror_has_the_time_of_the_source": mirrored.time_ns == source.time_ns,
        "source_has_a_later_time": sourced.time_ns > source.time_ns,
    }
