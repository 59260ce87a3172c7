"""A whole observation in a form that two subjects of test share: also what no case expects anything of."""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet

from nats_conformance.catalogue.case import Case, Json, Message
from nats_conformance.judging import shown
from nats_conformance.observation import Decision, Observation

_TIME = re.compile(rb"Nats-Time-Stamp: [^\r]*")
_IDENTITY = re.compile(rb"(Nats-Stream-Source: [^\r]*) [0-9A-Za-z]{8}\r")


def is_determined(case: Case) -> bool:
    """Whether a server shows the same each time that it plays a case."""
    return not any("random" in str(step) for step in case.steps)


def whole(observation: Observation, streams: AbstractSet[str]) -> dict[str, Json]:
    """An observation without times, identities, and what servers add about themselves.

    Args:
        streams: those whose messages count; of several sources the order is the server's own.
    """
    return {
        "decisions": [_decision(each) for each in observation.decisions],
        "received": [_message(each) for each in observation.received],
        # What the answer says of an atomic batch is the store's business; the model knows no batches.
        "acks": [None if each is None else {**each, "batch": 0, "count": 0} for each in observation.acks],
        "stored": {
            name: [{"sequence": each.sequence, **_message(each.message)} for each in messages]
            for name, messages in observation.stored.items()
            if messages and name in streams
        },
    }


def _message(message: Message) -> dict[str, str]:
    block = _TIME.sub(b"Nats-Time-Stamp: <time>", message.header_block)
    block = _IDENTITY.sub(rb"\1 <identity>\r", block)
    return {"subject": shown(message.subject), "headers": shown(block), "payload": shown(message.payload)}


def _decision(decision: Decision) -> Json:
    if decision.config is None:
        refusal = decision.refusal
        return refusal and {"refused": f"{refusal.code}/{refusal.err_code} {refusal.description}"}
    config = dict(decision.config)
    own = {key: value for key, value in config.pop("metadata", {}).items() if not key.startswith("_nats.")}
    return {"config": config | ({"metadata": own} if own else {})}
