"""The edges of the graph: streams, their native features, and rules move messages from place to place. Pure.

Theory of operation: a message is at one of three kinds of place: published in a subject space (an account, as its
connections see it), at the ingress of a stream, or stored in it. Everything that moves messages from one place to
another is a `Move`, which maps a pattern of subjects to the resulting one:

* a stream's subjects move from the space to its ingress; its `subject_transform` acts between ingress and store;
* native `republish` moves from a store to the space, native `sources` and `mirror` from a store to another's ingress,
* rules publish like any client, to the space, where any matching stream stores the message, even unintentionally.

Not included, because no API reports them: account mappings, imports and exports, and clients that publish messages they
receive. The message that an advisory is *about* is not an edge, because storing a message moves no advisory.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Literal, TypeAlias

from nats_bridge.client.jetstream_api import Json
from nats_bridge.rule_kinds import kind_of
from nats_bridge.settings import Settings
from nats_bridge.settings.models import NATIVE_DIALECT
from nats_transforms.dialect import Dialect, dialect
from nats_transforms.errors import TransformError
from nats_transforms.subject import bytes_of
from nats_transforms.subject_patterns import EVERYTHING, Pattern
from nats_transforms.transform import Transform, compile_transform


@dataclass(frozen=True, slots=True)
class Reach:
    """The account that a connection reaches.

    Attributes:
        space: the name of the subject space, which connections to the same account share.
        streams: the streams that its JetStream API lists, each as `STREAM.INFO` gives it.
        dialect: its server's.
    """

    space: str
    streams: Sequence[Json]
    dialect: Dialect


@dataclass(frozen=True, slots=True)
class MessageLocation:
    """A place where a message can be.

    Attributes:
        kind: in the space, at a stream's ingress (before its transform), or stored.
        stream: the stream's name; empty for the space itself.
        created: when the stream was created, which distinguishes it from another of that name in the same space.
    """

    kind: Literal["space", "door", "store"]
    space: str
    stream: str = ""
    created: str = ""


Outcome: TypeAlias = Transform | Pattern | None


@dataclass(frozen=True, slots=True)
class Move:
    """An edge: moves messages from one place to another.

    Attributes:
        text: a description for people; empty if the places are enough.
        rule: the rule that moves messages; None if the server does.
        takes: the place that it reads.
        puts: the place that it writes.
        selects: the subjects that it reads, without those that are in `leaves` entirely.
        becomes: the transform, or a pattern of the resulting subjects; None if subjects stay the same.
    """

    text: str
    rule: str | None
    takes: MessageLocation
    puts: MessageLocation
    selects: Pattern = EVERYTHING
    leaves: tuple[Pattern, ...] = ()
    becomes: Outcome = None

    def carry(self, pattern: Pattern) -> Pattern | None:
        """Return the resulting subjects of messages with these subjects; None if the move takes none of them."""
        taken = pattern.meet(self.selects)
        if taken is None or any(taken.within(left) for left in self.leaves):
            return None
        if isinstance(self.becomes, Transform):
            return taken.through(self.becomes)
        return self.becomes or taken

    @property
    def depth(self) -> int:
        """The largest number of tokens that it reads or writes."""
        made = 0
        if isinstance(self.becomes, Transform):
            made = max(self.becomes.pattern.count(b"."), self.becomes.destination.count(b".")) + 1
        elif self.becomes is not None:
            made = len(self.becomes.tokens)
        return max(made, len(self.selects.tokens), *(len(left.tokens) for left in self.leaves), 0)


class Landscape:
    """The streams by connection, from which a kind of rule builds its moves.

    Args:
        reaches: the reach of each connection, by name.
    """

    def __init__(self, reaches: Mapping[str, Reach]) -> None:
        self._reaches = reaches

    def moves(self, settings: Settings) -> list[Move]:
        """Everything that moves messages: streams, and the rules of a configuration."""
        found: list[Move] = []
        seen: set[MessageLocation] = set()
        for reach in self._reaches.values():
            for info in reach.streams:
                store = _place("store", reach, info)
                if store not in seen:  # two connections may reach the same stream
                    seen.add(store)
                    found += self._of_stream(reach, info)
        for rule in settings.rules:
            if all(name in self._reaches for name in rule.connections):
                with contextlib.suppress(TransformError):  # the rule's own check refuses it
                    found += kind_of(rule).moves(rule, self, settings.dialect_of(rule))
        return found

    def space(self, connection: str) -> MessageLocation:
        """Return the space of subjects that a connection reaches."""
        return MessageLocation("space", self._reaches[connection].space)

    def stores(self, connection: str, stream: str) -> list[MessageLocation]:
        """Return the streams of a name that a connection reaches."""
        return self._named(self._reaches[connection], stream)

    def dialect(self, connection: str, version: str) -> Dialect:
        """Return the dialect with this name, which may be that of the connection's server."""
        return self._reaches[connection].dialect if version == NATIVE_DIALECT else dialect(version)

    # -- moves of servers --------------------------------------------------------------------------------------------

    def _of_stream(self, reach: Reach, info: Json) -> Iterator[Move]:
        config = info["config"]
        if config.get("sealed"):
            return  # a sealed stream stores nothing more
        space, door, store = (
            MessageLocation("space", reach.space),
            _place("door", reach, info),
            _place("store", reach, info),
        )
        for subject in config.get("subjects") or ():
            yield Move("", None, space, door, Pattern.of(subject))
        yield from _ingress(config.get("subject_transform") or {}, reach.dialect, door, store)
        republish = config.get("republish") or {}
        if republish.get("dest"):
            source, destination = republish.get("src") or ">", republish["dest"]
            text = f"native republish {source} to {destination}"
            outcome = _native(source, destination, reach.dialect)
            yield Move(text, None, store, space, Pattern.of_source(source, reach.dialect), (), outcome)
        entries = [("source", entry) for entry in config.get("sources") or ()]
        if config.get("mirror"):
            entries.append(("mirror", config["mirror"]))
        for what, entry in entries:
            for source_place in self._native_sources(reach, entry):
                native = partial(_native, version=reach.dialect)
                yield from copying(entry, f"native {what}", None, source_place, door, (), native)

    def _native_sources(self, reach: Reach, entry: Json) -> Iterable[MessageLocation]:
        """Yield the stores that a native source or mirror reads, if they are visible."""
        if not entry.get("external"):
            return self._named(reach, entry.get("name"))
        # No server reports which account or domain an API prefix leads to: any other one may be it.
        own = self._named(reach, entry.get("name"))
        named = chain.from_iterable(self._named(other, entry.get("name")) for other in self._reaches.values())
        return [place for place in dict.fromkeys(named) if place not in own]

    def _named(self, reach: Reach, stream: object) -> list[MessageLocation]:
        return [_place("store", reach, info) for info in reach.streams if info["config"]["name"] == stream]


def compiled(source: str, destination: str, version: Dialect) -> Transform:
    """Return a rule's transform.

    Raises:
        TransformError: it cannot be built.
    """
    return compile_transform(bytes_of(source), bytes_of(destination), version)


def _native(source: str, destination: str, version: Dialect) -> Outcome:
    """Return a transform that a server has accepted. One of a newer server may contain unknown functions."""
    try:
        return compiled(source, destination, version)
    except TransformError:
        return Pattern.of_destination(destination)


def _ingress(transform: Json, version: Dialect, door: MessageLocation, store: MessageLocation) -> Iterator[Move]:
    source, destination = transform.get("src") or ">", transform.get("dest") or ""
    if not destination:
        yield Move("", None, door, store)
        return
    matching = Pattern.of_source(source, version)
    text = f"native subject_transform {source} to {destination}"
    yield Move(text, None, door, store, matching, (), _native(source, destination, version))
    yield Move("", None, door, store, EVERYTHING, (matching,))


def copying(
    entry: Json,
    text: str,
    rule: str | None,
    takes: MessageLocation,
    puts: MessageLocation,
    excluded: tuple[Pattern, ...],
    build: Callable[[str, str], Outcome],
) -> Iterator[Move]:
    """Yield the moves of an entry of `sources`, or of a `mirror`: the first transform that matches counts.

    Args:
        entry: as in a native configuration.
        text: how their descriptions begin.
        rule: see `Move`.
        takes: the source's store.
        puts: the place of the copies.
        excluded: the patterns that are not copied.
        build: makes a transform of source and destination.
    """
    transforms = entry.get("subject_transforms") or ()
    if not transforms:
        selected = entry.get("filter_subject") or ">"
        yield Move(f"{text} {selected}", rule, takes, puts, Pattern.of(selected), excluded)
    for transform in transforms:
        source, destination = transform.get("src") or ">", transform.get("dest") or ""
        selects = Pattern.of(source)
        what = f"{source} to {destination}" if destination else source
        yield Move(f"{text} {what}", rule, takes, puts, selects, excluded, build(source, destination))
        excluded = (*excluded, selects)


def _place(kind: Literal["door", "store"], reach: Reach, info: Json) -> MessageLocation:
    return MessageLocation(kind, reach.space, info["config"]["name"], str(info.get("created", "")))
