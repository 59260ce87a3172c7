"""A trial and what a server showed of it, as an entry of the catalogue: ready to be pasted into a case file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from nats_conformance.catalogue.case import Message
from nats_conformance.native_servers.versions import numbers
from nats_conformance.observation import Observation, Stored
from nats_transforms.dialect import server_dialect
from tests.differential.comparing import Comparison
from tests.differential.drawing import TARGET
from tests.differential.trial import Kind, Trial

_TIME = re.compile(
    rb"(\r\nNats-Time-Stamp: )[^\r]+(\r\nNats-Last-Sequence: [0-9]+\r\n(?:Nats-Msg-Size: [0-9]+\r\n)?\r\n)$"
)
_IDENTITY = re.compile(rb"(Nats-Stream-Source: [^\r]* )[0-9A-Za-z]{8}(\r\n)")
_WHAT = {
    Kind.REPUBLISH: "a republish rule sends",
    Kind.INGRESS: "an ingress transform stores",
    Kind.SOURCE: "a source copies",
    Kind.MIRROR: "a mirror copies",
    Kind.CREATE: "creating a stream is answered with",
    Kind.UPDATE: "updating a stream is answered with",
}


def catalogue_entry(
    number: int,
    version: str,
    trial: Trial,
    native: Observation,
    difference: Comparison,
    listen: Sequence[bytes],
) -> str:
    """A case file with one case, ``native/differential/<number>``, that this version's server passes.

    It expects what the server showed, of this version alone: others may differ, and the author of the case adds how.
    Comments at its start name the engine's difference.
    """
    case: dict[str, Any] = {
        "id": f"native/differential/{number}",
        "title": f"What {_WHAT[trial.kind]}, found by differential testing on {version}",
        "level": "observed",
        "since": version,
        "until": _next_patch(version),
    }
    streams = [*map(dict, trial.others), *([dict(trial.previous)] if trial.previous is not None else [])]
    if streams:
        case["streams"] = streams
    messages = [_text_of(message) for message in trial.messages]
    change = {"create" if trial.previous is None else "update": dict(trial.config)}
    if trial.copies and messages:
        case["steps"] = [{"publish": messages}, change]
    else:
        case |= change
        if messages:
            case["publish"] = messages
    if listen:
        case["listen"] = [subject.decode() for subject in listen]
    case["expect"] = _expectation(version, trial, native, difference)
    document = {"clause": "Native behaviour, found by differential testing", "cases": [case]}
    text = yaml.safe_dump(document, allow_unicode=True, sort_keys=False, width=110, default_flow_style=None)
    comments = (f"{difference.where}:", f"  server: {difference.native}", f"  engine: {difference.engine}")
    return "".join(f"# {line}\n" for line in comments) + text


def _next_patch(version: str) -> str:
    *line, patch = numbers(version)
    return ".".join(map(str, (*line, patch + 1)))


def _expectation(version: str, trial: Trial, native: Observation, difference: Comparison) -> dict[str, Any]:
    decision = native.decisions[-1]
    if decision.refusal is not None:
        refusal = decision.refusal
        return {"refused": {"code": refusal.code, "err_code": refusal.err_code, "description": refusal.description}}
    if difference.aspect in ("decision", "config"):
        name = difference.where.partition(".")[2]
        return {"config": {name: (decision.config or {}).get(name)}} if name else {}
    if difference.kind is Kind.REPUBLISH:
        return {"received": [_text_of(message, seen=True) for message in native.received]}
    stored = native.stored.get(TARGET, ())
    numbered = trial.kind is Kind.MIRROR
    has_identity = trial.kind is Kind.SOURCE and server_dialect(version).source_record_names_identity
    found: dict[str, Any] = {
        "stored": {TARGET: [_text_of_stored(each, numbered=numbered, has_identity=has_identity) for each in stored]}
    }
    if trial.kind is Kind.SOURCE and len(trial.config.get("sources", ())) > 1:
        found["any_order"] = [TARGET]
    return found


def _text_of_stored(stored: Stored, *, numbered: bool, has_identity: bool) -> dict[str, Any]:
    block = stored.message.header_block
    if has_identity:
        block = _IDENTITY.sub(rb"\1<identity>\2", block)
    text = _text_of(Message(stored.message.subject, block, stored.message.payload), seen=True)
    return {**text, "sequence": stored.sequence} if numbered else text


def _text_of(message: Message, *, seen: bool = False) -> dict[str, Any]:
    """A message as a case file has it; of one that was ``seen`` nothing is left out, and times are placeholders."""
    block = _TIME.sub(rb"\1<time>\2", message.header_block) if seen else message.header_block
    text: dict[str, Any] = {"subject": _bytes(message.subject), **_block(block, seen=seen)}
    if message.payload or seen:
        text["payload"] = _bytes(message.payload)
    return text


def _block(block: bytes, *, seen: bool) -> Mapping[str, Any]:
    if not block:
        return {"headers": []} if seen else {}
    lines = block[len(b"NATS/1.0\r\n") : -len(b"\r\n\r\n")].split(b"\r\n")
    if block == b"".join([b"NATS/1.0\r\n", *(line + b"\r\n" for line in lines), b"\r\n"]):
        return {"headers": [_bytes(line) for line in lines]}
    return {"block": _bytes(block)}


def _bytes(raw: bytes) -> str | dict[str, str]:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"hex": raw.hex()}
