"""Defines the interface between the account model and an engine, and implements it with `transforms`.

An engine decides configurations and computes messages. `account_model` handles stored messages and the order of events.
So a wrong engine is one that answers one of these four questions wrongly.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from nats_conformance.catalogue.case import ExpectedRefusal, Json, Message, TransformPlace, raw_of, text_of
from nats_conformance.errors import SubjectError
from nats_conformance.observation import Decision, Stored
from nats_transforms.dialect import Dialect
from nats_transforms.errors import StreamConfigError, TransformError
from nats_transforms.republish import Republish, compile_republish
from nats_transforms.sourcing import Sourcing, compile_sourcing
from nats_transforms.stream_config import validate
from nats_transforms.subject import is_valid_filter
from nats_transforms.transform import Transform, compile_mapping, compile_transform

Config: TypeAlias = Mapping[str, Json]
Results: TypeAlias = tuple[bytes | None, ...] | ExpectedRefusal
"""Each new subject, None without a match; or the refusal of the transform itself."""
_Compiled = TypeVar("_Compiled", Republish, Sourcing)


class EngineOperations(Protocol):
    """The four questions to an engine. If it is reached through a protocol, every one may raise SubjectError."""

    async def decide(self, config: Json, previous: Config | None, others: Mapping[str, Config]) -> Decision:
        """Return a server's answer to a create, or to an update of the stream with configuration `previous`.

        `others` are the configurations of the other streams of the account, by name.
        """

    async def transform(
        self, source: bytes, destination: bytes, place: TransformPlace, subjects: Sequence[bytes]
    ) -> Results:
        """Return the new subjects at a place of a server.

        None means that nothing can be received (`republish`), that the message keeps its subject (`ingress`), or that
        it is not copied (`source` and `mirror`).
        """

    async def republish(self, stream: str, rule: Config, message: Stored, last_sequence: int) -> Message | None:
        """Return the republished message for a stored one.

        `last_sequence` is that of the subject's previous message.
        """

    async def copy(self, entry: Config, message: Stored, identity: bytes, *, mirrors: bool) -> Message | None:
        """Return the copy of a message by an entry of `sources`, or by `mirror`; None if it is not selected.

        `identity` is the source's, which servers from 2.15 on record.
        """


class TransformsEngine:
    """The engine of `transforms` in one dialect, with a cache of compiled rules.

    Intentionally wrong engines override the methods that compile.
    """

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self._compiled: dict[str, Any] = {}

    async def decide(self, config: Json, previous: Config | None, others: Mapping[str, Config]) -> Decision:
        """See `EngineOperations`."""
        try:
            return Decision(config=validate(config, self.dialect, previous=previous, sources=others))
        except StreamConfigError as error:
            return Decision(refusal=ExpectedRefusal(error.http_code, error.err_code, error.description))

    async def transform(
        self, source: bytes, destination: bytes, place: TransformPlace, subjects: Sequence[bytes]
    ) -> Results:
        """See `EngineOperations`."""
        pair = {"src": text_of(source), "dest": text_of(destination)}
        if self._refuses_source(source, place):
            return ExpectedRefusal()
        try:
            match place:
                case TransformPlace.REPUBLISH:
                    rule = self.republish_rule("S", pair)
                    return tuple(_published(rule, subject) for subject in subjects)
                case TransformPlace.INGRESS:
                    transform = self.ingress_transform(pair)
                    return tuple(transform.apply(subject) for subject in subjects)
                case _:
                    entry = self.sourcing(
                        {"name": "O", "subject_transforms": [pair]}, mirrors=place is TransformPlace.MIRROR
                    )
                    return tuple(entry.destination(subject) for subject in subjects)
        except TransformError:
            # The server's error is about the configuration, which has more parts than the transform.
            return ExpectedRefusal()

    def _refuses_source(self, source: bytes, place: TransformPlace) -> bool:
        """Return whether a place refuses such a source, regardless of the transform."""
        knows_empty = self.dialect.stream_transforms_are_mappings
        if place is TransformPlace.REPUBLISH or (place is TransformPlace.INGRESS and not knows_empty):
            return False
        return not is_valid_filter(source) and (bool(source) or not knows_empty)

    def bare_transform(self, source: bytes, destination: bytes, subjects: Sequence[bytes]) -> Results:
        """Transform subjects with the transform alone, without the checks and changes of its place in a server."""
        try:
            transform = compile_transform(source, destination, self.dialect)
        except TransformError:
            return ExpectedRefusal()
        return tuple(transform.apply(subject) for subject in subjects)

    async def republish(self, stream: str, rule: Config, message: Stored, last_sequence: int) -> Message | None:
        """See `EngineOperations`."""
        compiled = self._kept(("republish", stream, rule), lambda: self.republish_rule(stream, rule))
        destination = _published(compiled, message.message.subject)
        if destination is None:
            return None
        block = compiled.block(
            message.message.subject,
            message.message.header_block,
            message.sequence,
            message.time_ns,
            last_sequence,
            len(message.message.payload),
        )
        return Message(destination, block, b"" if compiled.headers_only else message.message.payload)

    async def copy(self, entry: Config, message: Stored, identity: bytes, *, mirrors: bool) -> Message | None:
        """See `EngineOperations`."""
        compiled = self._kept(("copy", entry, mirrors), lambda: self.sourcing(entry, mirrors=mirrors))
        subject, block = message.message.subject, message.message.header_block
        destination = compiled.destination(subject)
        if destination is None:
            return None
        if mirrors:
            return Message(destination, compiled.bare(block), message.message.payload)
        record = compiled.record(message.sequence, subject, identity)
        return Message(destination, compiled.block(block, record), message.message.payload)

    def republish_rule(self, stream: str, rule: Config) -> Republish:
        """Compile a `republish` object. Raises TransformError."""
        return compile_republish(stream, rule, self.dialect)

    def ingress_transform(self, pair: Config) -> Transform:
        """Compile a `subject_transform` object. Raises TransformError."""
        build = compile_mapping if self.dialect.stream_transforms_are_mappings else compile_transform
        return build(raw_of(pair.get("src")), raw_of(pair.get("dest")), self.dialect)

    def sourcing(self, entry: Config, *, mirrors: bool) -> Sourcing:
        """Compile an entry of `sources`, or `mirror`. Raises TransformError."""
        return compile_sourcing(entry, self.dialect, mirrors=mirrors)

    def _kept(self, key: object, build: Callable[[], _Compiled]) -> _Compiled:
        text = json.dumps(key)
        if text not in self._compiled:
            try:
                self._compiled[text] = build()
            except TransformError as error:
                raise SubjectError(f"a rule that was accepted is refused when it runs: {error.reason}") from None
        found: _Compiled = self._compiled[text]
        return found


def _published(rule: Republish, subject: bytes) -> bytes | None:
    refusal = rule.refusal(subject)
    if refusal is not None and not refusal.native:
        # Such a server also sends messages that no client could publish, and this engine stands for the server.
        return refusal.destination
    return rule.destination(subject)
