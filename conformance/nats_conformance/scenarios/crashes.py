"""Scenarios that crash a server process."""

import contextlib

from nats_conformance.errors import SubjectError
from nats_conformance.native_servers import NativeServer
from nats_conformance.scenarios.account import Account
from nats_conformance.scenarios.laboratory import Laboratory
from nats_conformance.scenarios.registry import Facts, scenario
from nats_conformance.scenarios.texts import numbers_of, payloads_of, subjects_of
from nats_conformance.scenarios.waiting import has_ended, until


async def _on_disk(server: NativeServer, payload: bytes, *, times: int = 1) -> None:
    """Wait until the files of a server's streams contain a payload this many times.

    A server answers a publisher before the block is written, and no version reports when it is.
    """

    def written() -> bool:
        blocks = server.store_dir.rglob("*.blk")
        return sum(block.read_bytes().count(payload) for block in blocks) >= times

    await until(written, f"{payload!r} in the files of the store")


async def _after(server: NativeServer, account: Account, subject: str) -> Facts:
    """Return whether the server survives a publication, and whether its log gives the reason."""
    try:
        answer = await account.publish(subject, "x")
    except SubjectError:
        answer = {}
    ended = await has_ended(server, account.client)
    said = "panic: " in "\n".join(server.log_tail(400))
    return {"server": "ended" if ended else "running", "sequence": answer.get("seq"), "panic_in_log": said}


@scenario
async def partition_zero_in_republish(laboratory: Laboratory) -> Facts:
    """Use modulus 0 in a republish destination: see the first matching message, and the state after a restart."""
    server, account = await laboratory.opened()
    republish = {"src": "in.*", "dest": "out.{{partition(0,1)}}"}
    await account.create("S", subjects=["in.*"], republish=republish)
    received = await account.subscribe("out.>")
    facts = await _after(server, account, "in.a")
    facts["republished_on"] = subjects_of(received)
    account = await laboratory.restart(server)
    facts["accepted_before_and_there_after_restart"] = (await account.info("S"))["config"]["republish"] == republish
    return facts


@scenario
async def partition_zero_at_ingress(laboratory: Laboratory) -> Facts:
    """A modulus of 0 in a stream's subject_transform: the message is not stored, as the server ends before."""
    server, account = await laboratory.opened()
    transform = {"src": "in.*", "dest": "in.{{partition(0,1)}}"}
    await account.create("S", subjects=["in.*"], subject_transform=transform)
    facts = await _after(server, account, "in.a")
    account = await laboratory.restart(server)
    return {**facts, "stored": subjects_of(await account.stored("S"))}


@scenario
async def partition_zero_in_a_source(laboratory: Laboratory) -> Facts:
    """A modulus of 0 in the transform of a source: the server ends again as often as it is started."""
    server, account = await laboratory.with_source()
    await account.publish("in.a", "x")
    await _on_disk(server, b"x")
    source = {"name": "O", "subject_transforms": [{"src": "in.*", "dest": "out.{{partition(0,1)}}"}]}
    try:
        await account.create("T", sources=[source])
        stored = subjects_of(await account.holding("T", 1))
    except SubjectError:
        ended = await has_ended(server, account.client)
        with contextlib.suppress(SubjectError):  # it may end before it is ready, or a moment later
            await server.started()
        await until(lambda: not server.running, "the second end of the server process")
        return {"server": "ended" if ended else "running", "ends_again_at_start": True, "stored": []}
    return {"server": "running", "ends_again_at_start": False, "stored": stored}


@scenario
async def partition_zero_in_a_mapping(laboratory: Laboratory) -> Facts:
    """A modulus of 0 in an account mapping: no stream is needed to end the server."""
    server, account = await laboratory.opened('mappings: {"in.*": "mapped.{{partition(0,1)}}"}')
    received = await account.subscribe("mapped.>")
    account.send("in.a")
    ended = await has_ended(server, account.client)
    return {"server": "ended" if ended else "running", "delivered_on": subjects_of(received)}


@scenario
async def empty_mapping_destination(laboratory: Laboratory) -> Facts:
    """An account mapping to an empty destination: refused at start, or accepted until a message matches."""
    config = 'mappings: {"in.a": ""}'
    if not await laboratory.starts(config):
        return {"starts": False}
    server, account = await laboratory.opened(config)
    account.send("in.b")
    before = await has_ended(server, account.client)
    account.send("in.a")
    after = await has_ended(server, account.client)
    return {"starts": True, "ended_by_another_subject": before, "ended_by_a_matching_subject": after}


@scenario
async def null_source(laboratory: Laboratory) -> Facts:
    """Send `"sources": [null]` in a request, as any client may."""
    server, account = await laboratory.opened()
    code = None
    with contextlib.suppress(SubjectError):
        code = await account.refusal("STREAM.CREATE.S", {"name": "S", "sources": [None]})
    ended = await has_ended(server, account.client)
    return {"server": "ended" if ended else "running", "err_code": code}


@scenario
async def kill_and_restart(laboratory: Laboratory) -> Facts:
    """A crash after stored messages: nothing is republished again, and the last sequence continues."""
    server, account = await laboratory.opened()
    await account.create("S", subjects=["in.*"], republish={"src": "in.*", "dest": "out.$1"})
    before = payloads_of(await account.republished("first-payload", "second-payload"))
    await _on_disk(server, b"second-payload")
    account = await laboratory.restart(server, kill=True)
    received = await account.republished("third-payload")
    return {
        "republished_before": before,
        "republished_after": payloads_of(received),
        **numbers_of(received.messages[0]),
        "stored": payloads_of(await account.stored("S")),
    }


@scenario
async def kill_while_sourcing(laboratory: Laboratory) -> Facts:
    """Kill a server whose stream has sourced.

    It resumes after its last stored message, without losses or duplicates.
    """
    server, account = await laboratory.with_source()
    await account.create("T", sources=[{"name": "O"}])
    await account.publish_all("in.a", ["payload-1", "payload-2"])
    await account.holding("T", 2)
    await _on_disk(server, b"payload-2", times=2)
    account = await laboratory.restart(server, kill=True)
    await account.publish_all("in.a", ["payload-3"])
    return {"stored": payloads_of(await account.holding("T", 3))}
