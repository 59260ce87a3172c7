"""What is seen of the engine is what is seen of a real server, whole: also what no case expects."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from conformance.catalogue import Case, Message, read_catalogue
from conformance.observation import Decision, Observation
from conformance.servers import fetch
from conformance.subjects.engine import EngineSubject
from conformance.subjects.native import NativeSubject
from conformance.subjects.subject import CannotPlay

_TIME = re.compile(rb"Nats-Time-Stamp: [^\r]*")
_IDENTITY = re.compile(rb"(Nats-Stream-Source: [^\r]*) [0-9A-Za-z]{8}\r")


def _message(message: Message) -> Message:
    block = _TIME.sub(b"Nats-Time-Stamp: <time>", message.header_block)
    return replace(message, header_block=_IDENTITY.sub(rb"\1 <identity>\r", block))


def _decision(decision: Decision) -> Decision:
    """Without what servers add about themselves."""
    if decision.config is None:
        return decision
    config = dict(decision.config)
    own = {key: value for key, value in config.pop("metadata", {}).items() if not key.startswith("_nats.")}
    return Decision(config | ({"metadata": own} if own else {}))


def _whole(observation: Observation, streams: frozenset[str]) -> dict[str, Any]:
    return {
        "decisions": [_decision(each) for each in observation.decisions],
        "received": [_message(each) for each in observation.received],
        # What the answer says of an atomic batch is the store's business; the model knows no batches.
        "acks": [None if each is None else {**each, "batch": 0, "count": 0} for each in observation.acks],
        "stored": {
            name: [(each.sequence, _message(each.message)) for each in messages]
            for name, messages in observation.stored.items()
            if messages and name in streams
        },
    }


async def test_the_engine_shows_what_a_server_shows(twin_version: str, tmp_path: Path) -> None:
    native = NativeSubject(twin_version, fetch(twin_version), tmp_path)
    engine = EngineSubject(twin_version)

    async def difference(case: Case) -> list[str]:
        try:
            modelled = await engine.play(case)
        except CannotPlay:
            return []
        seen = await native.play(case)
        # A server is asked for what the case is about alone; of several sources the order is its own.
        streams = frozenset(seen.stored) - case.expected(native.identity.version).any_order
        left, right = _whole(seen, streams), _whole(modelled, streams)
        return [f"{case.id}: {key}: {left[key]} != {right[key]}" for key in left if left[key] != right[key]]

    cases = [
        case
        for case in read_catalogue()
        if case.applies(native.identity.version) and not any("random" in str(step) for step in case.steps)
    ]
    await native.open()
    try:
        found = await asyncio.gather(*map(difference, cases))
    finally:
        await native.close()
    assert [each for differences in found for each in differences] == []
