"""Rules publish what natively is only stored."""

from __future__ import annotations

from dataclasses import replace

from nats_bridge.conformance.divergences.pair import Normaliser, Pair

__all__ = ["published"]


def published(*members: str) -> Normaliser:
    """Rules publish what natively is only stored: subscribers of the stored subjects get it."""

    def normalise(pair: Pair) -> Pair:
        streams = frozenset[str]().union(*(pair.streams(member) for member in members))
        stored = {
            each.message
            for stream, messages in pair.observation.stored.items()
            if stream in streams
            for each in messages
        }
        kept = tuple(each for each in pair.observation.received if each not in stored)
        return replace(pair, observation=replace(pair.observation, received=kept))

    return normalise
