"""Copying that stops at a message: everything after it is withheld, and the server requests it repeatedly.

Scenarios for stalled copies. A missing message proves no stall, because it could be late. But a server that requests
the same message again does. Those requests are ordinary messages in the account, and any client may subscribe to them.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial

from nats_conformance.catalogue.case import Json, Message
from nats_conformance.raw_client import Collected
from nats_conformance.scenarios.account import Account
from nats_conformance.scenarios.laboratory import Laboratory
from nats_conformance.scenarios.registry import Facts, register, scenario
from nats_conformance.scenarios.texts import payloads_of, subjects_of
from nats_conformance.scenarios.waiting import first_that

_MIRRORS = 4
"""Number of mirrors that must not stall until mirrors count as not stalling."""
_ROUNDS = 2
"""Number of repeated requests for the same start until copying counts as stalled."""


def starts_asked_for(requests: Collected, source: str) -> list[int]:
    """Return the sequences from which copies of a source were requested, in order; 0 means no start sequence."""
    found = []
    for each in requests.messages:
        request = json.loads(each.payload)
        if request["stream_name"] == source:
            found.append(request["config"].get("opt_start_seq", 0))
    return found


async def copied_or_stalled(account: Account, requests: Collected, source: str) -> bool:
    """Wait until the last message of stream T is "3", or its server repeatedly requests the same one.

    Returns whether it stalled.
    """

    async def either() -> bool | None:
        if await account.ends_with("T", "3"):
            return False
        starts = starts_asked_for(requests, source)
        again = sum(start == starts[-1] for start in starts[1:]) if starts else 0
        return True if again >= _ROUNDS else None

    return await first_that(either, "'3' in stream 'T', or that it stalls")


async def _copy(
    laboratory: Laboratory, second: Sequence[str], target: Mapping[str, Json], *, has_first: bool = True
) -> Facts:
    """Three messages, the second with these headers, in a source that a target copies."""
    account = await laboratory.account()
    await account.create("O", subjects=["in.*"], allow_rollup_hdrs=True)
    if has_first:
        await account.publish_all("in.b", ["1"])
    await account.publish_all("in.a", ["2"], second)
    await account.publish_all("in.a", ["3"])
    return await copied(account, target)


async def copied(account: Account, target: Mapping[str, Json]) -> Facts:
    """Copy three messages of the source. Return the messages in the target at the end, or at the stall.

    A mirror on a server before 2.12 drops the messages that it read in the same batch as one that it cannot store, and
    stalls. It stores messages of the next batch. Batches depend on timing, so the mirror is created again if it did not
    stall.
    """
    for attempt in range(1, (_MIRRORS if "mirror" in target else 1) + 1):
        if attempt > 1:
            await account.request("STREAM.DELETE.T")
        requests = await account.subscribe("$JS.API.CONSUMER.CREATE.>")
        await account.create("T", **target)
        stalled = await copied_or_stalled(account, requests, "O")
        if stalled:
            break
    facts: Facts = {"stalled": stalled, "stored": payloads_of(await account.stored("T"))}
    if stalled:
        facts["asked_again_from"] = starts_asked_for(requests, "O")[-1]
    return facts


async def _copy_of_status(laboratory: Laboratory, target: Mapping[str, Json]) -> Facts:
    """A message without payload whose header block has a status of 100: copies treat it as a heartbeat."""
    _, account = await laboratory.with_source("1")
    await account.client.ask(Message(b"in.a", b"NATS/1.0 100 Idle\r\nA: b\r\n\r\n"))
    await account.publish_all("in.a", ["3"])
    return await copied(account, target)


_EXPECTATION = ["Nats-Expected-Stream: O"]  # of the source: the target has another name
_ROLLUP = ["Nats-Rollup: sub"]  # the target does not allow rollups

for _place, _target in (("source", {"sources": [{"name": "O"}]}), ("mirror", {"mirror": {"name": "O"}})):
    register(f"expectation-in-a-{_place}", partial(_copy, second=_EXPECTATION, target=_target))
    register(f"rollup-in-a-{_place}", partial(_copy, second=_ROLLUP, target=_target))
    # Then the copy has no position to return to.
    register(f"refused-first-message-of-a-{_place}", partial(_copy, second=_ROLLUP, target=_target, has_first=False))
    register(f"status-100-in-a-{_place}", partial(_copy_of_status, target=_target))


@scenario
async def partly_overlapping_filters(laboratory: Laboratory) -> Facts:
    """Two filters of one source that overlap in part: accepted, and then the source refuses to serve them."""
    account = await laboratory.account()
    await account.create("O", subjects=["in.>"])
    await account.publish_all("in.b.a", ["1"])
    transforms = [{"src": "in.*.a", "dest": "x.$1"}, {"src": "in.b.*", "dest": "y.$1"}]
    await account.create("T", sources=[{"name": "O", "subject_transforms": transforms}])

    async def outcome() -> Facts | None:
        info = await account.info("T")
        error = info["sources"][0].get("error")
        if error is None and not info["state"]["messages"]:
            return None
        stored = subjects_of(await account.stored("T"))
        return {"stored_on": stored, "source_error": error and error["err_code"]}

    return await first_that(outcome, "a message or an error of the source")
