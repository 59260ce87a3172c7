"""The short form of a case, one transform and its results, as the streams and steps that it stands for."""

from collections.abc import Mapping
from typing import Any

from nats_conformance.catalogue.case import (
    Create,
    Expectation,
    Message,
    MessagePattern,
    Publish,
    Step,
    TransformCase,
    TransformPlace,
    text_of,
)

_SOURCE, _TARGET = "O", "S"


def expanded_streams(transform: TransformCase) -> tuple[Mapping[str, Any], ...]:
    """Return the streams that exist before: the source, if the transform belongs to a source or a mirror."""
    if transform.place in (TransformPlace.SOURCE, TransformPlace.MIRROR):
        return ({"name": _SOURCE, "subjects": _covering(transform.subjects), "storage": "memory"},)
    return ()


def expanded_steps(transform: TransformCase) -> tuple[Step, ...]:
    """Create the stream that has the transform, and publish a message on every subject, numbered from 0."""
    pair = {"src": text_of(transform.source), "dest": text_of(transform.destination)}
    publishes = tuple(
        Publish(Message(subject, payload=b"%d" % number)) for number, subject in enumerate(transform.subjects)
    )
    config: dict[str, Any] = {"name": _TARGET, "storage": "memory"}
    match transform.place:
        case TransformPlace.SOURCE:
            return (*publishes, Create({**config, "sources": [{"name": _SOURCE, "subject_transforms": [pair]}]}))
        case TransformPlace.MIRROR:
            return (*publishes, Create({**config, "mirror": {"name": _SOURCE, "subject_transforms": [pair]}}))
    member = "republish" if transform.place is TransformPlace.REPUBLISH else "subject_transform"
    return (Create({**config, "subjects": _covering(transform.subjects), member: pair}), *publishes)


def expanded_expectation(transform: TransformCase, results: Mapping[bytes, bytes | None]) -> Expectation:
    """Return the expected messages, with the results as subjects, in the order of the subjects.

    Raises:
        KeyError: a subject has no result.
    """
    numbered = [(subject, results[subject], b"%d" % number) for number, subject in enumerate(transform.subjects)]
    made = tuple(MessagePattern(result, payload=payload) for _, result, payload in numbered if result is not None)
    if transform.place is TransformPlace.REPUBLISH:
        return Expectation(received=made)
    if transform.place is TransformPlace.INGRESS:
        # A message that does not match is stored under the subject it came on.
        made = tuple(
            MessagePattern(subject if result is None else result, payload=payload)
            for subject, result, payload in numbered
        )
    return Expectation(stored={_TARGET: made})


def _covering(subjects: tuple[bytes, ...]) -> list[str]:
    """Stream subjects that take the given ones: by their first tokens."""
    found: dict[str, None] = {}
    for subject in subjects:
        first, _, rest = subject.partition(b".")
        found[text_of(first) + (".>" if rest else "")] = None
    return list(found)
