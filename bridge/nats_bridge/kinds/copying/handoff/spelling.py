"""Finds other spellings of a source entry.

A server recognises its own copies by the texts of the entry that made them (fields 3 and 4 of the source record), not
by their meaning. An entry with the same meaning and different texts has no copies in the target as far as the server is
concerned, so it begins at `opt_start_seq` and not after an old copy. (2.10.27, 2.11.17, 2.12.15, 2.14.9, 2.15.1; also
across restarts, and after `opt_start_seq` was removed again.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from nats_bridge.client.jetstream_api import Json
from nats_transforms.subject import collide

_DOLLAR = re.compile(r"\$([0-9]+)")
_WILDCARD = re.compile(r"\{\{\s*[wW]ildcard\s*\( *([0-9]+) *\)\s*\}\}")
_NOTHING = "nats-bridge-handoff"
"""A subject that no message has: a filter for it changes the texts of an entry but selects no messages."""


def spellings(entry: Json) -> Iterator[Json]:
    """Yield the entry as it is written, then others with the same meaning, all without `opt_start_*`.

    Only servers from 2.10 on take the others, because they are written as `subject_transforms`.
    """
    plain = {name: value for name, value in entry.items() if not name.startswith("opt_start_")}
    yield plain
    rest = {name: value for name, value in plain.items() if name not in ("filter_subject", "subject_transforms")}
    written = as_transforms(plain)
    reported = [written]
    for transforms in (_other_forms(written), _split(written), _split(_other_forms(written)), _more_filters(written)):
        if transforms not in reported and not _adds_overlaps(transforms, written):
            reported.append(transforms)
            yield {**rest, "subject_transforms": transforms}


def as_transforms(entry: Json) -> list[Json]:
    """Return the entry's filters and renames as `subject_transforms`, which the server records in the same way."""
    if entry.get("subject_transforms"):
        return [{"src": each.get("src", ""), "dest": each.get("dest", "")} for each in entry["subject_transforms"]]
    return [{"src": entry.get("filter_subject") or ">", "dest": ""}]


def _other_forms(transforms: list[Json]) -> list[Json]:
    # `$1` as `{{wildcard(1)}}`, and the reverse.
    return [{**each, "dest": ".".join(map(_other_form, each["dest"].split(".")))} for each in transforms]


def _other_form(token: str) -> str:
    if found := _DOLLAR.fullmatch(token):
        return f"{{{{wildcard({found[1]})}}}}"
    found = _WILDCARD.fullmatch(token)
    return f"${found[1]}" if found else token


def _split(transforms: list[Json]) -> list[Json]:
    """`a.>` as `a.*` and `a.*.>`."""
    made = []
    for each in transforms:
        source, destination = each["src"] or ">", each["dest"]
        if not _ends_open(source) or (destination and not _ends_open(destination)):
            made.append(each)
            continue
        stem = source[:-1]
        # Written as the rest of the entry is, so that it also reads as a key transform of a bucket.
        token = f"{{{{wildcard({source.split('.').count('*') + 1})}}}}"
        made.append({"src": f"{stem}*", "dest": f"{destination[:-1]}{token}" if destination else ""})
        made.append({"src": f"{stem}*.>", "dest": f"{destination[:-1]}{token}.>" if destination else ""})
    return made


def _ends_open(text: str) -> bool:
    return text == ">" or text.endswith(".>")


def _more_filters(transforms: list[Json]) -> list[Json]:
    subject = unselected_subject([each["src"] or ">" for each in transforms], _NOTHING)
    return [*transforms, {"src": subject, "dest": ""}] if subject else transforms


def unselected_subject(filters: Sequence[str], token: str, *end: str) -> str | None:
    """Return a subject of repeated tokens and an end that no filter selects.

    None if the filters select all of these.
    """
    for tokens in range(1, 9):
        subject = ".".join([*[token] * tokens, *end])
        if not any(collide(subject.encode(), each.encode()) for each in filters):
            return subject
    return None


def _adds_overlaps(transforms: list[Json], written: list[Json]) -> bool:
    # Servers before 2.15 would source nothing.
    return _overlaps(transforms) > _overlaps(written)


def _overlaps(transforms: list[Json]) -> int:
    filters = [(each["src"] or ">").encode() for each in transforms]
    return sum(collide(a, b) for n, a in enumerate(filters) for b in filters[n + 1 :])
