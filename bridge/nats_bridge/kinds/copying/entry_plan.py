"""The plan of one entry of a copying rule, before it begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from nats_bridge.client.jetstream_api import Json
from nats_bridge.consuming.rule_consumer import ConsumerPlan
from nats_bridge.settings import Source
from nats_transforms.sourcing import Sourcing
from nats_transforms.subject import is_subset


@dataclass(frozen=True, slots=True)
class EntryPlan:
    """The plan of an entry.

    Attributes:
        rule: the rule's name.
        owner: how the descriptions of the rule's consumers begin.
        source: the entry as configured.
        sourcing: the same, compiled.
        stream: the target's name.
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
