"""Republished messages: which are missing, their order, and the last sequences that they name."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from nats_conformance.catalogue.case import Delete, Message, MessagePattern
from nats_conformance.divergences.pair import Normaliser, Pair
from nats_conformance.expected_text import matches_text, without_placeholders
from nats_transforms.reserved import is_reserved
from nats_transforms.subject import WHITE_SPACE

_DEL: Final = b"\x7f"
_LAST: Final = re.compile(rb"(?<=\r\n)Nats-Last-Sequence: [0-9]+\r\n")
_SENDER: Final = re.compile(rb"(?<=\r\nNats-Stream: )[^\r]*")


def _not_received(is_lost: Callable[[bytes], bool]) -> Normaliser:
    return lambda pair: pair.with_expected(
        lambda each, stream: None if stream is None and is_lost(each.subject) else each
    )


def _has_white_space(subject: bytes) -> bool:
    return bool(set(without_placeholders(subject)) & set(WHITE_SPACE))


def _unfound(pair: Pair) -> Pair:
    """Ignore messages that a consumer's filter does not find: those with the byte 7f in the subject."""
    filled = pair.copies
    return pair.with_expected(
        lambda each, stream: None if _DEL in each.subject and (stream is None or stream in filled) else each
    )


def _drained(pair: Pair) -> Pair:
    """Ignore that a work queue without other consumers delivers its messages to the rule."""
    queues = {str(config.get("name")) for config in pair.case.configs if config.get("retention") == "workqueue"}
    stored = {
        stream: () if stream in queues and not pair.observation.stored.get(stream) else messages
        for stream, messages in (pair.expectation.stored or {}).items()
    }
    return pair.expecting(stored=stored) if stored else pair


def _last_sequence_where(holds: Callable[[Pair], bool], mistaken: bytes = b"[0-9]+") -> Normaliser:
    """Ignore the last sequences that the server wrote in cases for which a condition is true."""
    expected_line = re.compile(rb"(?<=\r\n)Nats-Last-Sequence: " + mistaken + rb"\r\n")

    def normalise(pair: Pair) -> Pair:
        received, seen = pair.expectation.received, pair.observation.received
        if received is None or len(seen) != len(received) or not holds(pair):
            return pair
        expected: list[MessagePattern] = []
        for wanted, message in zip(received, seen, strict=True):
            line = _LAST.search(message.header_block)
            if wanted.header_block is not None and line is not None:
                # A message may contain such lines already; the last one was added when it was republished.
                block = expected_line.sub(line[0], wanted.header_block)
                wanted = replace(wanted, header_block=block)
            expected.append(wanted)
        return pair.expecting(received=tuple(expected))

    return normalise


def _has_the_defect(pair: Pair) -> bool:
    deletes = any(isinstance(step, Delete) for step in pair.case.steps)
    return deletes and not pair.subject.behaviour.last_sequence_survives_deletions


def _may_expire(pair: Pair) -> bool:
    return bool(pair.streams("max_age") | pair.streams("max_bytes") | pair.streams("allow_msg_ttl"))


def _is_consumed(pair: Pair) -> bool:
    return any(config.get("retention") in ("interest", "workqueue") for config in pair.case.configs)


def _order_of_rules(pair: Pair) -> Pair:
    """Several republish rules: each in its own order, and put together as servers do it."""
    expected, seen = pair.expectation.received, pair.observation.received
    if expected is None or len(pair.streams("republish")) < 2:
        return pair
    queues: dict[bytes, list[Message]] = {}
    for message in seen:
        senders = _SENDER.findall(message.header_block)
        queues.setdefault(senders[-1] if senders else b"", []).append(message)
    ordered: list[Message] = []
    for wanted in expected:
        fitting = next((queue for queue in queues.values() if queue and _is_meant(wanted, queue[0])), None)
        if fitting is None:
            break
        ordered.append(fitting.pop(0))
    left = [message for queue in queues.values() for message in queue]
    return replace(pair, observation=replace(pair.observation, received=(*ordered, *left)))


def _is_meant(wanted: MessagePattern, seen: Message) -> bool:
    pairs = ((wanted.subject, seen.subject), (wanted.payload, seen.payload))
    return all(expected is None or matches_text(expected, found) for expected, found in pairs)


NORMALISERS: Final[dict[str, Normaliser]] = {
    "kd/messages/white-space": _not_received(_has_white_space),
    # They would be commands to an old server, and the sidecar sends none.
    "kd/messages/reserved": _not_received(is_reserved),
    "kd/messages/del": _unfound,
    "kd/stream/work-queue-drains": _drained,
    "kd/last-sequence/native-defect": _last_sequence_where(_has_the_defect, b"0"),
    "kd/last-sequence/expiry": _last_sequence_where(_may_expire),
    "kd/last-sequence/consumed": _last_sequence_where(_is_consumed),
    "kd/order/two-rules": _order_of_rules,
}
