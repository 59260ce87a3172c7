"""What is drawn and not put to a server: what would end it, never come to rest, or show nothing that can be compared.

The reasons are texts; a run counts how many trials each one held back. They are about the version at hand: what harms
an old server is put to a newer one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from nats_conformance.catalogue.case import Json, Message
from nats_transforms.dialect import Dialect
from nats_transforms.stream_config.texts import collide
from nats_transforms.subject import matches, tokens
from tests.differential.engine import Engine
from tests.differential.trial import Kind, Trial

_ENDS_AT_NULL = "a null among the sources ends the server"
_ENDS_AT_ZERO = "partition with modulus 0 ends the server"
_LOOPS = "the empty republish of an update loops endlessly"
_FEEDS_ITSELF = "what is republished falls on the stream's own subjects"
_TAKES_API = "the stream would take the requests to the server itself"
_NO_SUCH_SUBJECT = "no API subject can name such a stream"
_CONSUMERS_DECIDE = "limits of consumers are compared with those that other streams have on this one"
_LINE_END = "a line end in a subject breaks the connection"
_NOWHERE_TO_LISTEN = "no client can subscribe to the resulting subject"
_NEVER_COPIES = "filters of one source overlap, so it never copies"
_EMPTY_FILTER = "a filter that is empty never copies"
_NO_SOURCE = "there is no stream of the source's name"
_STALLS = "a header of the source's message ends the copying"
_STORE_DECIDES = "what a filter makes of a token > in a subject, or of its own token *x, depends on the store"
_RANDOM = "random functions are judged apart"

_STALLING_HEADER = re.compile(rb"\nNats-(Rollup|TTL|Schedule[A-Za-z-]*|Incr):|\nNats-Msg-Id:.*\n(.*\n)*Nats-Msg-Id:")
_EXPECTATION = re.compile(rb"\nNats-Expected-")
_CONTROL_STATUS = re.compile(rb"NATS/1\.0 +1[0-9][0-9]")
_PUBLISHABLE_NAME = re.compile(r"[^\s.]+")


def held_back(trial: Trial, engine: Engine) -> str | None:
    """Why the trial is not put to a server of the engine's version; None where it is."""
    return next(_reasons(trial, engine), None)


def _reasons(trial: Trial, engine: Engine) -> Iterator[str]:
    for given in (trial.config, trial.previous or {}):
        if not engine.dialect.null_source_is_safe and _has_null_source(given):
            yield _ENDS_AT_NULL
        name = given.get("name")
        if isinstance(name, str) and name and not _PUBLISHABLE_NAME.fullmatch(name):
            yield _NO_SUCH_SUBJECT
    if trial.previous is not None:
        if _is_emptied_republish(trial.config):
            yield _LOOPS
        if trial.others and _consumer_limits(trial.config) != _consumer_limits(trial.previous):
            yield _CONSUMERS_DECIDE
        before = engine.decide_before(trial).config
        if before is not None:
            yield from _api_reasons(before, engine.dialect)
    config = engine.decide(trial).config
    if config is None:
        return
    yield from _api_reasons(config, engine.dialect)
    if trial.messages:
        yield from _transform_reasons(trial, config, engine)
        if trial.copies:
            yield from _copying_reasons(trial, config, engine.dialect)


def _members(config: Mapping[str, Json], name: str) -> list[Json]:
    """The values of a member; servers take its name in any case."""
    return [value for key, value in config.items() if key.casefold() == name]


def _consumer_limits(config: Mapping[str, Json]) -> list[Json]:
    return [limits for limits in _members(config, "consumer_limits") if limits]


def _has_null_source(config: Mapping[str, Json]) -> bool:
    return any(isinstance(value, list) and None in value for value in _members(config, "sources"))


def _is_emptied_republish(config: Mapping[str, Json]) -> bool:
    rules = [rule for rule in _members(config, "republish") if isinstance(rule, Mapping)]
    return any(not any(_members(rule, "dest")) for rule in rules)


def _api_reasons(config: Mapping[str, Json], dialect: Dialect) -> Iterator[str]:
    for subject in config.get("subjects", ()):
        if any(collide(subject, space, dialect) for space in ("$JS.API.>", "_INBOX.>")):
            yield _TAKES_API


def _transform_reasons(trial: Trial, config: Mapping[str, Json], engine: Engine) -> Iterator[str]:
    rule, ingress = engine.republish_of(config), engine.ingress_of(config)
    transforms = [] if ingress is None else [ingress]
    if rule is not None:
        transforms.append(rule.transform)
    for entry in engine.entries_of(config):
        transforms += engine.sourcing_of(entry, mirrors=trial.kind is Kind.MIRROR).transforms
    if any(transform.defects for transform in transforms):
        yield _ENDS_AT_ZERO
    if any(transform.is_random for transform in transforms):
        yield _RANDOM
    if rule is None:
        return
    out = [
        result
        for result in (rule.transform.apply(stored) for stored in _stored_subjects(trial, config, engine))
        if result
    ]
    if any(b"\r" in result or b"\n" in result for result in out):
        yield _LINE_END
    if any(matches(result, subject.encode()) for result in out for subject in config.get("subjects", ())):
        yield _FEEDS_ITSELF
    if not all(_is_audible(tokens(result)[0]) for result in out):
        yield _NOWHERE_TO_LISTEN


def _stored_subjects(trial: Trial, config: Mapping[str, Json], engine: Engine) -> Iterator[bytes]:
    for message in trial.messages:
        if not trial.copies:
            yield engine.ingressed(config, message.subject)
            continue
        for entry in engine.entries_of(config):
            sourcing = engine.sourcing_of(entry, mirrors=trial.kind is Kind.MIRROR)
            yield engine.ingressed(config, sourcing.destination(message.subject) or message.subject)


def _is_audible(head: bytes) -> bool:
    """Whether a subscription can name the first token, and nothing else is sent there."""
    return (
        head.isascii()
        and not head.startswith((b"$", b"_INBOX"))
        and head not in (b"*", b">")
        and not set(head) & set(b" \t")
    )


def _copying_reasons(trial: Trial, config: Mapping[str, Json], dialect: Dialect) -> Iterator[str]:
    entries = Engine.entries_of(config)
    mirrors = trial.kind is Kind.MIRROR
    if any(entry["name"] not in {other.get("name") for other in trial.others} for entry in entries):
        yield _NO_SOURCE
    for entry in entries:
        if not dialect.overlapping_source_filters_work and _any_collide(_filters(entry), dialect):
            yield _NEVER_COPIES
        pairs = entry.get("subject_transforms", ())
        if not all(pair["src"] for pair in pairs) and not (mirrors and len(pairs) == 1):
            yield _EMPTY_FILTER
    if len(entries) > 1 and not dialect.source_record_names_filters:
        yield _NEVER_COPIES
    filters = [each for entry in entries for each in _filters(entry)]
    if filters and any(b">" in tokens(message.subject) for message in trial.messages):
        yield _STORE_DECIDES
    if any(len(token) > 1 and token.startswith("*") for each in filters for token in each.split(".")):
        yield _STORE_DECIDES
    strips = dialect.mirroring_strips_expectations if mirrors else dialect.sourcing_strips_expectations
    blocks = [message.header_block for message in trial.messages]
    if any(_stalls(message, strips=strips) for message in trial.messages):
        yield _STALLS
    if len(entries) > 1 and any(b"Nats-Msg-Id" in block for block in blocks):
        yield _STALLS


def _filters(entry: Mapping[str, Json]) -> list[str]:
    pairs = entry.get("subject_transforms", ())
    return (
        [pair["src"] or ">" for pair in pairs]
        if pairs
        else [entry["filter_subject"]]
        if entry.get("filter_subject")
        else []
    )


def _any_collide(filters: Sequence[str], dialect: Dialect) -> bool:
    return any(collide(one, other, dialect) for at, one in enumerate(filters) for other in filters[at + 1 :])


def _stalls(message: Message, *, strips: bool) -> bool:
    block = message.header_block
    if _CONTROL_STATUS.match(block) or _STALLING_HEADER.search(block):
        return True
    return not strips and _EXPECTATION.search(block) is not None
