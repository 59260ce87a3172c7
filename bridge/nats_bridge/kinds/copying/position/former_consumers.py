"""Finds consumers of edited or renamed entries, so that a new consumer begins at their position.

The name of an entry's consumer depends on its filters and transforms. So reordering the entries changes nothing, and an
edited entry gets another consumer. The new one begins at the position of the rule's former consumers of the same
subjects. Those are deleted when every entry has its own consumer, because until then they make an interest stream keep
every message. A work queue allows no second consumer of a subject and keeps unacknowledged messages, so there they are
deleted first. A former consumer whose subjects no entry selects stays, like that of a removed rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

import structlog

from nats_bridge.client.connection import Connection
from nats_bridge.client.write_fence import WriteFence
from nats_bridge.consuming.consumer_plan import marker_name
from nats_bridge.consuming.replay import filters_of
from nats_bridge.consuming.rule_consumer import RuleConsumer
from nats_bridge.errors import NotPermittedError
from nats_transforms.subject import collide

if TYPE_CHECKING:
    from nats_bridge.kinds.copying.entry import EntryPlan

_log = structlog.get_logger("bridge.copying")


@dataclass(frozen=True, slots=True)
class _Former:
    place: tuple[str, str]  # connection and stream
    consumer: RuleConsumer
    position: int


class FormerConsumers:
    """The former consumers of one rule."""

    def __init__(self, connections: Mapping[str, Connection], fence: WriteFence) -> None:
        self._connections = connections
        self._fence = fence
        self._observed: list[_Former] = []

    async def succeeded_by(self, plans: Iterable[EntryPlan]) -> list[EntryPlan]:
        """Find the former consumers, and return the plans with the positions at which new consumers begin.

        Raises:
            RuleRefusedError: another process reads through one.
            ApiError: a server refuses, or does not answer.
        """
        plans = list(plans)
        reading = sorted((plan for plan in plans if plan.durable), key=_place)
        for place, group in groupby(reading, _place):
            await self._observe(place, list(group))
        return [replace(plan, former=self._position_for(plan)) if plan.durable else plan for plan in plans]

    async def delete(self) -> None:
        """Delete them, when every entry has a consumer."""
        for former in self._observed:
            if not former.consumer.plan.work_queue:
                await self._delete(former)
        self._observed.clear()

    async def _observe(self, place: tuple[str, str], plans: list[EntryPlan]) -> None:
        first, (connection, stream) = plans[0], place
        api = self._connections[connection].api
        try:
            listed = await api.consumers(stream)
        except NotPermittedError as error:
            _log.warning("copying.consumers_not_listed", rule=first.rule, reason=str(error))
            return
        own = {plan.durable for plan in plans}
        theirs: dict[str, tuple[str, ...]] = {}
        for info in listed:
            config = info["config"]
            if config.get("durable_name") and str(config.get("description", "")).startswith(first.owner):
                # A marker stands for the consumer that it was made for.
                theirs[str(info["name"]).removesuffix(marker_name(""))] = filters_of(config)
        for name, filters in theirs.items():
            if name in own:
                continue
            if not any(_overlap(filters, plan.filters) for plan in plans):
                _log.warning("rule.durable_left", rule=first.rule, stream=stream, consumer=name)
                continue
            consumer = RuleConsumer(api, replace(first, durable=name).consumer(filters), self._fence)
            position = await consumer.position()
            if position is not None:
                self._observed.append(_Former(place, consumer, position))
                if first.work_queue:
                    await self._delete(self._observed[-1])

    async def _delete(self, former: _Former) -> None:
        plan = former.consumer.plan
        try:
            await former.consumer.discard()
        except NotPermittedError as error:
            _log.warning("copying.consumer_left", rule=plan.rule, consumer=plan.durable_name, reason=str(error))
        else:
            _log.info("copying.consumer_renamed", rule=plan.rule, consumer=plan.durable_name, after=former.position)

    def _position_for(self, plan: EntryPlan) -> int | None:
        observed = [
            former.position
            for former in self._observed
            if former.place == _place(plan) and _overlap(former.consumer.plan.filters, plan.filters)
        ]
        return min(observed, default=None)


def _place(plan: EntryPlan) -> tuple[str, str]:
    return plan.source.connection, plan.source.name


def _overlap(some: tuple[str, ...], others: tuple[str, ...]) -> bool:
    # An empty selection stands for all subjects.
    return any(collide(one.encode(), two.encode()) for one in some or (">",) for two in others or (">",))
