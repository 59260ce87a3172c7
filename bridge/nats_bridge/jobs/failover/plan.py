"""Plans a failover: for each copied stream the starts of its consumers, and the way back."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from nats_bridge.client.connection import Connection
from nats_bridge.client.connection_pool import connected
from nats_bridge.client.jetstream_api import Json
from nats_bridge.consuming.replay import filter_members, filters_of
from nats_bridge.jobs.failover.account import AccountState, read_account, saving_needs
from nats_bridge.jobs.failover.copied_stream import CopiedStream, CopiedStreams
from nats_bridge.jobs.failover.filters import MovedFilters, moved_filters
from nats_bridge.jobs.failover.positions import Copies, TargetPosition, find_places
from nats_bridge.jobs.failover.source_identity import identify
from nats_bridge.jobs.failover.way_back import WayBack, way_back
from nats_bridge.permissions.need import ANY_STREAM, Need, api_subject, write
from nats_bridge.permissions.reading import replays
from nats_bridge.rules.handoff.stream_body import body_of
from nats_bridge.rules.loops.subject_overlap import takes_filters
from nats_bridge.settings import Settings
from nats_transforms.reserved import is_reserved

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Sequences: the first and the last of each range."""

_OWN: Final = "nats-bridge "  # begins the descriptions of the sidecar's own consumers


@dataclass(frozen=True, slots=True)
class ConsumerMove:
    """The plan for one consumer.

    Attributes:
        place: its acknowledged position, and the messages it will receive from the target.
        outstanding: the number of messages that are delivered and not acknowledged.
        begins: the sequence of the target where it continues; 0 if it cannot be moved.
        acknowledged: ranges of acknowledged messages that are not in the target.
        missing: ranges of messages that are not acknowledged, and not in the target.
        problems: reasons why it cannot be moved like this, or not yet.
        notes: other differences.
        request: the configuration for CONSUMER.CREATE; None if it cannot be moved.
    """

    name: str
    place: TargetPosition
    outstanding: int
    begins: int = 0
    acknowledged: Ranges = ()
    missing: Ranges = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    request: Json | None = None

    @property
    def good(self) -> bool:
        """Whether it continues with the next message, and lacks none."""
        return not (self.problems or self.acknowledged or self.missing)

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        return {
            "consumer": self.name,
            "good": self.good,
            "ack_floor": self.place.floor,
            "outstanding": self.outstanding,
            "begins": self.begins,
            "redelivered": ranges(self.place.redelivered),
            "acknowledged_and_received_again": ranges(self.place.again),
            "following": self.place.ahead,
            "no_copies": self.place.foreign,
            "acknowledged_and_not_arrived": self.acknowledged,
            "not_acknowledged_and_not_arrived": self.missing,
            "problems": self.problems,
            "notes": self.notes,
            "request": self.request,
        }


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """The plan of one copied stream.

    Attributes:
        by: the rules that copy, or the settings of the target.
        source_last: the source's last sequence at the time of the request.
        copied: the highest sequence of the source that is in the target.
        newest_at: the target's sequence of the last copy.
        ephemeral: consumers that are not durable.
        unlisted: the number of consumers that did not answer.
        problems: problems of the copy.
        back: how the target's own messages return.
    """

    source: str
    target: str
    by: tuple[str, ...]
    source_last: int
    copied: int
    newest_at: int
    moves: tuple[ConsumerMove, ...]
    ephemeral: tuple[str, ...]
    unlisted: int
    problems: tuple[str, ...]
    back: WayBack

    @property
    def good(self) -> bool:
        """Whether every consumer can be moved without a loss."""
        return not (self.problems or self.unlisted) and all(move.good for move in self.moves)

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        return {
            "source": self.source,
            "target": self.target,
            "by": self.by,
            "source_last": self.source_last,
            "copied": self.copied,
            "newest_copy_at": self.newest_at,
            "consumers": [move.as_dict() for move in self.moves],
            "ephemeral": self.ephemeral,
            "unlisted": self.unlisted,
            "problems": self.problems,
            "way_back": self.back.entry,
            "way_back_obstacle": self.back.obstacle,
        }


@dataclass(frozen=True, slots=True)
class FailoverPlan:
    """The plan.

    Attributes:
        taken: the time of the requests to the source's server.
        silent: streams of either account whose leader did not answer.
    """

    taken: str
    streams: tuple[StreamPlan, ...]
    silent: tuple[str, ...] = field(default=())

    @property
    def good(self) -> bool:
        """Whether something is copied, nothing is in the way, and nothing lost."""
        return bool(self.streams) and not self.silent and all(stream.good for stream in self.streams)

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        streams = [stream.as_dict() for stream in self.streams]
        return {"ok": self.good, "taken": self.taken, "streams": streams, "silent": self.silent}


def failover_needs(source: str, target: str) -> Iterator[Need]:
    """Yield the needs of `nats-bridge failover`; for a source elsewhere, also `STREAM.INFO` with its API prefix.

    Args:
        source: the connection of the source streams.
        target: the connection of the copies.
    """
    yield from saving_needs(*dict.fromkeys((source, target)))
    yield from replays(source, ANY_STREAM)
    yield from replays(target, ANY_STREAM)
    yield write(target, api_subject("STREAM.INFO", ANY_STREAM), "where the copies begin")
    yield write(target, api_subject("STREAM.MSG.GET", ANY_STREAM), "the newest copy")
    yield write(source, api_subject("STREAM.MSG.GET", ANY_STREAM), "whether it holds what was copied")


async def make_plan(
    settings: Settings, source: str, target: str, stream: str = "", saved: AccountState | None = None
) -> FailoverPlan:
    """Read both sides, without changing anything.

    Args:
        settings: with the connections, and the rules that copy.
        source: the connection of the source streams; unused if `saved` is given.
        target: the connection of the copies.
        stream: the source stream to plan for; empty for all.
        saved: the state of the source's account, saved before it became unreachable.

    Raises:
        BridgeError: a server cannot be reached, or does not answer.
    """
    async with connected(settings, {target} if saved is not None else {source, target}) as connections:
        at_target = connections[target]
        # Read the source first: messages copied meanwhile are then in the target.
        account = saved or await read_account(connections[source], lambda name: stream in ("", name))
        targets = await read_account(at_target, lambda _: False)
        copied = await CopiedStreams(settings, account, source, at_target, targets).find()
        wanted = [each for each in copied if stream in ("", each.source_name)]
        at_source = None if saved is not None else connections[source]
        streams = [await _planned(each, account, at_source, at_target) for each in wanted]
        silent = {*account.silent, *targets.silent} - account.streams.keys()
        return FailoverPlan(account.taken, tuple(streams), tuple(sorted(silent)))


async def _planned(
    copied: CopiedStream, account: AccountState, source: Connection | None, target: Connection
) -> StreamPlan:
    found = account.consumers.get(copied.source_name, [])
    durable = [each for each in found if each["config"].get("durable_name") and not _is_own(each)]
    ephemeral = [str(each["name"]) for each in found if not each["config"].get("durable_name") and not _is_own(each)]
    there = {str(each["name"]) for each in await target.api.consumers(copied.target_name)}
    moves: list[ConsumerMove] = []
    movable: list[tuple[Json, MovedFilters, TargetPosition]] = []
    for consumer in durable:
        filters = filters_of(consumer["config"])
        moved = _filters(copied, filters)
        place = TargetPosition.of(consumer, filters, moved.filters)
        if refused := _refused(consumer["config"], moved, copied.target["config"], target.server_version):
            outstanding = int(consumer.get("num_ack_pending", 0))
            moves.append(ConsumerMove(str(consumer["name"]), place, outstanding, problems=tuple(refused)))
        else:
            movable.append((consumer, moved, place))
    places = [place for _, _, place in movable]
    is_source = await identify(copied, target, source.api if source is not None else None)
    copies = await find_places(copied, target.api, source.api if source is not None else None, places)
    for consumer, moved, place in movable:
        moves.append(_move(copied, consumer, moved, place, copies, there, is_saved=source is None))
    moves.sort(key=lambda move: move.name)
    return StreamPlan(
        copied.source_name,
        copied.target_name,
        tuple(dict.fromkeys(entry.by for entry in copied.entries)),
        int(copied.source["state"]["last_seq"]),
        max(copies.newest),
        copies.newest_at,
        tuple(moves),
        tuple(sorted(ephemeral)),
        account.unlisted.get(copied.source_name, 0),
        () if is_source else (_wrong_source(copied),),
        way_back(copied, copies.newest_at),
    )


def _is_own(consumer: Json) -> bool:
    return str(consumer["config"].get("description", "")).startswith(_OWN)


def _filters(copied: CopiedStream, filters: Sequence[str]) -> MovedFilters:
    config = copied.source["config"]
    fed = config.get("sources") or config.get("mirror") or config.get("subject_transform")
    subjects = () if fed else config.get("subjects") or ()
    return moved_filters(filters, subjects, [each.sourcing for each in copied.entries], copied.others)


def _wrong_source(copied: CopiedStream) -> str:
    return (
        f"{copied.source_name} (created {copied.source['created']}) is not the stream of that name that"
        f" {copied.target_name} holds copies of"
    )


def _move(
    copied: CopiedStream,
    consumer: Json,
    moved: MovedFilters,
    place: TargetPosition,
    copies: Copies,
    there: set[str],
    *,
    is_saved: bool,
) -> ConsumerMove:
    config, here = consumer["config"], copied.target["config"]
    first = max(int(copied.target["state"]["first_seq"]), 1) if copies.newest_at else copies.last + 1
    in_the_way = f"{here['name']} has a consumer {consumer['name']} already: delete it first"
    acknowledged, missing = ranges(place.acknowledged), ranges(place.missing)
    if is_saved:
        acknowledged, missing = _may_be_missing(place, copies, copied, int(consumer.get("num_pending", 0)))
    return ConsumerMove(
        str(consumer["name"]),
        place,
        int(consumer.get("num_ack_pending", 0)),
        place.begins or first,
        acknowledged,
        missing,
        (in_the_way,) if consumer["name"] in there else (),
        tuple(_notes(copied, consumer, moved, is_saved=is_saved)),
        _request(config, here, moved.filters, place.begins or first),
    )


def _refused(config: Json, moved: MovedFilters, target: Json, version: str) -> list[str]:
    """Return the reasons why the target cannot or should not have such a consumer."""
    name, patterns = target["name"], [each.encode() for each in moved.filters]
    found = []
    if is_reserved((deliver := str(config.get("deliver_subject", ""))).encode()):
        # Servers before 2.15.3 accept it. A user who may create it in the source may not be allowed to command the
        # target.
        found.append(f"it delivers to {deliver}: each message would be a command to the server")
    if not moved.is_any:
        found.append(f"nothing that it reads is copied to {name}")
    if moved.surplus:
        found.append(f"its filters would also select other messages of {name}: {', '.join(moved.surplus)}")
    if patterns and not takes_filters(version, patterns, target.get("subjects") or ()):
        found.append(f"server {version} takes no consumer of {name} with the filters {', '.join(moved.filters)}")
    if target.get("retention") == "workqueue":
        found.append(f"{name} is a work queue, whose consumers begin with its first message")
    return found


def _notes(copied: CopiedStream, consumer: Json, moved: MovedFilters, *, is_saved: bool) -> Iterator[str]:
    config = consumer["config"]
    if moved.uncopied:
        yield f"reads what is not copied: {', '.join(moved.uncopied)}"
    for entry in copied.entries:
        if entry.sourcing.where is not None:
            yield f"{entry.by} copies only messages with a header"
    if config.get("ack_policy") == "none":
        yield "acknowledges nothing: what was in flight to a client is not redelivered"
    if config.get("deliver_policy") == "last_per_subject":
        yield "was created for the last message of each subject: it may receive older ones, too"
    if not is_saved and (consumer.get("push_bound") or consumer.get("num_waiting")):
        yield "has clients: stop them and plan again, or what they acknowledge from now on is redelivered"


def _may_be_missing(place: TargetPosition, copies: Copies, copied: CopiedStream, pending: int) -> tuple[Ranges, Ranges]:
    """Return ranges that are missing in the target, including sequences that the consumer does not read."""
    reached = copies.reached
    # Copies are made in order, so if as many follow as were pending, those have arrived.
    last = place.delivered if place.ahead >= pending else int(copied.source["state"]["last_seq"])
    missing = [(max(reached, place.floor) + 1, last)]
    if not place.has_all_before:
        missing.insert(0, (place.floor + 1, place.lowest - 1))
    acknowledged = ((reached + 1, place.floor),)
    return tuple(filter(_holds_any, acknowledged)), tuple(filter(_holds_any, missing))


def _holds_any(one: tuple[int, int]) -> bool:
    return one[0] <= one[1]


def _request(config: Json, target: Json, filters: Sequence[str], begins: int) -> Json:
    """Return a consumer's configuration in the target."""
    gone = {"opt_start_time", "filter_subject", "filter_subjects"}
    made = {name: value for name, value in body_of(config).items() if name not in gone}
    made |= {"deliver_policy": "by_start_sequence", "opt_start_seq": begins, **filter_members(filters)}
    replicas = int(target.get("num_replicas", 1))
    if int(made.get("num_replicas", 0)) > replicas:
        made["num_replicas"] = replicas
    return {"stream_name": target["name"], "config": made}


def ranges(sequences: Sequence[int]) -> Ranges:
    """Sequences as ranges: the first and the last of each."""
    found: list[tuple[int, int]] = []
    for sequence in sorted(sequences):
        if found and found[-1][1] == sequence - 1:
            found[-1] = found[-1][0], sequence
        else:
            found.append((sequence, sequence))
    return tuple(found)
