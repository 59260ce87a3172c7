"""Scenarios for republishing into the same stream: the configurations that servers accept, and their effects."""

from collections.abc import Mapping

from nats_conformance.catalogue.case import Json
from nats_conformance.scenarios.account import Account
from nats_conformance.scenarios.laboratory import Laboratory
from nats_conformance.scenarios.registry import Facts, scenario
from nats_conformance.scenarios.waiting import first_that

_MANY = 100
"""Number of messages from one publication that counts as a loop."""
_LIMITS: Mapping[str, Json] = {"storage": "memory", "max_msgs": 1000}


async def _grows_without_end(account: Account, name: str) -> bool:
    await account.reached(name, _MANY)
    return True


@scenario
async def republish_emptied_by_update(laboratory: Laboratory) -> Facts:
    """Send `"republish": {}` in an update, as a user would to turn republish off."""
    account = await laboratory.account()
    created = await account.create("S", subjects=["in.*"], republish={"src": "in.*", "dest": "out.$1"}, **_LIMITS)
    refused = await account.refusal("STREAM.UPDATE.S", {**created, "republish": {}})
    await account.publish("in.a", "x")
    if refused is not None:
        return {"err_code": refused, "loops": False}
    loops = await _grows_without_end(account, "S")
    republish = (await account.info("S"))["config"]["republish"]
    return {"err_code": None, "republish": republish, "loops": loops}


@scenario
async def republish_onto_a_literal_subject(laboratory: Laboratory) -> Facts:
    """A destination with a wildcard that can only become the stream's own literal subject is not seen as a cycle."""
    account = await laboratory.account()
    await account.create("S", subjects=["in.a"], republish={"src": "*.a", "dest": "$1.a"}, **_LIMITS)
    await account.publish("in.a", "x")
    return {"loops": await _grows_without_end(account, "S")}


@scenario
async def two_streams_that_republish_to_each_other(laboratory: Laboratory) -> Facts:
    """Republish two streams into each other: neither stream alone has a cycle."""
    account = await laboratory.account()
    await account.create("A", subjects=["a.*"], republish={"src": "a.*", "dest": "b.$1"}, **_LIMITS)
    await account.create("B", subjects=["b.*"], republish={"src": "b.*", "dest": "a.$1"}, **_LIMITS)
    await account.publish("a.x", "x")
    return {"loops": await _grows_without_end(account, "A") and await _grows_without_end(account, "B")}


@scenario
async def loop_ends_when_republish_is_removed(laboratory: Laboratory) -> Facts:
    """Update without `republish`: this ends a running loop, if servers allow the edit."""
    account = await laboratory.account()
    created = await account.create("S", subjects=["in.a"], republish={"src": "*.a", "dest": "$1.a"}, **_LIMITS)
    await account.publish("in.a", "x")
    await account.reached("S", _MANY)
    without = {member: value for member, value in created.items() if member != "republish"}
    refused = await account.refusal("STREAM.UPDATE.S", without)
    if refused is not None:
        return {"err_code": refused}

    async def rests() -> bool | None:
        before = (await account.state("S"))["last_seq"]
        return (await account.state("S"))["last_seq"] == before or None

    return {"err_code": None, "comes_to_rest": await first_that(rests, "the end of the loop")}
