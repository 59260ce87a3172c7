"""The plan of one entry of a copying rule: where its copies are stored, and how its source is read.

A consumer's filter keeps messages off the wire, but file stores look them up one by one (2.10 delivers about 9,000 a
second, 2.15 about 90,000, and 200,000 without a filter; 2.9 sometimes 1,000). If a large part of the stream is
selected, reading all of it and dropping the rest is faster.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from nats_bridge.client.jetstream_api import JetStreamApi, Json
from nats_bridge.consuming.lag import StreamPosition
from nats_bridge.consuming.replay import Replay
from nats_bridge.consuming.rule_consumer import ConsumerPlan
from nats_bridge.settings import Source
from nats_transforms.dialect import Dialect
from nats_transforms.sourcing import Sourcing, compile_sourcing
from nats_transforms.subject import REST, is_subset
from nats_transforms.subject_patterns import Pattern

SETS_APART: Final = "nats-bridge-failover"
"""Begins a filter that no message has: it makes an entry another one, whose start counts (`jobs.failover.way_back`)."""

_WORTH_READING_ALL = 5  # the fraction of selected messages is at least one in this many


@dataclass(frozen=True, slots=True)
class EntryPlan:
    """The plan of an entry.

    Attributes:
        owner: how the descriptions of the rule's consumers begin.
        probe: a subject that the target stores, for barriers.
        filters: the filters of the source's consumer; none for everything.
        on_recreated: what to do when the source is a new stream of the same name.
        sources: the number of the rule's entries.
        keep_sequence: whether copies have the source's sequence numbers.
        filler: the subject for numbers that the source lacks.
        skip: the subject for messages that the target refuses; None to stop at them.
        one_by_one: whether order is kept at the price of speed.
        durable: the durable consumer that acknowledges the source's messages; empty without acknowledgements.
        former: the position of the rule's former consumers of these subjects; None without any.
        work_queue: whether the source is a work queue.
        max_pending: the limit of its unacknowledged messages.
    """

    rule: str
    owner: str
    source: Source
    sourcing: Sourcing
    stream: str
    probe: bytes
    filters: tuple[str, ...]
    on_recreated: Literal["stop", "restart"]
    sources: int = 1
    keep_sequence: bool = False
    filler: str | None = None
    skip: str | None = None
    one_by_one: bool = False
    durable: str = ""
    former: int | None = None
    work_queue: bool = False
    max_pending: int = 0

    @property
    def exclusive(self) -> bool:
        """Whether nothing else of the rule writes to the target, and one answer may stand for many messages."""
        return self.sources == 1 and not self.durable

    def copies_all_of(self, config: Json) -> bool:
        """Return whether each message of the source is copied, as long as the stream does not remove it.

        Args:
            config: the source's configuration. A stream that limits the messages of a subject removes old ones as a
                matter of course.
        """
        if config.get("retention", "limits") != "limits" or int(config.get("max_msgs_per_subject", -1)) > 0:
            return False
        sourcing = self.sourcing
        return sourcing.where is None and not sourcing.exclude and select_all(sourcing.filters, config)

    def consumer(self, filters: tuple[str, ...]) -> ConsumerPlan:
        """Return the plan of the source's consumer with these filters; none for all."""
        return ConsumerPlan(
            stream=self.source.name,
            filters=filters,
            headers_only=False,
            position="acknowledged" if self.durable else "none",
            durable_name=self.durable,
            owner=self.owner,
            rule=self.rule,
            description=f" copying into {self.stream}",
            work_queue=self.work_queue,
            max_pending=self.max_pending,
        )


def select_all(filters: Sequence[bytes], config: Json) -> bool:
    """Return whether filters select every message that a stream can store.

    Args:
        filters: none for everything.
        config: the stream's configuration. It does not list subjects that sources or its own transform bring in.
    """
    if not filters:
        return True
    subjects = [each.encode() for each in config.get("subjects") or ()]
    covered = all(any(is_subset(each, pattern) for pattern in filters) for each in subjects)
    return covered and not any(config.get(member) for member in ("mirror", "sources", "subject_transform"))


def compiled_entry(source: Source, dialect: Dialect, *, mirrors: bool) -> Sourcing:
    """Return the filters and transforms of an entry.

    Raises:
        TransformError: the server of the dialect would refuse a transform.
    """
    exclude = [pattern.encode() for pattern in source.exclude]
    where = None if source.where is None else source.where.condition
    return compile_sourcing(source.native(), dialect, mirrors=mirrors, exclude=exclude, where=where)


def destinations(sourcing: Sourcing) -> list[bytes]:
    """Return the patterns of the subjects that an entry stores."""
    patterns = [transform.covering for transform in sourcing.transforms]
    return patterns or list(sourcing.filters) or [REST]


def common_subject(some: Iterable[bytes], others: Sequence[bytes]) -> bytes | None:
    """Return a subject without wildcards that matches a pattern of both lists; None if none exists."""
    meetings = (Pattern.of(one).meet(Pattern.of(other)) for one in some for other in others)
    return next((common.example for common in meetings if common is not None), None)


class Reading(Protocol):
    """The reader of an entry: the sidecar's, or a job's with the source's messages from elsewhere.

    It passes batches to `Round.accept`, and awaits the result.
    """

    @property
    def handled(self) -> int:
        """The source's sequence up to which everything was delivered."""

    @property
    def attached(self) -> bool:
        """Whether messages can come at this moment."""

    @property
    def waits_for(self) -> str:
        """The obstacle, as a phrase; empty without one."""

    @property
    def has_work(self) -> bool:
        """Whether messages are read and not handed on."""

    @property
    def stream_position(self) -> StreamPosition:
        """The position; see `nats_bridge.consuming.lag`."""

    async def open(self, handled: int, info: Json) -> None:
        """Begin after a sequence of the source with this `STREAM.INFO`."""

    async def not_taken(self) -> int | None:
        """Return the number of waiting messages; see `nats_bridge.consuming.lag`."""

    async def abandon(self, *, held: bool) -> None:
        """Stop. `held` means that the last batch delivered has not been written."""

    async def end_at_once(self) -> int | None:
        """Stop without sending to any server. A reader may return the number of messages it has not delivered."""


async def consumer_filters(api: JetStreamApi, info: Json, filters: tuple[str, ...]) -> tuple[str, ...]:
    """Return the filters of a consumer; none for everything.

    Args:
        api: the API of the connection that holds the source.
        info: its `STREAM.INFO`.
        filters: the filters of the entry; empty for everything.
    """
    messages = int(info["state"]["messages"])
    if not filters or not messages or info["config"].get("storage") == "memory":
        return filters
    selected = await Replay(api, str(info["config"]["name"]), filters).after(0)
    return () if selected * _WORTH_READING_ALL >= messages else filters
