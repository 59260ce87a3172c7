"""Wrong engines whose copies, made by sources and mirrors, are not those of a server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from nats_conformance.catalogue.case import Message
from nats_conformance.implementations.engine_operations import Config, EngineOperations, TransformsEngine
from nats_conformance.observation import Stored
from nats_transforms.dialect import Dialect
from nats_transforms.header_block import START, append, remove
from nats_transforms.source_record import HEADER
from nats_transforms.sourcing import Sourcing
from tests.miniatures.miniature import Miniature


class _OtherCopies(TransformsEngine):
    """Changes the copy of a message; ``mirrors`` names the kind."""

    def __init__(self, dialect: Dialect, change: Callable[[Message, Stored, bool], Message]) -> None:
        super().__init__(dialect)
        self._change = change

    async def copy(self, entry: Config, message: Stored, identity: bytes, *, mirrors: bool) -> Message | None:
        made = await super().copy(entry, message, identity, mirrors=mirrors)
        return None if made is None else self._change(made, message, mirrors)


def _changed(change: Callable[[Message, Stored, bool], Message]) -> Callable[[Dialect], EngineOperations]:
    return lambda dialect: _OtherCopies(dialect, change)


class _LastMatch(TransformsEngine):
    def sourcing(self, entry: Config, *, mirrors: bool) -> Sourcing:
        made = super().sourcing(entry, mirrors=mirrors)
        return replace(made, transforms=made.transforms[::-1])


class _KeepsExpectations(TransformsEngine):
    def __init__(self, dialect: Dialect) -> None:
        super().__init__(replace(dialect, sourcing_strips_expectations=False, mirroring_strips_expectations=False))


class _IgnoresFilters(TransformsEngine):
    def sourcing(self, entry: Config, *, mirrors: bool) -> Sourcing:
        return replace(super().sourcing(entry, mirrors=mirrors), filters=())


def _joined_with_commas(copy: Message, _: Stored, mirrors: bool) -> Message:
    return replace(copy, header_block=copy.header_block.replace(b"\x0c", b","))


def _without_id(copy: Message, _: Stored, mirrors: bool) -> Message:
    return replace(copy, header_block=remove(copy.header_block, b"Nats-Msg-Id"))


def _record(block: bytes) -> bytes:
    start = block.rfind(HEADER + b":")
    return block[start : block.find(b"\r\n", start) + 2]


def _record_first(copy: Message, _: Stored, mirrors: bool) -> Message:
    if mirrors:
        return copy
    record = _record(copy.header_block)
    rest = copy.header_block.replace(record, b"").removeprefix(START)
    return replace(copy, header_block=START + record + rest)


def _record_next_to_earlier(copy: Message, source: Stored, mirrors: bool) -> Message:
    block = source.message.header_block
    if mirrors or HEADER not in block:
        return copy
    value = _record(copy.header_block).removeprefix(HEADER + b": ").removesuffix(b"\r\n")
    return replace(copy, header_block=append(block, [(HEADER, value)]))


def _recorded_mirror(copy: Message, source: Stored, mirrors: bool) -> Message:
    record = [(HEADER, b"O %d > >" % source.sequence)]
    return replace(copy, header_block=append(copy.header_block, record)) if mirrors else copy


COPIES = (
    Miniature(
        "last-match",
        "takes the last transform of a source that matches, not the first",
        "adr36/copies/first-match/1",
        _LastMatch,
    ),
    Miniature(
        "keeps-expectations",
        "keeps Nats-Expected-* headers, which the target's stream would act on",
        "adr36/copies/kept/1",
        _KeepsExpectations,
    ),
    Miniature(
        "drops-message-ids",
        "takes Nats-Msg-Id out of copies",
        "adr36/copies/kept/1",
        _changed(_without_id),
    ),
    Miniature(
        "ignores-filters",
        "copies everything and only renames what a filter selects",
        "adr36/copies/filter/1",
        _IgnoresFilters,
    ),
    Miniature(
        "joins-with-commas",
        "joins the filters of a source record with commas instead of form feeds",
        "adr36/record/joined/1",
        _changed(_joined_with_commas),
    ),
    Miniature(
        "record-first",
        "writes the source record before the message's own headers",
        "adr36/record/appended/1",
        _changed(_record_first),
    ),
    Miniature(
        "record-next-to-earlier",
        "leaves the record of an earlier copy in a message that is copied on",
        "adr36/record/chain/1",
        _changed(_record_next_to_earlier),
    ),
    Miniature(
        "recorded-mirror",
        "writes a source record into mirrored messages",
        "adr36/record/mirror/1",
        _changed(_recorded_mirror),
    ),
)
