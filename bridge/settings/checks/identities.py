"""Origins of a rule that are the stream that receives, or that nobody could tell apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nats_bridge.bridge.settings.checks.dialects import candidates
from nats_bridge.bridge.settings.checks.origins import CopyingRules, Origin
from nats_bridge.bridge.settings.problems import Problem

__all__ = ["identity_problems"]


def identity_problems(rule: CopyingRules, origins: Sequence[Origin], version: str) -> Iterator[Problem]:
    """What is wrong with the names, connections and prefixes of a rule's origins.

    Args:
        rule: well formed.
        origins: its origins.
        version: its dialect.
    """
    # With a dialect that is not known yet, the servers that can run everything decide.
    names_filters = any(candidate.source_record_names_filters for candidate in candidates(version))
    for number, origin in enumerate(origins):
        if origin.source.name == rule.target_stream and origin.source.connection == rule.target_connection:
            thing = "bucket" if origin.holds_keys else "stream"
            yield Problem(
                (*origin.at, origin.name_key),
                f"'{origin.name}' is the {thing} that receives: detected cycle (10052); copy into another {thing}",
            )
            continue
        twin = next((before for before in origins[:number] if before.identity == origin.identity), None)
        if twin is None:
            continue
        if twin.source.connection != origin.source.connection:
            yield Problem((*origin.at, "external"), _cannot_be_told_apart(origin, twin))
        elif not names_filters:
            yield Problem(
                (*origin.at, origin.name_key),
                f"'{origin.name}' is in {twin.shown} already, and servers before 2.10 keep one position for both;"
                f" make it one entry with several {origin.transforms_key}, or use dialect 2.10 or newer",
            )


def _cannot_be_told_apart(origin: Origin, twin: Origin) -> str:
    own = f"$JS.{origin.source.connection}.API"
    do = (
        f"give one of them an external: {{api: {own}}} of its own"
        if origin.source.external is None
        else f"'{origin.source.external.api}' is the external.api of both, let them differ"
    )
    return (
        f"'{origin.name}' comes from {origin.source.connection} here and from {twin.source.connection} in"
        f" {twin.shown}, and source records would not tell which; {do}"
    )
