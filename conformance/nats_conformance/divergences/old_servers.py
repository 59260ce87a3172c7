"""Divergences of servers that are older than a feature of the bridge, or than the dialect."""

import re
from dataclasses import replace
from typing import Final

from nats_conformance.divergences.pair import Normaliser, Pair
from nats_transforms.dialect import FIRST_WITH_TRANSFORMS
from nats_transforms.subject import collide

_INVALID: Final = 10052
_STATUS: Final = re.compile(rb"\ANATS/1\.0[^\r]+\r\n")
_REQUEST_INFO: Final = re.compile(rb"(?<=\r\n)Nats-Request-Info: [^\r]*\r\n")


def _transforms_act(pair: Pair) -> Pair:
    """Expect the behaviour of 2.10 if a dialect before 2.10 has transforms."""
    has_transforms = any(entry.get("subject_transforms") for entry in pair.case.entries)
    if pair.subject.behaviour.stream_fields_of_2_10 or not (has_transforms or pair.streams("subject_transform")):
        return pair
    return replace(pair, expectation=pair.case.expected(FIRST_WITH_TRANSFORMS.version))


def _accepted_source(pair: Pair) -> Pair:
    """Before 2.10 a republish source had to overlap a subject of the stream."""
    refusal = pair.expectation.refusal
    takes_any = pair.subject.behaviour.republish_source_may_miss_subjects
    if takes_any or refusal is None or refusal.err_code != _INVALID:
        return pair
    for config in pair.case.configs:
        wanted = config.get("republish") or {}
        source = str(wanted.get("src") or ">").encode()
        if wanted and not any(collide(source, subject.encode()) for subject in config.get("subjects") or ()):
            return pair.expecting(refusal=None)
    return pair


def _stored_by_older(pair: Pair) -> Pair:
    # A server older than the dialect stores headers that newer ones remove.
    if pair.subject.server_behaviour.version >= pair.subject.version:
        return pair
    return pair.with_seen_blocks(lambda block: _REQUEST_INFO.sub(b"", _STATUS.sub(b"NATS/1.0\r\n", block)))


NORMALISERS: Final[dict[str, Normaliser]] = {
    "kd/accepted/source": _accepted_source,
    "kd/transforms/before-2.10": _transforms_act,
    "kd/older-server/ingest": _stored_by_older,
}
