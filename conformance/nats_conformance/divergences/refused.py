"""Divergences of rules that servers accept and the bridge refuses."""

from dataclasses import replace
from pathlib import Path
from typing import Final

import yaml

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


_WORDS: Final[dict[str, list[str]]] = yaml.safe_load(Path(__file__).with_name("refused.yaml").read_text("utf-8"))
NORMALISERS: Final[dict[str, Normaliser]] = {
    **{name: _refused_with(*words) for name, words in _WORDS.items()},
    "kd/refused/before-2.10": _refused_before_2_10,
    "kd/refused/update": _refused_update,
}
