"""Scenarios with three servers and replicated streams."""

import asyncio
import json
from collections.abc import Container
from typing import Any

from nats_conformance.catalogue.case import Message
from nats_conformance.errors import SubjectError
from nats_conformance.native_servers import NativeCluster, NativeServer
from nats_conformance.raw_client import Collected
from nats_conformance.scenarios.account import REPUBLISH, Account
from nats_conformance.scenarios.laboratory import Laboratory
from nats_conformance.scenarios.registry import Facts, scenario
from nats_conformance.scenarios.texts import header_of, payloads_of
from nats_conformance.scenarios.waiting import arrived, first_that, until

_ANSWER_LIMIT = 2.0
"""Seconds until a request that went to an ended server is sent again."""
_ELECTION_LIMIT = 10.0
"""Seconds until an unchanged leader is asked again to step down."""


async def _led(account: Account, stream: str, *, other_than: str = "", dead: str = "") -> str:
    """Return the name of the stream's leader, as soon as it has one and its living replicas have all that it has."""

    async def leader() -> str | None:
        try:
            async with asyncio.timeout(_ANSWER_LIMIT):
                cluster = (await account.info(stream)).get("cluster") or {}
        except (TimeoutError, SubjectError):
            return None
        found: str = cluster.get("leader") or ""
        replicas = [each for each in cluster.get("replicas") or () if each["name"] != dead]
        behind = any(not each.get("current") or each.get("lag") for each in replicas)
        return None if found in ("", other_than, dead) or behind else found

    return await first_that(leader, f"a leader of stream {stream!r}")


async def _step_down(account: Account, stream: str) -> str:
    """Make the stream's leader step down, again if it is re-elected. Return the name of the new one."""
    before = await _led(account, stream)

    async def other() -> str | None:
        try:
            async with asyncio.timeout(_ELECTION_LIMIT):
                await account.client.api(f"STREAM.LEADER.STEPDOWN.{stream}")
                return await _led(account, stream, other_than=before)
        except TimeoutError:
            return None

    return await first_that(other, f"another leader of stream {stream!r}")


async def _created(account: Account, name: str, **config: Any) -> None:
    """Create a stream with three replicas, waiting for a cluster that was just started."""

    async def created() -> bool | None:
        body = {"name": name, "num_replicas": 3, **config}
        return "error" not in await account.client.api(f"STREAM.CREATE.{name}", body) or None

    await first_that(created, f"the stream {name!r}")
    await _led(account, name)


async def _publish(account: Account, *payloads: str) -> None:
    """Publish, each stored before the next one, through a change of leaders.

    For a moment there may be no responder, or a former leader. An id makes it safe to send again.
    """
    for payload in payloads:

        async def stored(text: str = payload) -> bool | None:
            try:
                async with asyncio.timeout(_ANSWER_LIMIT):
                    return "error" not in await account.publish("in.a", text, [f"Nats-Msg-Id: {text}"]) or None
            except (TimeoutError, SubjectError):
                return None

        await first_that(stored, f"the answer to message {payload!r}")


def _node(cluster: NativeCluster, name: str) -> NativeServer:
    return next(node for node in cluster.nodes if node.name == name)


async def _everything_sent(laboratory: Laboratory, cluster: NativeCluster, watcher: Account) -> None:
    """Wait until everything that each running node has sent has arrived: a later message of each follows it."""
    fence = await watcher.subscribe("fence")
    running = [node for node in cluster.nodes if node.running]
    for node in running:
        account = await laboratory.connect(node)
        account.send("fence")
        await account.client.flush()
    await arrived(fence, len(running))


def _first_copies(received: Collected, *, repeatable: Container[str | None]) -> list[Message]:
    """Return the republished copies without the second copies of `repeatable` sequences.

    A new leader republishes again the last messages before its election if it did not yet know that they were
    committed (2.10.27, seldom).
    """
    seen: set[str | None] = set()
    copies = []
    for each in received.messages:
        sequence = header_of(each, "Nats-Sequence")
        if sequence not in seen or sequence not in repeatable:
            copies.append(each)
        seen.add(sequence)
    return copies


@scenario
async def republish_of_three_replicas(laboratory: Laboratory) -> Facts:
    """Republish from the leader alone, through a step-down and through the leader's end."""
    cluster, watcher = await laboratory.clustered()
    await _created(watcher, "S", subjects=["in.*"], republish=REPUBLISH)
    received = await watcher.subscribe("out.>")

    def copies() -> list[Message]:
        return _first_copies(received, repeatable=("2", "3", "5", "6"))

    elected = await watcher.subscribe("$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.S")
    await _publish(watcher, "1", "2", "3")
    stepped = await _step_down(watcher, "S")
    await _publish(watcher, "4", "5", "6")
    await until(lambda: len(copies()) == 6, "the copy of message 6")
    while stepped == cluster.nodes[0].name:  # the watcher's own server has to live
        stepped = await _step_down(watcher, "S")
    await asyncio.to_thread(_node(cluster, stepped).kill)
    await _led(watcher, "S", dead=stepped)
    await _publish(watcher, "7", "8", "9")
    await until(lambda: len(copies()) == 9, "the copy of message 9")
    await _led(watcher, "S", dead=stepped)
    await _everything_sent(laboratory, cluster, watcher)
    leaders = {json.loads(each.payload)["leader"] for each in elected.messages}
    return {
        "republished": payloads_of(copies()),
        "sequences": [header_of(each, "Nats-Sequence") for each in copies()],
        "last_sequences": [header_of(each, "Nats-Last-Sequence") for each in copies()],
        "an_advisory_names_the_new_leader": stepped in leaders,
    }


@scenario
async def random_at_ingress_of_three_replicas(laboratory: Laboratory) -> Facts:
    """Use `random` in the ingress transform of a stream with replicas: each one draws another subject."""
    _, account = await laboratory.clustered()
    transform = {"src": "in.*", "dest": "drawn.{{random(1000000000)}}"}
    await _created(account, "S", subjects=["in.*"], subject_transform=transform)
    await _publish(account, "x")
    before = await _first_subject(account)
    await _step_down(account, "S")
    return {"same_subject_on_the_new_leader": await _first_subject(account) == before}


async def _first_subject(account: Account) -> str:
    answer = await account.request("STREAM.MSG.GET.S", {"seq": 1})
    subject: str = answer["message"]["subject"]
    return subject


@scenario
async def source_of_three_replicas(laboratory: Laboratory) -> Facts:
    """A sourcing stream of three replicas changes its leader twice: nothing is duplicated or left out."""
    _, account = await laboratory.clustered()
    await _created(account, "O", subjects=["in.*"])
    await _created(account, "T", sources=[{"name": "O"}])
    await _publish(account, "1", "2")
    await account.holding("T", 2)
    await _step_down(account, "T")
    await _publish(account, "3")
    await account.holding("T", 3)
    await _step_down(account, "T")
    await _publish(account, "4")
    return {"stored": payloads_of(await account.ending_with("T", "4"))}


@scenario
async def memory_stream_of_three_replicas(laboratory: Laboratory) -> Facts:
    """Restart the leader of a memory stream: the others keep its messages, unlike a stream on one server."""
    cluster, account = await laboratory.clustered()
    await _created(account, "S", subjects=["in.*"], storage="memory")
    await _publish(account, "1", "2")
    leader = await _led(account, "S")
    await asyncio.to_thread(_node(cluster, leader).stop)
    await asyncio.to_thread(cluster.bring_back, _node(cluster, leader))
    account = await laboratory.connect(_node(cluster, leader))
    await _publish(account, "3")
    return {"stored": payloads_of(await account.stored("S"))}
