"""Messages at a stream's ingress that the server stores and a rule cannot."""

from collections.abc import Mapping
from typing import Any, Final

from nats_conformance.divergences.pair import Normaliser, Pair, published

_REFUSAL: Final = "stream transform: nats-bridge: "


def _ingress_refused(*words: str) -> Normaliser:
    """Ignore messages that the server stores and an ingress rule refuses with one of these words in the answer."""

    def is_refused(ack: Mapping[str, Any] | None) -> bool:
        said = str((ack or {}).get("description", ""))
        return said.startswith(_REFUSAL) and any(word in said for word in words)

    def normalise(pair: Pair) -> Pair:
        seen = pair.observation.acks
        if not any(map(is_refused, seen)):
            return pair
        expected = pair.expectation.acks
        if expected is not None and len(expected) == len(seen):
            acks: list[Mapping[str, Any] | None] = []
            for wanted, ack in zip(expected, seen, strict=True):
                before = sum(map(is_refused, seen[: len(acks)]))
                if wanted is not None and "seq" in wanted:
                    wanted = {**wanted, "seq": wanted["seq"] - before}
                acks.append({} if is_refused(ack) else wanted)
            pair = pair.expecting(acks=tuple(acks))
        return pair.without_unpublishable(pair.streams("subject_transform"))

    return normalise


NORMALISERS: Final[dict[str, Normaliser]] = {
    "kd/ingress/published": published("subject_transform"),
    "kd/ingress/unpublishable": _ingress_refused("becomes"),
    "kd/ingress/wildcard-tokens": _ingress_refused("holds a wildcard as a token"),
}
