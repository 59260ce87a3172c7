"""Divergences of rules that servers accept and the bridge refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from nats_conformance.catalogue.case import Create, Expectation, ExpectedRefusal, Update
from nats_conformance.divergences.pair import Normaliser, Pair

_NOT_UPDATED: Final = 10069


def _refused_with(*words: str) -> Normaliser:
    """Ignore a rule that servers accept and the bridge refuses with one of these words."""

    def normalise(pair: Pair) -> Pair:
        if pair.expectation.refusal is None and any(word in text for text in pair.refusals for word in words):
            return _as_refused(pair)
        return pair

    return normalise


def _refused_before_2_10(pair: Pair) -> Pair:
    """Treat settings that 2.9 does not support or check like 2.10; the error number shows that."""
    is_old = not pair.subject.behaviour.stream_fields_of_2_10
    has_number = any(each.refusal and each.refusal.err_code for each in pair.observation.decisions)
    reported = has_number or any("a dialect before 2.10" in text for text in pair.refusals)
    return _as_refused(pair) if is_old and reported and pair.expectation.refusal is None else pair


def _refused_update(pair: Pair) -> Pair:
    last = next((step for step in reversed(pair.case.steps) if isinstance(step, Create | Update)), None)
    if not pair.refusals or not isinstance(last, Update):
        return pair
    wanted = pair.expectation.refusal
    if wanted is None:
        return _as_refused(pair)
    if wanted.err_code == _NOT_UPDATED:
        return pair.expecting(refusal=ExpectedRefusal())
    return pair


def _as_refused(pair: Pair) -> Pair:
    return replace(pair, expectation=Expectation(refusal=ExpectedRefusal()))


NORMALISERS: Final[dict[str, Normaliser]] = {
    "kd/refused/idle": _refused_with(
        "nothing would be republished",
        "nothing would be transformed",
        "no message can be published there",
        "no subject can match it",
    ),
    "kd/refused/loop": _refused_with("detected cycle", "loop:", "forms a cycle", "an endless loop"),
    "kd/refused/reserved": _refused_with("which belongs to servers and replies", "is a command to the server"),
    "kd/refused/star-token": _refused_with("in a stream's transform. The sidecar cannot subscribe to that"),
    "kd/refused/time": _refused_with("must be a time with zone"),
    "kd/refused/start-beyond-end": _refused_with("is beyond its end"),
    "kd/refused/side-effects": _refused_with("allow_side_effects: true"),
    "kd/refused/null": _refused_with("not nothing"),
    "kd/refused/crash": _refused_with("partition of 0 ends"),
    "kd/refused/name": _refused_with("cannot be a stream's name", "'name' is missing"),
    "kd/refused/unknown-key": _refused_with("unknown key"),
    "kd/refused/selects-nothing": _refused_with("overlaps none of its subjects"),
    "kd/copy/same-stream-twice-2.9": _refused_with("servers before 2.10 keep one position for both"),
    "kd/refused/before-2.10": _refused_before_2_10,
    "kd/refused/update": _refused_update,
}
