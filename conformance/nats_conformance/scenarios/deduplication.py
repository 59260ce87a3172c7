"""Scenarios about message ids and the duplicate window."""

import itertools
from collections.abc import Mapping
from functools import partial
from typing import Any

from nats_conformance.scenarios.account import Account
from nats_conformance.scenarios.laboratory import Laboratory
from nats_conformance.scenarios.registry import Facts, register, scenario
from nats_conformance.scenarios.stalls import copied, copied_or_stalled
from nats_conformance.scenarios.texts import payloads_of
from nats_conformance.scenarios.waiting import first_that

_ID = ["Nats-Msg-Id: m"]
_SECOND = 1_000_000_000
_LATE = 100  # looks, each after a pause


@scenario
async def duplicate_within_and_behind_the_window(laboratory: Laboratory) -> Facts:
    """Publish duplicates.

    Within the window they are not republished; after it, the id is stored and republished again.
    """
    account = await laboratory.account()
    republish = {"src": "in.*", "dest": "out.$1"}
    await account.create("S", subjects=["in.*"], republish=republish, duplicate_window=3600 * _SECOND)
    received = await account.subscribe("out.>")
    await account.publish("in.a", "1", _ID)
    within = await account.publish("in.a", "2", _ID)
    await account.client.flush()
    republished_within = payloads_of(received)
    windows = itertools.count(_SECOND // 10)
    await account.update("S", duplicate_window=next(windows))
    looks = itertools.count(1)

    async def accepted() -> Mapping[str, Any] | None:
        answer = await account.publish("in.a", "3", _ID)
        if not answer.get("duplicate"):
            return answer
        if next(looks) % _LATE == 0:
            # A server (seen: 2.12.15) sometimes keeps the timer of the previous window. Another update sets it again.
            await account.update("S", duplicate_window=next(windows))
        return None

    behind = await first_that(accepted, "an end of the duplicate window")
    await account.client.flush()
    is_duplicate = within.get("duplicate", False)
    return {
        "within": {"duplicate": is_duplicate, "seq": within["seq"], "republished": republished_within},
        "behind": {"seq": behind["seq"], "republished": payloads_of(received)},
    }


async def _repeated_id(laboratory: Laboratory, **target: Any) -> Facts:
    account = await laboratory.account()
    await _source_with_a_repeated_id(account)
    return await copied(account, target)


async def _source_with_a_repeated_id(account: Account) -> None:
    await account.create("O", subjects=["in.*"], duplicate_window=_SECOND // 10)
    await account.publish("in.a", "1", _ID)

    async def accepted() -> bool | None:
        return None if (await account.publish("in.a", "2", _ID)).get("duplicate") else True

    await first_that(accepted, "an end of the source's duplicate window")
    await account.publish("in.a", "3")


register("repeated-id-in-a-source", partial(_repeated_id, sources=[{"name": "O"}], duplicate_window=3600 * _SECOND))
# Without a `duplicate_window` the server's default decides.
register("repeated-id-in-a-source-by-default", partial(_repeated_id, sources=[{"name": "O"}]))


@scenario
async def repeated_id_in_a_mirror(laboratory: Laboratory) -> Facts:
    """Mirror a source with a repeated id into a mirror with a window.

    A server that treats the second one as a duplicate drops the messages read in the same batch, and requests them
    again. It stores messages of the next batch. Batches depend on timing, so only the duplicate is a fact.
    """
    facts = await _repeated_id(laboratory, mirror={"name": "O"}, duplicate_window=3600 * _SECOND)
    return {"stores_the_repeated": "2" in facts["stored"]}


@scenario
async def stall_ends_with_the_window(laboratory: Laboratory) -> Facts:
    """Shorten the target's window: a server that waited for the duplicate stores it now."""
    account = await laboratory.account()
    await _source_with_a_repeated_id(account)
    requests = await account.subscribe("$JS.API.CONSUMER.CREATE.>")
    await account.create("T", sources=[{"name": "O"}], duplicate_window=3600 * _SECOND)
    stalled = await copied_or_stalled(account, requests, "O")
    await account.update("T", duplicate_window=_SECOND // 10)
    return {"stalled_before": stalled, "stored": payloads_of(await account.ending_with("T", "3"))}


@scenario
async def same_id_from_two_sources(laboratory: Laboratory) -> Facts:
    """Two sources with the same id in one target: the second one is a duplicate there."""
    account = await laboratory.account()
    requests = await account.subscribe("$JS.API.CONSUMER.CREATE.>")
    await account.create("O", subjects=["in.*"])
    await account.create("P", subjects=["other.*"])
    await account.create("T", sources=[{"name": "O"}], duplicate_window=3600 * _SECOND)
    await account.publish("in.a", "1", _ID)
    await account.holding("T", 1)
    await account.publish("other.a", "2", _ID)
    await account.publish("other.a", "3")
    await account.update("T", sources=[{"name": "O"}, {"name": "P"}])
    stalled = await copied_or_stalled(account, requests, "P")
    await account.publish("in.a", "end")
    return {"stalled": stalled, "stored": payloads_of(await account.ending_with("T", "end"))}
