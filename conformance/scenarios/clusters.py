"""Three servers: what replicas do together, and what each does on its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from conformance.errors import SubjectError
from conformance.scenarios.account import Account
from conformance.scenarios.laboratory import Laboratory
from conformance.scenarios.registry import scenario
from conformance.scenarios.texts import header_of, payloads_of, subjects_of
from conformance.scenarios.waiting import arrived, first_that
from conformance.servers import NativeCluster, NativeServer

_REPUBLISH = {"src": "in.*", "dest": "out.$1"}
_ANSWER_LIMIT = 2.0
"""Seconds until a request that went to a server which is no more is sent again."""


async def _led(account: Account, stream: str, *, by_other_than: str = "") -> str:
    """The name of the stream's leader, as soon as it has one, and all its running replicas are up to date."""

    async def leader() -> str | None:
        try:
            async with asyncio.timeout(_ANSWER_LIMIT):
                cluster = (await account.info(stream)).get("cluster") or {}
        except (TimeoutError, SubjectError):
            return None
        found: str = cluster.get("leader") or ""
        replicas = [each for each in cluster.get("replicas") or () if not each.get("offline")]
        behind = any(not each.get("current") or each.get("lag") for each in replicas)
        return None if not found or found == by_other_than or behind else found

    return await first_that(leader, f"a leader of stream {stream!r}")


async def _step_down(account: Account, stream: str) -> str:
    """Ask the stream's leader to hand over; the name of the new one."""
    before = await _led(account, stream)
    await account.request(f"STREAM.LEADER.STEPDOWN.{stream}")
    return await _led(account, stream, by_other_than=before)


async def _created(account: Account, name: str, **config: Any) -> None:
    """Create a stream of three replicas; a cluster that was just started may need a moment."""

    async def created() -> bool | None:
        body = {"name": name, "num_replicas": 3, **config}
        return "error" not in await account.client.api(f"STREAM.CREATE.{name}", body) or None

    await first_that(created, f"the stream {name!r}")
    await _led(account, name)


def _node(cluster: NativeCluster, name: str) -> NativeServer:
    return next(node for node in cluster.nodes if node.name == name)


async def _everything_sent(laboratory: Laboratory, cluster: NativeCluster, watcher: Account) -> None:
    """Wait until what each running node has sent until now is here: a message of each comes behind it."""
    fence = await watcher.hear("fence")
    running = [node for node in cluster.nodes if node.running]
    for node in running:
        account = await laboratory.connect(node)
        account.send("fence")
        await account.client.flush()
    await arrived(fence, len(running))


@scenario
async def republish_of_three_replicas(laboratory: Laboratory) -> Mapping[str, Any]:
    """One copy of each message, from the leader alone, through a step-down and through the leader's end."""
    cluster = await laboratory.cluster()
    watcher = await laboratory.connect(cluster.nodes[0])
    await _created(watcher, "S", subjects=["in.*"], republish=_REPUBLISH)
    heard = await watcher.hear("out.>")
    elected = await watcher.hear("$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.S")
    await watcher.publish_all("in.a", ["1", "2", "3"])
    stepped = await _step_down(watcher, "S")
    await watcher.publish_all("in.a", ["4", "5", "6"])
    await arrived(heard, 6)
    while stepped == cluster.nodes[0].name:  # the watcher's own server has to live
        stepped = await _step_down(watcher, "S")
    await asyncio.to_thread(_node(cluster, stepped).kill)
    await _led(watcher, "S", by_other_than=stepped)
    await watcher.publish_all("in.a", ["7", "8", "9"])
    await arrived(heard, 9)
    await _led(watcher, "S")
    await _everything_sent(laboratory, cluster, watcher)
    leaders = {json.loads(each.payload)["leader"] for each in elected.messages}
    return {
        "republished": payloads_of(heard),
        "sequences": [header_of(each, "Nats-Sequence") for each in heard.messages],
        "last_sequences": [header_of(each, "Nats-Last-Sequence") for each in heard.messages],
        "an_advisory_names_the_new_leader": stepped in leaders,
    }


@scenario
async def random_at_ingress_of_three_replicas(laboratory: Laboratory) -> Mapping[str, Any]:
    """``random`` in the ingress transform of a stream with replicas: each one draws a subject of its own."""
    cluster = await laboratory.cluster()
    account = await laboratory.connect(cluster.nodes[0])
    transform = {"src": "in.*", "dest": "drawn.{{random(1000000000)}}"}
    await _created(account, "S", subjects=["in.*"], subject_transform=transform)
    await account.publish_all("in.a", ["x"])
    before = await _first_subject(account)
    await _step_down(account, "S")
    return {"same_subject_on_the_new_leader": await _first_subject(account) == before}


async def _first_subject(account: Account) -> str:
    answer = await account.request("STREAM.MSG.GET.S", {"seq": 1})
    subject: str = answer["message"]["subject"]
    return subject


@scenario
async def source_of_three_replicas(laboratory: Laboratory) -> Mapping[str, Any]:
    """A sourcing stream of three replicas changes its leader: nothing is doubled or left out."""
    cluster = await laboratory.cluster()
    account = await laboratory.connect(cluster.nodes[0])
    await _created(account, "O", subjects=["in.*"])
    await _created(account, "T", sources=[{"name": "O"}])
    await account.publish_all("in.a", ["1", "2"])
    await account.holding("T", 2)
    await _step_down(account, "T")
    await account.publish_all("in.a", ["3"])
    await account.holding("T", 3)
    leader = await _step_down(account, "T")
    while leader == cluster.nodes[0].name:
        leader = await _step_down(account, "T")
    await asyncio.to_thread(_node(cluster, leader).kill)
    await _led(account, "O")
    await _led(account, "T", by_other_than=leader)
    await account.publish_all("in.a", ["4"])
    return {"stored": payloads_of(await account.ending_with("T", "4"))}


@scenario
async def memory_stream_of_three_replicas(laboratory: Laboratory) -> Mapping[str, Any]:
    """A memory stream whose servers are restarted one after the other keeps its messages, unlike that of one server."""
    cluster = await laboratory.cluster()
    account = await laboratory.connect(cluster.nodes[0])
    await _created(account, "S", subjects=["in.*"], storage="memory")
    await account.publish_all("in.a", ["1", "2"])
    for node in cluster.nodes:
        await asyncio.to_thread(node.restart)
        account = await laboratory.connect(node)
        await asyncio.to_thread(cluster.await_leader)
        await _led(account, "S")
    await account.publish_all("in.b", ["3"])
    return {"stored": payloads_of(await account.stored("S")), "subjects": subjects_of(await account.stored("S"))}
