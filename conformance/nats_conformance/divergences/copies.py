"""Divergences of copies: their own headers, and features that an outside process cannot copy."""

import re
from dataclasses import replace
from typing import Final

from nats_conformance.catalogue.case import Message
from nats_conformance.divergences.pair import Normaliser, Pair, published, tidy
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
    return pair.with_seen_blocks(lambda block: _OWN_ID.sub(b"", block))


def _record_name(pair: Pair) -> Pair:
    if not pair.subject.server_behaviour.source_record_is_refused_from_clients:
        return pair
    return pair.with_seen_blocks(lambda block: block.replace(b"\r\nNats-Bridge-Source: ", b"\r\nNats-Stream-Source: "))


def _identity(pair: Pair) -> Pair:
    return pair.with_expected_blocks(lambda block: _IDENTITY.sub(rb"\1\r\n", block)) if pair.copies else pair


def _mirror_record(pair: Pair) -> Pair:
    mirrors = pair.streams("mirror")
    lines = [b"Nats-Stream: %b\r\n" % name.encode() for name in mirrors]

    def without_record(each: Message, stream: str | None) -> Message:
        is_of_mirror = stream in mirrors or (stream is None and any(line in each.header_block for line in lines))
        return replace(each, header_block=tidy(_RECORD.sub(b"", each.header_block))) if is_of_mirror else each

    return pair.with_seen(without_record)


def _earlier_records(pair: Pair) -> Pair:
    # Before 2.11, servers leave in all records of earlier copies but the first.
    if pair.subject.behaviour.copies_lose_every_earlier_record or not pair.copies:
        return pair
    return pair.with_expected_blocks(lambda block: _EARLIER_RECORD.sub(b"", block))


def _withheld(pair: Pair) -> Pair:
    if not pair.copies:
        return pair
    return pair.with_expected_blocks(lambda block: _WITHHELD.sub(b"", block), pair.copies)


def _renamed(pair: Pair) -> Pair:
    return pair.with_seen_blocks(lambda block: _RENAMED.sub(b"", block)) if pair.copies else pair


def _mirror_sequence(pair: Pair) -> Pair:
    mirrors = pair.streams("mirror")
    return pair.with_expected(lambda each, stream: replace(each, sequence=None) if stream in mirrors else each)


def _copy_unpublishable(pair: Pair) -> Pair:
    return pair.without_unpublishable(pair.copies) if pair.observation.facts.get("rejected") else pair


def _probe(pair: Pair) -> Pair:
    return pair.with_seen(lambda each, stream: None if stream is None and _PROBE in each.header_block else each)


NORMALISERS: Final[dict[str, Normaliser]] = {
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
