"""The engine's answer to a trial: its decision, and its result for each stored message.

The facts that only a store has (sequences, times, what was stored at all) come from the server. A subclass that answers
something else is a wrong engine, which the differential must find.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from nats_conformance.catalogue.case import ExpectedRefusal, Json, Message
from nats_conformance.observation import Decision, Stored
from nats_transforms.dialect import Dialect, server_dialect
from nats_transforms.errors import StreamConfigError
from nats_transforms.republish import Republish, StoredMessage, compile_republish
from nats_transforms.sourcing import Sourcing, compile_sourcing
from nats_transforms.stream_config import validate
from nats_transforms.subject import tokens
from nats_transforms.transform import Transform, compile_transform
from tests.differential.trial import Trial


class Engine:
    """The engine as a server of a version; configurations are as ``decide`` gave them."""

    def __init__(self, version: str) -> None:
        self.dialect: Dialect = server_dialect(version)

    def decide(self, trial: Trial) -> Decision:
        """Whether the configuration is accepted, and as what."""
        return self._decided(trial.config, trial, trial.previous)

    def decide_before(self, trial: Trial) -> Decision:
        """The same for the configuration that the stream has before an update."""
        return self._decided(trial.previous, trial, None)

    def _decided(self, config: Json, trial: Trial, previous: Mapping[str, Json] | None) -> Decision:
        sources = {each["name"]: each for each in trial.others}
        try:
            return Decision(config=validate(config, self.dialect, previous=previous, sources=sources))
        except StreamConfigError as error:
            return Decision(refusal=ExpectedRefusal(error.http_code, error.err_code, error.description))

    def ingressed(self, config: Mapping[str, Json], subject: bytes) -> bytes:
        """The subject under which the stream stores a message."""
        transform = self.ingress_of(config)
        result = None if transform is None else transform.apply(subject)
        return subject if result is None else result

    def republished(self, config: Mapping[str, Json], stored: Stored, last_sequence: int) -> Message | None:
        """What subscribers get for a stored message; the server sends white space where no client could."""
        rule = self.republish_of(config)
        if rule is None:
            return None
        message, refusal = stored.message, rule.refusal(stored.message.subject)
        if refusal is None or refusal.native:
            made = rule.apply(_stored_message(stored), last_sequence)
            return None if made is None else Message(made.subject, made.header_block, made.payload)
        block = rule.block(
            message.subject,
            message.header_block,
            stored.sequence,
            stored.time_ns,
            last_sequence,
            len(message.payload),
        )
        return Message(refusal.destination, block, b"" if rule.headers_only else message.payload)

    def copied(self, entry: Mapping[str, Json], stored: Stored, identity: bytes, *, mirrors: bool) -> Message | None:
        """The copy that an entry of ``sources``, or the mirror, makes of a source's message; None: not selected."""
        sourcing = self.sourcing_of(entry, mirrors=mirrors)
        message = stored.message
        destination = sourcing.destination(message.subject)
        if destination is None or stored.sequence < entry.get("opt_start_seq", 0):
            return None
        if mirrors:
            return Message(destination, sourcing.bare(message.header_block), message.payload)
        record = sourcing.record(stored.sequence, message.subject, identity)
        return Message(destination, sourcing.block(message.header_block, record), message.payload)

    def cannot_be_received(self, config: Mapping[str, Json], subject: bytes) -> bool:
        """Whether a republished message has a subject that no subscription matches, so that it cannot be compared."""
        rule = self.republish_of(config)
        result = None if rule is None else rule.transform.apply(subject)
        return result is not None and b"" in tokens(result)

    def ingress_of(self, config: Mapping[str, Json]) -> Transform | None:
        """The stream's ingress transform."""
        pair = config.get("subject_transform")
        return None if pair is None else _transform(pair["src"], pair["dest"], self.dialect)

    def republish_of(self, config: Mapping[str, Json]) -> Republish | None:
        """The stream's republish rule."""
        rule = config.get("republish")
        return None if rule is None else _republish(config["name"], json.dumps(rule), self.dialect)

    def sourcing_of(self, entry: Mapping[str, Json], *, mirrors: bool) -> Sourcing:
        """An entry of ``sources``, or ``mirror``."""
        return _sourcing(json.dumps(entry), self.dialect, mirrors)

    @staticmethod
    def entries_of(config: Mapping[str, Json]) -> list[Mapping[str, Any]]:
        """The entries of ``sources``, or ``mirror``."""
        return [config["mirror"]] if config.get("mirror") else list(config.get("sources", ()))


def _stored_message(stored: Stored) -> StoredMessage:
    message = stored.message
    return StoredMessage(message.subject, message.header_block, message.payload, stored.sequence, stored.time_ns)


@lru_cache(maxsize=512)
def _transform(source: str, destination: str, dialect: Dialect) -> Transform:
    return compile_transform(source.encode(), destination.encode(), dialect)


@lru_cache(maxsize=512)
def _republish(stream: str, rule: str, dialect: Dialect) -> Republish:
    return compile_republish(stream, json.loads(rule), dialect)


@lru_cache(maxsize=512)
def _sourcing(entry: str, dialect: Dialect, mirrors: bool) -> Sourcing:
    return compile_sourcing(json.loads(entry), dialect, mirrors=mirrors)
