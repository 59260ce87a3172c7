"""Scenarios with three servers and replicated streams."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Container
from typing import Any, TypeVar

from nats_conformance.catalogue.case import Message
from nats_conformance.errors import SubjectError
from nats_conformance.native_servers import NativeCluster, NativeServer
from nats_conformance.raw_client import Collected
from nats_conformance.scenarios.account import REPUBLISH, Account
from nats_conformance.scenarios.laboratory import Laboratory
from nats_conformance.scenarios.registry import Facts, scenario
from nats_conformance.scenarios.texts import header_of, payloads_of
from nats_conformance.scenarios.waiting import arrived, first_that, until

_ANSWER_LIMIT = 5.0
"""Seconds until a request that went to an ended server is sent again."""
_ELECTION_LIMIT = 10.0
"""Seconds until an unchanged leader is asked again to step down."""
_Found = TypeVar("_Found")


async def _answered(ask: Callable[[], Awaitable[_Found | None]], what: str) -> _Found:
    """Call `ask` repeatedly until the result is not None, through changes of leaders, which lose requests."""

    async def asked() -> _Found | None:
        try:
            async with asyncio.timeout(_ANSWER_LIMIT):
                return await ask()
        except (OSError, SubjectError):
            return None

    return await first_that(asked, what)


async def _led(account: Account, stream: str, *, other_than: str = "", dead: str = "") -> str:
    """Return the name of the stream's leader, as soon as it has one and its living replicas have all that it has."""

    async def leader() -> str | None:
        cluster = (await account.info(stream)).get("cluster") or {}
        found: str = cluster.get("leader") or ""
        replicas = [each for each in cluster.get("replicas") or () if each["name"] != dead]
        behind = any(not each.get("current") or each.get("lag") for each in replicas)
        return None if found in ("", other_than, dead) or behind else found

    return await _answered(leader, f"a leader of stream {stream!r}")


async def _everywhere(cluster: NativeCluster, account: Account, stream: str) -> None:
    """Wait until each running server has stored what the leader has.

    A server that has not, and becomes the leader, can republish or copy the last messages again (2.10.27).
    """

    async def there() -> bool | None:
        last = (await account.state(stream))["last_seq"]
        for node in [node for node in cluster.nodes if node.running]:
            accounts = (await asyncio.to_thread(node.monitored, "/jsz?streams=true")).get("account_details") or ()
            streams = [each for one in accounts for each in one.get("stream_detail") or () if each["name"] == stream]
            if [each["state"]["last_seq"] for each in streams] != [last]:
                return None
        return True

    await _answered(there, f"stream {stream!r} on each server")


async def _step_down(cluster: NativeCluster, account: Account, stream: str) -> str:
    """Make the stream's leader step down, again if it is re-elected. Return the name of the new one."""
    before = await _led(account, stream)
    await _everywhere(cluster, account, stream)

    async def other() -> str | None:
        try:
            async with asyncio.timeout(_ELECTION_LIMIT):
                await account.client.api(f"STREAM.LEADER.STEPDOWN.{stream}")
                return await _led(account, stream, other_than=before)
        except (TimeoutError, SubjectError):
            return None

    return await first_that(other, f"another leader of stream {stream!r}")


async def _created(account: Account, name: str, **config: Any) -> None:
    """Create a stream with three replicas, waiting for a cluster that was just started."""

    body = {"name": name, "num_replicas": 3, **config}
    await _answered(lambda: account.request(f"STREAM.CREATE.{name}", body), f"the stream {name!r}")
    await _led(account, name)


async def _holding(account: Account, name: str, count: int) -> list[str]:
    """Return the payloads of a stream, once it has at least `count` messages."""

    async def found() -> list[str] | None:
        has_all = (await account.state(name))["messages"] >= count
        return (payloads_of(await account.stored(name)) or None) if has_all else None

    return await _answered(found, f"message {count} of stream {name!r}")


async def _publish(account: Account, *payloads: str) -> None:
    """Publish, each stored before the next one, through a change of leaders.

    For a moment there may be no responder, or a former leader. An id makes it safe to send again.
    """
    for payload in payloads:

        async def stored(text: str = payload) -> bool | None:
            return "error" not in await account.publish("in.a", text, [f"Nats-Msg-Id: {text}"]) or None

        await _answered(stored, f"the answer to message {payload!r}")


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
    stepped = await _step_down(cluster, watcher, "S")
    await _publish(watcher, "4", "5", "6")
    await until(lambda: len(copies()) == 6, "the copy of message 6")
    while stepped == cluster.nodes[0].name:  # the watcher's own server has to live
        stepped = await _step_down(cluster, watcher, "S")
    await _everywhere(cluster, watcher, "S")
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
    cluster, account = await laboratory.clustered()
    transform = {"src": "in.*", "dest": "drawn.{{random(1000000000)}}"}
    await _created(account, "S", subjects=["in.*"], subject_transform=transform)
    await _publish(account, "x")
    before = await _first_subject(account)
    await _step_down(cluster, account, "S")
    return {"same_subject_on_the_new_leader": await _first_subject(account) == before}


async def _first_subject(account: Account) -> str:
    answer = await _answered(lambda: account.request("STREAM.MSG.GET.S", {"seq": 1}), "message 1 of stream 'S'")
    subject: str = answer["message"]["subject"]
    return subject


@scenario
async def source_of_three_replicas(laboratory: Laboratory) -> Facts:
    """A sourcing stream of three replicas changes its leader twice: nothing is duplicated or left out."""
    cluster, account = await laboratory.clustered()
    await _created(account, "O", subjects=["in.*"])
    await _created(account, "T", sources=[{"name": "O"}])
    await _publish(account, "1", "2")
    await _holding(account, "T", 2)
    await _step_down(cluster, account, "T")
    await _publish(account, "3")
    await _holding(account, "T", 3)
    await _step_down(cluster, account, "T")
    await _publish(account, "4")
    return {"stored": await _holding(account, "T", 4)}


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
    return {"stored": await _holding(account, "S", 3)}
