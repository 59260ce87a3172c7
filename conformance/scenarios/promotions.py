"""A mirror that becomes a stream of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nats_bridge.conformance.scenarios.laboratory import Laboratory
from nats_bridge.conformance.scenarios.registry import scenario
from nats_bridge.conformance.scenarios.texts import numbers_of, payloads_of
from nats_bridge.conformance.scenarios.waiting import arrived


@scenario
async def mirror_promotion(laboratory: Laboratory) -> Mapping[str, Any]:
    """An update that removes ``mirror`` and sets ``subjects``: the sequence and the last sequence continue."""
    _, account = await laboratory.with_source("1", "2")
    created = await account.create("M", mirror={"name": "O"})
    await account.holding("M", 2)
    config = {member: value for member, value in created.items() if member != "mirror"}
    config |= {"subjects": ["own.*", "in.a"], "republish": {"src": ">", "dest": "out.>"}}
    await account.request("STREAM.DELETE.O")
    refused = await account.refusal("STREAM.UPDATE.M", config)
    if refused is not None:
        return {"err_code": refused}
    received = await account.subscribe("out.>")
    await account.publish_all("in.a", ["3"])
    (copy,) = await arrived(received, 1)
    return {
        "err_code": None,
        "stored": payloads_of(await account.stored("M")),
        **numbers_of(copy.message),
    }
