"""Divergences of servers that copy through a `native_copy` rule: what `external` changes in a source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from nats_bridge.conformance.catalogue.case import Expectation, Refusal
from nats_bridge.conformance.divergences.pair import (
    FIRST_WITH_TRANSFORMS,
    Normaliser,
    Pair,
    expected_blocks,
    seen_blocks,
    unfound,
)
from nats_bridge.transforms.dialect import server_dialect

_RECORD: Final = re.compile(rb"(?<=\r\nNats-Stream-Source: )([^ \r]+) ([^\r]*)(?=\r\n)")
_NUMBERS: Final = (10022, 10030, 10046, 10140, 10152)
_TEXTS: Final = ("detected cycle", "does not overlap with any origin stream subject")
_OF_SOURCES: Final = "source transform destination is invalid (10146)"
_HASH: Final = re.compile(rb":[0-9A-Za-z]{8}\Z")


def _record(pair: Pair) -> Pair:
    """The name of an external source, no transforms, and the subject that the server receives."""
    transformed = {str(entry.get("name")).encode() for entry in pair.case.entries if entry.get("subject_transforms")}
    has_texts = pair.subject.version >= FIRST_WITH_TRANSFORMS

    def common(found: re.Match[bytes]) -> bytes:
        name, fields = _HASH.sub(b"", found[1]), found[2].split(b" ")
        if not has_texts:
            fields = fields[:1]
        elif name in transformed:
            fields = [fields[0], *fields[4:]]
        return b" ".join([name, *fields])

    pair = expected_blocks(pair, lambda block: _RECORD.sub(common, block))
    return seen_blocks(pair, lambda block: _RECORD.sub(common, block))


def _unchecked(pair: Pair) -> Pair:
    """What a server checks or takes over where it knows the source's configuration, and all of an entry."""
    found = pair.expectation
    refusal = found.refusal
    if refusal is not None and (
        refusal.err_code in _NUMBERS or any(text in str(refusal.description) for text in _TEXTS)
    ):
        found = replace(found, refusal=None)
    if found.config is not None:
        found = replace(found, config={name: value for name, value in found.config.items() if name != "mirror_direct"})
    return replace(pair, expectation=found)


def _as_sources(pair: Pair) -> Pair:
    """A mirror of 2.10: its transforms are checked, and its messages found, as those of sources are there."""
    if not pair.streams("mirror") or server_dialect(pair.subject.dialect).stream_transforms_are_mappings:
        return pair
    if pair.expectation.refusal is None and any(_OF_SOURCES in said for said in pair.refusals):
        return replace(pair, expectation=Expectation(refusal=Refusal()))
    return unfound(pair)


NORMALISERS: Final[Mapping[str, Normaliser]] = MappingProxyType(
    {
        "kd/native-copy/record": _record,
        "kd/native-copy/unchecked": _unchecked,
        "kd/native-copy/as-sources": _as_sources,
    }
)
"""Of native copies through the sidecar."""
