"""Any library as a test subject, behind the JSON-lines protocol of `docs/conformance-protocol.md`.

Theory of operation. A library answers the requests that it announces, and the suite's own engine answers the others, so
a library for header blocks need not implement stream configurations. A case without requests to the library does not
run. A library that only implements transforms gets the subjects of the catalogue's transform cases.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

from nats_conformance.catalogue.case import (
    Case,
    Expectation,
    ExpectedRefusal,
    Json,
    Message,
    TransformCase,
    TransformPlace,
)
from nats_conformance.errors import SubjectError
from nats_conformance.identity import Identity
from nats_conformance.implementations.account_model import AccountModel
from nats_conformance.implementations.engine import refuse_unplayable
from nats_conformance.implementations.engine_operations import Config, Results, TransformsEngine
from nats_conformance.implementations.library_process import LibraryProcess
from nats_conformance.implementations.library_protocol import (
    CAPABILITIES,
    PROTOCOL,
    bytes_of,
    decision_of,
    json_of_bytes,
    json_of_stored,
    message_of,
    refusal_of,
)
from nats_conformance.observation import Decision, Observation, Stored
from nats_conformance.subject import CannotPlay, SingleSubject
from nats_transforms.dialect import Dialect, server_dialect
from nats_transforms.subject import matches, tokens

_START_LIMIT = 60.0
"""Seconds for a library to start; generous, because machines are busy and runtimes slow."""
_LIMIT = 30.0
"""Seconds for one answer."""
_PATIENCE = 3
"""A library that fails this many times in a row, after a restart each time, is not started again."""

_RUNNING = {
    TransformPlace.REPUBLISH: "republish",
    TransformPlace.INGRESS: "transform",
    TransformPlace.SOURCE: "sourcing",
    TransformPlace.MIRROR: "sourcing",
}

_TRANSFORMS = frozenset({"transform", "bare_transform"})

_Answer = TypeVar("_Answer")


class LibrarySubject(SingleSubject):
    """A library that speaks the protocol.

    Args:
        command: the words of the command that starts it.
        version: the server's version whose behaviour is requested, such as `2.10.27`.
        limit: seconds for every answer but its hello.

    Attributes:
        identity: with the library's own name and version, once it is open.
    """

    def __init__(self, command: Sequence[str], version: str, *, limit: float = _LIMIT) -> None:
        self._dialect = server_dialect(version)
        self._command = tuple(command)
        self._limit = limit
        self._process: LibraryProcess | None = None
        self._failures = 0
        self.capabilities: frozenset[str] = frozenset()
        self.identity = Identity("library", self._dialect.name, name=Path(self._command[0]).name)

    async def open(self) -> None:
        """Start the library and ask who it is.

        Raises:
            SubjectError: it cannot be started, speaks another protocol, or does not support the dialect.
        """
        self._process = await LibraryProcess.start(self._command)
        hello = await self._process.ask("hello", _START_LIMIT, protocol=PROTOCOL, suite="nats-bridge")
        if hello.get("protocol") != PROTOCOL:
            raise await self._process.failed(
                f"speaks version {hello.get('protocol')!r} of the protocol; this suite speaks version {PROTOCOL}"
            )
        name, version = hello.get("name"), hello.get("version", "")
        dialects, offered = hello.get("dialects"), hello.get("capabilities")
        if not (isinstance(name, str) and name and _are_texts(dialects) and _are_texts(offered)):
            raise await self._process.failed(
                f"said hello without name, dialects and capabilities: {json.dumps(hello, ensure_ascii=False)}"
            )
        lines = {self._dialect.name, ".".join(map(str, self._dialect.version[:2]))}
        if lines.isdisjoint(dialects):
            raise await self._process.failed(f"does not know {self._dialect.name}; it knows {', '.join(dialects)}")
        self.capabilities = frozenset(offered) & frozenset(CAPABILITIES)
        if not self.capabilities:
            raise await self._process.failed(f"offers none of {', '.join(CAPABILITIES)}")
        self.identity = Identity("library", self._dialect.name, name=f"{name} {version}".strip())

    async def play(self, case: Case) -> Observation:
        """Run the part of a case that the library implements."""
        refuse_unplayable(case, self._dialect.version)
        process = await self._running()
        library = _Library(process, self.capabilities, self._dialect, self._limit)
        try:
            if case.transform is not None and self._is_asked_directly(case.transform):
                observation = await _transformed(library, case, case.transform, self._dialect)
            else:
                observation = await AccountModel(library, self._dialect).play(case)
        except SubjectError:
            self._failures += process.is_ended
            raise
        if not library.was_asked:
            raise CannotPlay("the case is about nothing that the library offers")
        self._failures = 0
        return observation

    async def close(self) -> None:
        """End the library."""
        if self._process is not None:
            await self._process.close(self._limit)

    async def _running(self) -> LibraryProcess:
        if self._process is None:
            raise SubjectError("the library is not open")
        if self._process.is_ended:
            if self._failures >= _PATIENCE:
                raise SubjectError(f"the library failed {_PATIENCE} times in a row and is not asked any more")
            try:
                await self.open()
            except SubjectError:
                self._failures += 1
                raise
        return self._process

    def _is_asked_directly(self, transform: TransformCase) -> bool:
        whole = {"stream_config", _RUNNING[transform.place]}
        return bool(_TRANSFORMS & self.capabilities) and not whole <= self.capabilities


class _Library:
    """The library's answers for the requests that it supports, and those of the suite's engine for others."""

    def __init__(self, process: LibraryProcess, capabilities: frozenset[str], dialect: Dialect, limit: float) -> None:
        self._process = process
        self._capabilities = capabilities
        self._own = TransformsEngine(dialect)
        self._limit = limit
        self.was_asked = False

    async def decide(self, config: Json, previous: Config | None, others: Mapping[str, Config]) -> Decision:
        if "stream_config" not in self._capabilities:
            return await self._own.decide(config, previous, others)
        update = {} if previous is None else {"previous": dict(previous)}
        streams = {name: dict(other) for name, other in others.items()}
        return await self._ask(decision_of, "stream_config", config=config, streams=streams, **update)

    async def transform(
        self, source: bytes, destination: bytes, place: TransformPlace, subjects: Sequence[bytes]
    ) -> Results:
        if not _TRANSFORMS & self._capabilities:
            return await self._own.transform(source, destination, place, subjects)
        is_bare = "transform" not in self._capabilities
        if is_bare and not _agree(
            self._own.bare_transform(source, destination, subjects),
            await self._own.transform(source, destination, place, subjects),
            is_random=b"random" in destination.lower(),
        ):
            raise CannotPlay(f"the place decides ({place.value}), and the library offers bare transforms")

        def results(answer: Mapping[str, Json]) -> Results:
            refusal = refusal_of(answer)
            if refusal is not None:
                return ExpectedRefusal() if is_bare else refusal  # its words are those of a place
            made = tuple(None if each is None else bytes_of(each) for each in answer["results"])
            if len(made) != len(subjects):
                raise ValueError(f"{len(subjects)} subjects have {len(made)} results")
            return made

        return await self._ask(
            results,
            "bare_transform" if is_bare else "transform",
            **({} if is_bare else {"place": place.value}),
            src=json_of_bytes(source),
            dest=json_of_bytes(destination),
            subjects=[json_of_bytes(subject) for subject in subjects],
        )

    async def republish(self, stream: str, rule: Config, message: Stored, last_sequence: int) -> Message | None:
        if "republish" not in self._capabilities:
            return await self._own.republish(stream, rule, message, last_sequence)
        return await self._ask(
            _message_or_none,
            "republish",
            stream=stream,
            republish=dict(rule),
            message=json_of_stored(message),
            last_sequence=last_sequence,
        )

    async def copy(self, entry: Config, message: Stored, identity: bytes, *, mirrors: bool) -> Message | None:
        if "sourcing" not in self._capabilities:
            return await self._own.copy(entry, message, identity, mirrors=mirrors)
        return await self._ask(
            _message_or_none,
            "sourcing",
            entry=dict(entry),
            mirror=mirrors,
            message=json_of_stored(message),
            identity=json_of_bytes(identity),
        )

    async def _ask(self, read: Callable[[Mapping[str, Json]], _Answer], op: str, **members: Any) -> _Answer:
        self.was_asked = True
        answer = await self._process.ask(op, self._limit, dialect=self._own.dialect.name, **members)
        if "unsupported" in answer:
            raise CannotPlay(f"the library does not support this: {answer['unsupported']}", is_skip=True)
        if "error" in answer:
            raise SubjectError(f"the library answered '{op}' with an error: {answer['error']}")
        try:
            return read(answer)
        except (KeyError, TypeError, ValueError) as error:
            shown = json.dumps(answer, ensure_ascii=False)
            raise SubjectError(f"the library's answer to '{op}' cannot be read ({error!r}): {shown}") from None


async def _transformed(library: _Library, case: Case, transform: TransformCase, dialect: Dialect) -> Observation:
    """Return the observation for a transform's results, as if a server had shown them."""
    if transform.place is not TransformPlace.REPUBLISH and not dialect.stream_fields_of_2_10:
        raise CannotPlay("servers of this version know no transforms at this place")
    if await _subjects_decide(case, transform, TransformsEngine(dialect)):
        raise CannotPlay("the stream's subjects decide, and the library offers transforms alone")
    if _asks_for_more(case.expected(dialect.version)):
        raise CannotPlay("more than subjects is asked for, and the library offers transforms alone")
    results = await library.transform(transform.source, transform.destination, transform.place, transform.subjects)
    if not isinstance(results, tuple):
        return Observation((Decision(refusal=results),))
    published = [Message(subject, payload=b"%d" % number) for number, subject in enumerate(transform.subjects)]
    made = [
        None if result is None else Message(result, payload=message.payload)
        for result, message in zip(results, published, strict=True)
    ]
    accepted = (Decision(config={}),)
    match transform.place:
        case TransformPlace.REPUBLISH:
            sent = [each for pair in zip(published, made, strict=True) for each in pair if each is not None]
            received = [
                each
                for pattern in case.listen
                for each in sent
                if matches(each.subject, pattern) and b"" not in tokens(each.subject)
            ]
            return Observation(accepted, tuple(received))
        case TransformPlace.INGRESS:
            kept = [message if each is None else each for message, each in zip(published, made, strict=True)]
            return Observation(accepted, stored={"S": _numbered(kept)})
        case _:
            return Observation(accepted, stored={"S": _numbered([each for each in made if each is not None])})


async def _subjects_decide(case: Case, transform: TransformCase, engine: TransformsEngine) -> bool:
    # A server can refuse a stream although its transform is valid: a cycle, or a source that misses it.
    whole = await AccountModel(engine, engine.dialect).play(case)
    alone = await engine.transform(transform.source, transform.destination, transform.place, transform.subjects)
    return whole.decisions[-1].refusal is not None and isinstance(alone, tuple)


def _agree(bare: Results, placed: Results, *, is_random: bool) -> bool:
    """Return whether a place does not change a transform.

    Both are refused, with any error, or the results are equal. Results of `random` differ each time, so their digits do
    not count then.
    """
    if not isinstance(bare, tuple) or not isinstance(placed, tuple):
        return isinstance(bare, tuple) == isinstance(placed, tuple)
    first, second = ([each and re.sub(rb"\d+", b"0", each) for each in results] for results in (bare, placed))
    return bare == placed or (is_random and first == second)


def _numbered(messages: Sequence[Message]) -> tuple[Stored, ...]:
    return tuple(Stored(message, sequence) for sequence, message in enumerate(messages, 1))


def _asks_for_more(expectation: Expectation) -> bool:
    messages = [*(expectation.received or ()), *(each for kept in (expectation.stored or {}).values() for each in kept)]
    blocks_or_numbers = any(each.header_block is not None or each.sequence is not None for each in messages)
    return blocks_or_numbers or expectation.config is not None or expectation.acks is not None


def _message_or_none(answer: Mapping[str, Json]) -> Message | None:
    return None if answer["message"] is None else message_of(answer["message"])


def _are_texts(value: Any) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)
