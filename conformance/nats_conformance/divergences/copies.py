"""Divergences of copies: their own headers, and features that an outside process cannot copy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from nats_conformance.divergences.pair import (
    Normaliser,
    Pair,
    expected_blocks,
    message_with,
    published,
    seen_blocks,
    stored_with,
    without_unpublishable,
)
from nats_transforms.copy_id import line_pattern

_OWN_ID: Final = re.compile(rb"(?<=\r\n)%b\r\n" % line_pattern())
_RECORD: Final = re.compile(rb"(?<=\r\n)Nats-(?:Stream|Bridge)-Source: [^\r]*\r\n")
_IDENTITY: Final = re.compile(rb"(\r\nNats-(?:Stream|Bridge)-Source: [^\r]*) (?:<identity>|[0-9A-Za-z]{8})\r\n")
_WITHHELD: Final = re.compile(rb"(?<=\r\n)Nats-(?:Rollup|TTL|Expected-[^:]*|Batch-[^:]*): ?[^\r]*\r\n")
_RENAMED: Final = re.compile(rb"(?<=\nNats-)Bridge-(?=Incr:|Schedule)")
_EARLIER_RECORD: Final = re.compile(
    rb"(?<=\r\n)Nats-Stream-Source: [^\r]*\r\n(?=(?:.*\r\n)?Nats-Stream-Source: )", re.DOTALL
)
_PROBE: Final = b"\r\nNats-Expected-Last-Sequence: 9223372036854775807\r\n"


def _message_id(pair: Pair) -> Pair:
    return seen_blocks(pair, lambda block: _OWN_ID.sub(b"", block))


def _record_name(pair: Pair) -> Pair:
    if not pair.subject.server_behaviour.source_record_is_refused_from_clients:
        return pair
    return seen_blocks(pair, lambda block: block.replace(b"\r\nNats-Bridge-Source: ", b"\r\nNats-Stream-Source: "))


def _identity(pair: Pair) -> Pair:
    if not pair.copies:
        return pair
    return expected_blocks(pair, lambda block: _IDENTITY.sub(rb"\1\r\n", block))


def _mirror_record(pair: Pair) -> Pair:
    mirrors = pair.streams("mirror")

    def cut(block: bytes) -> bytes:
        return _RECORD.sub(b"", block)

    stored = {
        stream: tuple(stored_with(each, cut) for each in messages) if stream in mirrors else messages
        for stream, messages in pair.observation.stored.items()
    }
    of_mirrors = tuple(b"Nats-Stream: %b\r\n" % name.encode() for name in mirrors)
    received = tuple(
        message_with(message, cut) if any(line in message.header_block for line in of_mirrors) else message
        for message in pair.observation.received
    )
    return replace(pair, observation=replace(pair.observation, stored=stored, received=received))


def _earlier_records(pair: Pair) -> Pair:
    """Before 2.11 servers leave in all records of earlier copies but the first."""
    if pair.subject.behaviour.copies_lose_every_earlier_record or not pair.copies:
        return pair
    return expected_blocks(pair, lambda block: _EARLIER_RECORD.sub(b"", block))


def _withheld(pair: Pair) -> Pair:
    if not pair.copies:
        return pair
    return expected_blocks(pair, lambda block: _WITHHELD.sub(b"", block), pair.copies)


def _renamed(pair: Pair) -> Pair:
    return seen_blocks(pair, lambda block: _RENAMED.sub(b"", block)) if pair.copies else pair


def _mirror_sequence(pair: Pair) -> Pair:
    mirrors = pair.streams("mirror")
    stored = {
        stream: tuple(replace(each, sequence=None) for each in messages) if stream in mirrors else messages
        for stream, messages in (pair.expectation.stored or {}).items()
    }
    return replace(pair, expectation=replace(pair.expectation, stored=stored)) if stored else pair


def _copy_unpublishable(pair: Pair) -> Pair:
    rejected = pair.observation.facts.get("rejected")
    if not rejected:
        return pair
    return without_unpublishable(pair, pair.copies)


def _probe(pair: Pair) -> Pair:
    kept = tuple(each for each in pair.observation.received if _PROBE not in each.header_block)
    return replace(pair, observation=replace(pair.observation, received=kept))


NORMALISERS: Final[Mapping[str, Normaliser]] = MappingProxyType(
    {
        "kd/copy/message-id": _message_id,
        "kd/copy/record-name": _record_name,
        "kd/copy/identity": _identity,
        "kd/copy/mirror-is-a-stream": _mirror_record,
        "kd/copy/earlier-records": _earlier_records,
        "kd/copy/time-and-sequence": _mirror_sequence,
        "kd/copy/withheld": _withheld,
        "kd/copy/renamed": _renamed,
        "kd/copy/unpublishable": _copy_unpublishable,
        "kd/copy/published": published("sources", "mirror"),
        "kd/copy/probe": _probe,
    }
)
"""The normalisers for copies."""
