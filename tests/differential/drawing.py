"""Drawing trials: the same for the same seed and number, on every machine and for every version."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from random import Random
from typing import Any

from nats_conformance.catalogue.case import Message
from tests.differential.trial import ALL, Kind, Trial
from tests.drawn.configs import OTHERS, draw_config, draw_previous, draw_update
from tests.drawn.messages import draw_message
from tests.drawn.transforms import (
    draw_filter,
    draw_subject,
    draw_transform,
    fitting_subject,
)

TARGET, SOURCE = "S", "O"
"""The stream that is asked for, and the one whose messages it copies."""

_WEIGHTS: Mapping[Kind, int] = {
    Kind.REPUBLISH: 30, Kind.INGRESS: 16, Kind.SOURCE: 14, Kind.MIRROR: 9, Kind.CREATE: 90, Kind.UPDATE: 60,
}  # fmt: skip


def draw(seed: int, number: int, kinds: Collection[Kind] = ALL) -> Trial:
    """The trial of this seed and number; never one of random functions, which ``chance`` judges."""
    random = Random(f"differential/{seed}/{number}")
    drawable = [kind for kind in _WEIGHTS if kind in kinds]
    kind = random.choices(drawable, [_WEIGHTS[each] for each in drawable])[0]
    match kind:
        case Kind.REPUBLISH | Kind.INGRESS:
            return _own(random, kind)
        case Kind.SOURCE | Kind.MIRROR:
            return _copying(random, kind)
        case Kind.UPDATE:
            previous = draw_previous(random) if random.random() < 0.9 else draw_config(random)
            return Trial(kind, draw_update(random, previous), others=_others(random), previous=previous)
        case _:
            return Trial(kind, draw_config(random), others=_others(random))


def _others(random: Random) -> tuple[Mapping[str, Any], ...]:
    return tuple(each for each in OTHERS if random.random() < 0.4)


def _own(random: Random, kind: Kind) -> Trial:
    """A stream with subjects of its own: republish, an ingress transform, or both."""
    ingress = draw_transform(random)
    # With a function in front, anything may come out.
    out = "d" if random.random() < 0.94 else random.choice(("$1", "{{wildcard(1)}}", "{{partition(3,1)}}"))
    republish = draw_transform(random, out=out)
    config: dict[str, Any] = {"name": TARGET, "subjects": ["s.>"], "storage": "memory"}
    pattern = republish.source
    if kind is Kind.INGRESS or random.random() < 0.12:
        config["subject_transform"] = {"src": ingress.source, "dest": ingress.destination}
        pattern = ingress.source
    if kind is Kind.REPUBLISH:
        source = (
            republish.source if "subject_transform" not in config else random.choice((">", "d.>", "", republish.source))
        )
        destination = republish.destination if source == republish.source else "e.>"
        config["republish"] = {"src": source, "dest": destination}
        if random.random() < 0.3:
            config["republish"]["headers_only"] = True
    subjects = [draw_subject(random, pattern) for _ in range(random.randint(10, 16))]
    if random.random() < 0.5:
        subjects += random.choices(subjects, k=3)
    return Trial(kind, config, _messages(random, subjects))


def _copying(random: Random, kind: Kind) -> Trial:
    """A stream with one source, now and then with two of the same source, or a mirror."""
    count = 2 if kind is Kind.SOURCE and random.random() < 0.12 else 1
    entries, patterns = [], []
    for _ in range(count):
        entry, of_entry = _entry(random)
        entries.append(entry)
        patterns += of_entry
    config: dict[str, Any] = {"name": TARGET, "storage": "memory"}
    config |= {"mirror": entries[0]} if kind is Kind.MIRROR else {"sources": entries}
    if random.random() < 0.1:
        ingress = draw_transform(random, head="d", out="i")
        config["subject_transform"] = {"src": ingress.source, "dest": ingress.destination}
    if random.random() < 0.2:
        config["republish"] = {"src": ">", "dest": "r.>"}
    first = draw_subject(random, patterns[0])
    subjects = [first, *(draw_subject(random, random.choice(patterns)) for _ in range(random.randint(10, 16)))]
    if random.random() < 0.9:
        # What filters make of a token > is the store's own affair; only some trials ask for it.
        subjects = [
            b".".join(b"_" if token == b">" else token for token in subject.split(b".")) for subject in subjects
        ]
        first = subjects[0]
    messages = _messages(random, subjects)
    # Nothing odd on these: the first ones are stored in any case, the last ones are what the end is known by.
    plain = [Message(fitting_subject(random, pattern), payload=b"end") for pattern in patterns]
    source = {"name": SOURCE, "subjects": ["s.>"], "storage": "memory"}
    return Trial(kind, config, (Message(first), Message(b"s.other"), *messages, *plain), others=(source,))


def _entry(random: Random) -> tuple[dict[str, Any], list[str]]:
    """An entry of ``sources``, or ``mirror``, and the patterns of the subjects that are worth publishing."""
    entry: dict[str, Any] = {"name": SOURCE}
    if random.random() < 0.06:
        entry["opt_start_seq"] = random.choice((1, 2))
    chance = random.random()
    if chance < 0.1:
        return entry, ["s.>"]
    if chance < 0.25:
        entry["filter_subject"] = draw_filter(random)
        return entry, [entry["filter_subject"]]
    count = random.choice((1, 1, 1, 2, 3))
    # A literal of its own keeps the filters of an entry apart.
    heads = [f"s.{number}" for number in range(count)] if count > 1 and random.random() < 0.85 else ["s"] * count
    drawn = [draw_transform(random, head=head) for head in heads]
    entry["subject_transforms"] = [{"src": each.source, "dest": each.destination} for each in drawn]
    if random.random() < 0.15:
        entry["subject_transforms"][0]["dest"] = ""
    return entry, [each.source for each in drawn]


def _messages(random: Random, subjects: list[bytes]) -> tuple[Message, ...]:
    return tuple(draw_message(random, subject, number) for number, subject in enumerate(subjects, 1))
