"""Models an account with streams: runs a case's steps with the answers of an engine.

Theory of operation: a message is published to subscribers and to the stream that stores its subject. The stream
transforms, checks and stores it, and republishes it, which is a publication like any other. That is how a message goes
from stream to stream. After every step all copying streams are brought up to their sources, in the order of their
entries, until nothing more is to be copied. Nothing here waits, and the clock is the model's, so the same case gives
the same bytes each time.

Worked example: stream A stores `a.>` and republishes it to `seen.>`, stream B stores `seen.>`, and stream C sources A
with the transform `a.*` to `c.$1`. The case publishes `a.1`, and listens on `>`.

```text
publish a.1          listeners receive a.1; A stores it as 1
A republishes        listeners receive seen.a.1 with Nats-Stream A and Nats-Sequence 1; B stores it as 1, and has no
                     republish, so this branch ends
sources are behind   C has copied A up to 0, A ends at 1: C stores c.1 as 1 with Nats-Stream-Source
again                C has copied A up to 1: nothing is left, and the step is done
```

Invariants:

* A republication is complete, with all publications that follow from it, before the next message is published.
* After a step, every stream has copied its sources to their ends, or is blocked by its limits.
* More than 32 republications in a row are reported as a loop.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace

from nats_conformance.catalogue.case import (
    Case,
    Create,
    Delete,
    Drop,
    ExpectedRefusal,
    Json,
    Message,
    Publish,
    Purge,
    Settle,
    Step,
    TransformPlace,
    Update,
    raw_of,
)
from nats_conformance.errors import SubjectError
from nats_conformance.implementations.engine_operations import Config, EngineOperations
from nats_conformance.implementations.stream_model import Clock, Refused, StreamModel, header, ingested, start_of
from nats_conformance.observation import Decision, Observation, Stored
from nats_transforms.dialect import Dialect
from nats_transforms.subject import matches, tokens

_DEEPEST = 32
"""The republications of one message in a row after which it is a loop."""


class AccountModel:
    """One account, empty at first, for one case.

    Args:
        engine: the engine that decides and computes.
        dialect: the dialect of the modelled server.
    """

    def __init__(self, engine: EngineOperations, dialect: Dialect) -> None:
        self._engine = engine
        self._dialect = dialect
        self._clock = Clock()
        self._streams: dict[str, StreamModel] = {}
        self._created = 0
        self._patterns: tuple[bytes, ...] = ()
        self._received: list[list[Message]] = []

    async def play(self, case: Case) -> Observation:
        """Play a case and return its observation.

        Raises:
            SubjectError: a set-up was refused, a step needs something that does not exist, or messages loop.
        """
        try:
            return await self._play(case)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # A library, or an intentionally wrong engine, may accept nonsense.
            raise SubjectError(f"a configuration that was accepted cannot be worked with: {error!r}") from error

    async def _play(self, case: Case) -> Observation:
        self._patterns = case.listen
        self._received = [[] for _ in case.listen]
        decisions: list[Decision] = []
        acks: list[Mapping[str, Json] | None] = []
        for config in case.streams:
            decision = await self._create(config)
            if decision.refusal is not None:
                raise SubjectError(
                    f"the set-up stream {config.get('name')!r} was refused: {decision.refusal.description}"
                )
        for step in case.steps:
            await self._carry_out(step, decisions, acks)
            await self._copy_everything()
        return Observation(
            tuple(decisions),
            tuple(message for messages in self._received for message in messages),
            {name: tuple(stream.messages.values()) for name, stream in self._streams.items()},
            tuple(acks),
        )

    async def _carry_out(self, step: Step, decisions: list[Decision], acks: list[Mapping[str, Json] | None]) -> None:
        match step:
            case Create(config):
                decisions.append(await self._create(config))
            case Update(config):
                decisions.append(await self._update(config))
            case Publish(message):
                acks.append(await self._publish(message))
            case Delete(stream, sequence):
                if not self._stream(stream).delete(sequence):
                    raise SubjectError(f"stream {stream!r} has no message {sequence}")
            case Purge(stream, request):
                self._stream(stream).purge(request)
            case Drop(stream):
                self._stream(stream)
                del self._streams[stream]
            case Settle(_):
                pass  # copies are made at once

    def _stream(self, name: str) -> StreamModel:
        if name not in self._streams:
            raise SubjectError(f"there is no stream {name!r}")
        return self._streams[name]

    # ------------------------------------------------------------------------------------------- configurations

    async def _create(self, config: Config) -> Decision:
        name = config.get("name")
        decision = await self._engine.decide(config, None, self._others(name))
        if decision.config is None or not isinstance(name, str):
            return decision
        existing = self._streams.get(name)
        if existing is None:
            self._created += 1
            self._streams[name] = StreamModel(decision.config, b"model%03d" % self._created)
        elif existing.config != decision.config:
            return Decision(
                refusal=ExpectedRefusal(400, 10058, "stream name already in use with a different configuration")
            )
        return decision

    async def _update(self, config: Config) -> Decision:
        name = config.get("name")
        existing = self._streams.get(name) if isinstance(name, str) else None
        if existing is None:
            return Decision(refusal=ExpectedRefusal(404, 10059, "stream not found"))
        decision = await self._engine.decide(config, existing.config, self._others(name))
        if decision.config is not None:
            existing.config = decision.config
            existing.enforce_limits()
        return decision

    def _others(self, name: object) -> dict[str, Config]:
        return {other: stream.config for other, stream in self._streams.items() if other != name}

    # ------------------------------------------------------------------------------------------------- messages

    async def _publish(self, message: Message, depth: int = 0) -> Mapping[str, Json] | None:
        """Return the answer of the stream that stores a message; None without one."""
        if depth > _DEEPEST:
            raise SubjectError("republished messages loop; a case that shows this needs 'harms'")
        for pattern, messages in zip(self._patterns, self._received, strict=True):
            if matches(message.subject, pattern) and b"" not in tokens(message.subject):
                messages.append(message)
        answers = [
            await self._ingest(name, stream, message, depth)
            for name, stream in list(self._streams.items())
            if stream.takes(message.subject)
        ]
        return answers[0] if answers else None

    async def _ingest(self, name: str, stream: StreamModel, message: Message, depth: int) -> Mapping[str, Json] | None:
        """Store a published message in a stream. Return its answer to the publisher."""
        block = ingested(message.header_block, self._dialect)
        renamed = await self._at_ingress(stream, replace(message, header_block=block))
        try:
            self._check_record(renamed)
            known = stream.check(renamed)
        except Refused as refused:
            return None if stream.config.get("no_ack") else refused.ack
        if known:
            return {"stream": name, "seq": known, "duplicate": True}
        stored = await self._store(name, stream, renamed, self._clock.now(), None, depth)
        return None if stream.config.get("no_ack") else {"stream": name, "seq": stored.sequence}

    def _check_record(self, message: Message) -> None:
        if self._dialect.source_record_is_refused_from_clients and header(message.header_block, b"Nats-Stream-Source"):
            raise Refused(10227, "message stream source header is not allowed")

    async def _at_ingress(self, stream: StreamModel, message: Message) -> Message:
        pair = stream.config.get("subject_transform")
        if not pair:
            return message
        results = await self._engine.transform(
            raw_of(pair.get("src")), raw_of(pair.get("dest")), TransformPlace.INGRESS, [message.subject]
        )
        if isinstance(results, ExpectedRefusal):
            raise SubjectError(f"a transform that was accepted is refused when it is applied: {results.description}")
        return message if results[0] is None else replace(message, subject=results[0])

    async def _store(
        self, name: str, stream: StreamModel, message: Message, time_ns: int, sequence: int | None, depth: int
    ) -> Stored:
        last_sequence = stream.newest(message.subject)
        stored = stream.store(message, time_ns, sequence)
        rule = stream.config.get("republish")
        if rule and stream.keeps:
            republished = await self._engine.republish(name, rule, stored, last_sequence)
            if republished is not None:
                await self._publish(republished, depth + 1)
        return stored

    # --------------------------------------------------------------------------------------------------- copies

    async def _copy_everything(self) -> None:
        while True:
            copied = [
                await self._copy_new(name, stream, entry, mirrors=mirrors)
                for name, stream in list(self._streams.items())
                for entry, mirrors in self._entries(stream.config)
            ]
            if not any(copied):
                return

    def _entries(self, config: Config) -> Iterator[tuple[Config, bool]]:
        """Yield the entries that a stream copies from, and whether each is a mirror."""
        if config.get("mirror"):
            yield config["mirror"], True
        sources: set[str] = set()
        for entry in config.get("sources") or ():
            if entry["name"] not in sources or self._dialect.every_entry_of_a_source_copies:
                yield entry, False
            sources.add(entry["name"])

    async def _copy_new(self, name: str, stream: StreamModel, entry: Config, *, mirrors: bool) -> bool:
        """Copy the new messages for one entry. Return whether there were any."""
        source = self._streams.get(entry["name"])
        if source is None or entry.get("external"):
            return False
        key = json.dumps([entry["name"], entry.get("filter_subject"), entry.get("subject_transforms")])
        if key not in stream.positions:
            stream.positions[key] = start_of(entry, stream, source, self._dialect, mirrors=mirrors)
        position = stream.positions[key]
        for stored in [each for sequence, each in source.messages.items() if sequence >= position]:
            copy = await self._engine.copy(entry, stored, source.identity, mirrors=mirrors)
            if copy is not None and not await self._take(name, stream, copy, stored, mirrors=mirrors):
                break
            stream.positions[key] = stored.sequence + 1
        return stream.positions[key] != position

    async def _take(self, name: str, stream: StreamModel, copy: Message, source: Stored, *, mirrors: bool) -> bool:
        """Store a copy. Return False if it cannot be stored: it waits, and so do all after it."""
        takes_duplicates = mirrors and self._dialect.mirrors_take_duplicates
        renamed = await self._at_ingress(stream, copy)
        try:
            known = stream.check(renamed, is_copy=True, takes_duplicates=takes_duplicates)
        except Refused:
            return False
        if known:
            return self._dialect.copies_skip_duplicates
        time_ns, sequence = (source.time_ns, source.sequence) if mirrors else (self._clock.now(), None)
        await self._store(name, stream, renamed, time_ns, sequence, 0)
        return True
