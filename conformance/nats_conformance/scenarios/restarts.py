"""Scenarios for restarts on the same store: the state that is kept, and where copying resumes."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from nats_conformance.catalogue.case import Json
from nats_conformance.observation import Stored
from nats_conformance.scenarios.account import REPUBLISH, Account
from nats_conformance.scenarios.laboratory import Laboratory
from nats_conformance.scenarios.registry import Facts, register, scenario
from nats_conformance.scenarios.texts import (
    header_of,
    messages_of,
    numbers_of,
    payloads_of,
    record_of,
    subjects_of,
)


@scenario
async def republish_after_restart(laboratory: Laboratory) -> Facts:
    """Messages that were republished are not sent again when the server comes back."""
    server, account = await laboratory.opened()
    await account.create("S", subjects=["in.*"], republish=REPUBLISH)
    await account.publish_all("in.a", ["1", "2", "3"])
    account = await laboratory.restart(server)
    received = await account.republished("4")
    return {"republished_after": payloads_of(received), **numbers_of(received.messages[0])}


@scenario
async def memory_stream_after_restart(laboratory: Laboratory) -> Facts:
    """A memory stream of a single server is lost, its configuration included."""
    server, account = await laboratory.opened()
    await account.create("S", subjects=["in.*"], republish=REPUBLISH, storage="memory")
    await account.publish_all("in.a", ["1", "2"])
    account = await laboratory.restart(server)
    return {"stream_info_err_code": await account.refusal("STREAM.INFO.S")}


@scenario
async def purged_stream_after_restart(laboratory: Laboratory) -> Facts:
    """Restart with an emptied stream: it keeps its sequence, and the last sequence of the subject is 0."""
    server, account = await laboratory.opened()
    await account.create("S", subjects=["in.*"], republish=REPUBLISH)
    await account.publish_all("in.a", ["1", "2", "3"])
    await account.request("STREAM.PURGE.S", {})
    account = await laboratory.restart(server)
    state = await account.state("S")
    numbers = numbers_of((await account.republished("4")).messages[0])
    return {"first_seq": state["first_seq"], "last_seq": state["last_seq"], **numbers}


@scenario
async def last_sequence_behind_a_delete_and_restart(laboratory: Laboratory) -> Facts:
    """Delete a subject's last message while two older ones remain: see which one the next message refers to."""
    facts: Facts = {}
    for name in ("without_restart", "with_restart"):
        server, account = await laboratory.opened()
        await account.create("S", subjects=["in.*"], republish=REPUBLISH)
        await account.publish_all("in.a", ["1", "2", "3"])
        await account.request("STREAM.MSG.DELETE.S", {"seq": 3})
        if name == "with_restart":
            account = await laboratory.restart(server)
        facts[name] = header_of((await account.republished("4")).messages[0], "Nats-Last-Sequence")
    return facts


@scenario
async def duplicate_after_restart(laboratory: Laboratory) -> Facts:
    """The duplicate window is rebuilt from the stream: an id from before the restart is still a duplicate."""
    server, account = await laboratory.opened()
    await account.create("S", subjects=["in.*"], republish=REPUBLISH)
    await account.publish("in.a", "1", ["Nats-Msg-Id: m"])
    account = await laboratory.restart(server)
    received = await account.subscribe("out.>")
    answer = await account.publish("in.a", "1", ["Nats-Msg-Id: m"])
    await account.client.flush()
    return {"duplicate": answer.get("duplicate", False), "republished": len(received.deliveries)}


@scenario
async def source_after_restart(laboratory: Laboratory) -> Facts:
    """A sourcing stream resumes at its position: nothing duplicated, nothing left out."""
    server, account = await laboratory.with_source()
    await account.create("T", subjects=["local"], sources=[{"name": "O", "filter_subject": "in.a"}])
    await account.publish_all("in.a", ["1"])
    await account.publish_all("in.b", ["not wanted"])
    await account.publish_all("in.a", ["2"])
    await account.holding("T", 2)
    await account.publish_all("local", ["own message"])
    account = await laboratory.restart(server)
    await account.publish_all("in.a", ["3"])
    return {"stored": payloads_of(await account.holding("T", 4))}


async def _resumed(
    laboratory: Laboratory, source: Mapping[str, Json], held: int, change: Callable[[Account], Awaitable[object]]
) -> Facts:
    """Let a stream copy `held` of three messages, change something, and restart the server.

    Return the stored messages.
    """
    server, account = await laboratory.with_source("1", "2", "3")
    await account.create("T", sources=[source])
    await account.holding("T", held)
    await change(account)
    account = await laboratory.restart(server)
    return {"stored": payloads_of(await account.copied("T", "end"))}


def _requested(subject: str, body: Json) -> Callable[[Account], Awaitable[object]]:
    return lambda account: account.request(subject, body)


_purged = _requested("STREAM.PURGE.T", {})
register(
    "source-without-its-last-message-after-restart",
    partial(_resumed, source={"name": "O"}, held=3, change=_requested("STREAM.MSG.DELETE.T", {"seq": 3})),
)
register("source-after-purge-and-restart", partial(_resumed, source={"name": "O"}, held=3, change=_purged))
register(
    "source-with-start-sequence-after-purge-and-restart",
    partial(_resumed, source={"name": "O", "opt_start_seq": 2}, held=2, change=_purged),
)
# The start sequence only counts for the first start, so an update that removes it keeps the position.
register(
    "start-sequence-is-forgotten-after-restart",
    partial(
        _resumed,
        source={"name": "O", "opt_start_seq": 3},
        held=1,
        change=partial(Account.update, name="T", sources=[{"name": "O"}]),
    ),
)


@scenario
async def source_under_an_ingress_transform_after_restart(laboratory: Laboratory) -> Facts:
    """A filtered source whose messages the target's own transform renames: is the position found again?"""
    server, account = await laboratory.with_source("1", "2")
    transform = {"src": "in.*", "dest": "renamed.$1"}
    await account.create("T", sources=[{"name": "O", "filter_subject": "in.a"}], subject_transform=transform)
    await account.holding("T", 2)
    account = await laboratory.restart(server)
    stored = await account.copied("T", "end")
    return {"subjects": sorted(set(subjects_of(stored))), "stored": payloads_of(stored)}


@scenario
async def mirror_after_restart(laboratory: Laboratory) -> Facts:
    """A filtered mirror keeps the source's numbers, its gaps included, and resumes after a restart."""
    server, account = await laboratory.with_source("1")
    await account.publish_all("in.b", ["not wanted"])
    await account.publish_all("in.a", ["3"])
    await account.create("M", mirror={"name": "O", "filter_subject": "in.a"})
    await account.holding("M", 2)
    before = (await account.info("M", {"deleted_details": True}))["state"]
    account = await laboratory.restart(server)
    await account.publish_all("in.a", ["4"])
    stored = await account.holding("M", 3)
    return {
        "deleted_before": before.get("deleted", []),
        "deleted_after": (await account.info("M", {"deleted_details": True}))["state"].get("deleted", []),
        "sequences": [each.sequence for each in stored],
        "records": [record_of(each) for each in messages_of(stored)],
    }


@scenario
async def recreated_source(laboratory: Laboratory) -> Facts:
    """The source is recreated with more messages than before: which of them are sourced after a restart?"""
    return {"stored": payloads_of(await _of_a_recreated_source(laboratory, sources=[{"name": "O"}]))}


@scenario
async def mirror_of_a_recreated_source(laboratory: Laboratory) -> Facts:
    """The source of a mirror is recreated with more messages than before: the mirror resumes at its old position."""
    stored = await _of_a_recreated_source(laboratory, mirror={"name": "O"})
    return {"stored": payloads_of(stored), "sequences": [each.sequence for each in stored]}


async def _of_a_recreated_source(laboratory: Laboratory, **target: Json) -> tuple[Stored, ...]:
    """Return the messages of a stream that copied two messages before its source was recreated with three others."""
    server, account = await laboratory.with_source("old-1", "old-2")
    await account.create("T", **target)
    await account.holding("T", 2)
    await account.request("STREAM.DELETE.O")
    await account.create("O", subjects=["in.*"])
    await account.publish_all("in.a", ["new-1", "new-2", "new-3"])
    account = await laboratory.restart(server)
    return await account.copied("T", "end")
