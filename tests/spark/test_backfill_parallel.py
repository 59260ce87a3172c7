"""Several tasks at the same time: each message once, in order per subject, and the live rule finds its place."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from nats_bridge.bridge.errors import RuleRefusedError
from nats_bridge.bridge.jobs.handoff.answer import Wish
from nats_bridge.bridge.jobs.handoff.rule_handoff import hand_over
from nats_bridge.bridge.kinds.copying.window import LEAST
from nats_bridge.pipeline.errors import OptionError, PipelineError
from tests.live.copies import Copies, record_of
from tests.live.cut_wire import cut_wire
from tests.live.raw_messages import RawPeer
from tests.live.sidecars import failure_of, running, settings_for
from tests.live.until import until
from tests.spark.backfills import Name, backfilled
from tests.spark.workers import kill_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECKED_COPIES = 2 * LEAST
"""Copies that a live rule compares to find its place."""

FIRST, MESSAGES, LIVE = 2000, CHECKED_COPIES + 5000, 20


async def filled(copies: Copies, first: int, last: int) -> None:
    """Numbered messages on some subjects, the payloads never the beginning of another one's."""
    for start in range(first, last + 1, 2000):
        await asyncio.gather(
            *(
                copies.peer.store(f"{copies.name}.{number % 7}".encode(), b"number %d." % number)
                for number in range(start, min(start + 2000, last + 1))
            )
        )


async def test_shares_are_copied_once_and_the_live_rule_continues(
    spark: SparkSession, url: str, peer: RawPeer, unique_name: Name
) -> None:
    here = await Copies.make(peer, unique_name("parallel"), target={"duplicate_window": 100_000_000})
    await filled(here, 1, MESSAGES)
    async with cut_wire(url) as wire:
        connections = {"default": {"servers": [url]}, "west": {"servers": [wire.url]}}
        settings = settings_for(url, here.rule(to="west"), connections=connections)
        # What a job leaves that did not come to its end: copies out of order, up to its last one.
        job = asyncio.create_task(backfilled(spark, settings, parallel=2, in_order=1, last=FIRST))
        wire.fall_silent_after(b"number 400.")
        await here.holds(1)
        await until(lambda: wire.is_silent)
        assert await kill_workers(wire)
        wire.cut()
        wire.speak_again()
        await job
        assert sorted(await here.source_sequences()) == list(range(1, FIRST + 1))
    settings = settings_for(url, here.rule())
    (summary,) = await backfilled(spark, settings, parallel=2, in_order=CHECKED_COPIES)
    assert (summary.copied, summary.next_sequence) == (MESSAGES - FIRST, MESSAGES + 1)
    async with running(settings):
        await filled(here, MESSAGES + 1, MESSAGES + LIVE)
        await here.holds(MESSAGES + LIVE)
    stored = await here.stored()
    sequences = [record_of(message).sequence for message in stored]
    assert sorted(sequences) == list(range(1, MESSAGES + LIVE + 1))
    end = CHECKED_COPIES + LIVE
    assert sequences[-end:] == list(range(MESSAGES - CHECKED_COPIES + 1, MESSAGES + LIVE + 1))
    by_subject: dict[bytes, list[int]] = defaultdict(list)
    for message in stored:
        by_subject[message.subject].append(record_of(message).sequence)
    assert len(by_subject) == 7
    assert all(found == sorted(found) for found in by_subject.values())


async def test_targets_that_forget_take_one_writer(
    spark: SparkSession, url: str, peer: RawPeer, unique_name: Name
) -> None:
    here = await Copies.make(peer, unique_name("parallel"), target={"max_msgs_per_subject": 1})
    with pytest.raises(OptionError, match="let one task write"):
        await backfilled(spark, settings_for(url, here.rule()), parallel=2)


async def test_strict_order_takes_one_writer(spark: SparkSession, url: str, peer: RawPeer, unique_name: Name) -> None:
    here = await Copies.make(peer, unique_name("parallel"))
    with pytest.raises(OptionError, match="strict_order, which only one task can keep"):
        await backfilled(spark, settings_for(url, here.rule(strict_order=True)), parallel=2)


@pytest.mark.parametrize("version", ["2.9.10"])
async def test_until_it_has_ended_nothing_else_continues(
    spark: SparkSession, url: str, peer: RawPeer, unique_name: Name
) -> None:
    here = await Copies.make(peer, unique_name("unfinished"), target={"max_msg_size": 500})
    for number in range(1, 41):
        await peer.store(f"{here.name}.{number % 7}".encode(), b"x" * (1000 if number == 20 else number))
    settings = settings_for(url, here.rule())
    with pytest.raises(PipelineError, match=rf"message 20 of stream '{here.name}'"):
        await backfilled(spark, settings, parallel=2, in_order=5)

    said = rf"has begun to copy 1 to 40 of '{here.name}' into '{here.target}' and has not come to its end"
    refused = await failure_of(settings)
    assert isinstance(refused, RuleRefusedError)
    assert re.search(said, str(refused))
    with pytest.raises(RuleRefusedError, match=said):
        await backfilled(spark, settings)
    for less in ({"first": 2}, {"last": 39}):
        with pytest.raises(OptionError, match="would leave some of these out"):
            await backfilled(spark, settings, parallel=2, **less)

    config = {"name": here.target, "subjects": [f"{here.target}.>"], "max_msg_size": -1}
    assert not (await peer.api(f"STREAM.UPDATE.{here.target}", config)).get("error")
    (summary,) = await backfilled(spark, settings, parallel=2, in_order=5)
    assert summary.next_sequence == 41
    assert sorted(await here.source_sequences()) == list(range(1, 41))
    left = (await peer.api(f"CONSUMER.NAMES.{here.name}"))["consumers"] or []
    assert not [name for name in left if "unfinished" in name]
    async with running(settings):
        await peer.store(f"{here.name}.live".encode(), b"live")
        await here.holds(41)
    assert sorted(await here.source_sequences()) == list(range(1, 42))


@pytest.mark.parametrize("version", ["2.15.1"])
async def test_a_target_that_was_recreated_has_nothing_unfinished(
    spark: SparkSession, url: str, peer: RawPeer, unique_name: Name
) -> None:
    here = await Copies.make(peer, unique_name("unfinished"), target={"max_msg_size": 500})
    await peer.store(f"{here.name}.1".encode(), b"x" * 1000)
    settings = settings_for(url, here.rule())
    with pytest.raises(PipelineError, match="message 1 of stream"):
        await backfilled(spark, settings, parallel=2, in_order=1)
    assert isinstance(await failure_of(settings), RuleRefusedError)
    handoff = await hand_over(settings, "rule", Wish())
    assert not handoff.ok
    assert "backfill --parallel" in handoff.problems[0]
    await peer.api(f"STREAM.DELETE.{here.target}")
    await peer.create_stream(name=here.target, subjects=[f"{here.target}.>"])
    async with running(settings):
        await here.holds(1)
    assert await here.source_sequences() == [1]
