"""Turns a native ingress transform into rules: natively the stream takes the old subjects, with a rule the new ones."""

from __future__ import annotations

from dataclasses import dataclass

from nats_bridge.bridge.rules.loops.subject_overlap import covering_filter
from nats_bridge.bridge.settings.base import kept_subject
from nats_bridge.transforms.dialect import NEWEST
from nats_bridge.transforms.errors import TransformError
from nats_bridge.transforms.subject import collide, is_subset
from nats_bridge.transforms.transform import compile_transform


@dataclass(frozen=True, slots=True)
class IngressPart:
    """One rule's share.

    Attributes:
        src: what the rule takes, which the stream must not take any more.
        dest: what it makes of it.
        subject: the stream's subject that goes.
        stored: the stream's subject that comes instead.
    """

    src: str
    dest: str
    subject: str
    stored: str


def ingress_parts(src: str, dest: str, subjects: list[str]) -> list[IngressPart] | str:
    """The rules that replace a stream's `subject_transform`, or the reason why none can.

    Args:
        src: the transform's source, not empty.
        dest: its destination.
        subjects: those of the stream, as publishers use them.
    """
    affected = [subject for subject in subjects if collide(src.encode(), subject.encode())]
    if not affected:
        return f"'{src}' fits none of the stream's subjects, {', '.join(subjects) or 'of which it has none'}"
    parts = []
    for subject in affected:
        if subject == ">":
            return "the stream takes every subject, and a rule cannot: it would take answers and the server's own"
        if subject == src:
            narrowed = src, dest
        elif src == ">" and dest.endswith(">"):
            narrowed = subject, dest[:-1] + kept_subject(subject)
        elif is_subset(src.encode(), subject.encode()):
            return (
                f"the stream's subject '{subject}' takes more than '{src}', and a rule needs subjects of its own: split"
                " it in two"
            )
        else:
            return f"'{src}' takes more than the stream's subject '{subject}': write a transform for that subject"
        try:
            transform = compile_transform(narrowed[0].encode(), narrowed[1].encode(), NEWEST)
        except TransformError as error:
            return f"from '{narrowed[0]}' to '{narrowed[1]}': {error.reason}"
        parts.append(IngressPart(*narrowed, subject, covering_filter(transform)))
    return parts
