"""Copies stored to recover from an interruption: a start that sees only some of them counts nothing as missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice, zip_longest

import pytest

from nats_bridge.kinds.copying.position import entry_streams
from nats_bridge.kinds.copying.writing.in_flight import LEAST
from tests.live.copies import Copies
from tests.live.copying.forgotten_ids import FORGETFUL, forgotten
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import SharedServers
from tests.live.sidecars import running, settings_for

LATE = 10
"""Messages that were not stored when others in flight with them were."""

REPAIRED = [*range(1, LATE), *range(LATE + 1, LEAST + 1), LATE]
CHECKED_COPIES = 2 * LEAST
"""Copies that a start compares first."""


async def holds_exactly(copies: Copies, order: Sequence[int]) -> None:
    """Assert that the target holds copies of these sequences, in this order; report only the first differences."""
    pairs = zip_longest(await copies.source_sequences(), order)
    assert list(islice((pair for pair in pairs if pair[0] != pair[1]), 3)) == []


async def arranged(copies: Copies, url: str, order: Sequence[int]) -> None:
    """Fill source and target, the target with the sidecar's own copies in this order."""
    messages = max(order)
    for number in range(1, messages):
        copies.peer.publish(f"{copies.name}.{number % 7}".encode(), b"%d" % number)
    await copies.peer.store(f"{copies.name}.{messages % 7}".encode(), b"%d" % messages)
    async with running(settings_for(url, copies.rule())):
        await copies.holds(messages)
    stored = await copies.stored()
    await forgotten(copies.peer, copies.target)
    await copies.peer.api(f"STREAM.PURGE.{copies.target}")
    for sequence in order:
        message = stored[sequence - 1]
        copies.peer.publish(message.subject, message.payload, message.header_block)
    await copies.holds(len(order))
    await holds_exactly(copies, order)


# The newest ones that are compared begin with the late one.
AT_THE_CUT = [*REPAIRED, *range(LEAST + 1, LEAST + CHECKED_COPIES)], None
# They begin among those that were stored in front of it, because these are old.
OLDER_ONES = REPAIRED, 0


@pytest.mark.parametrize(
    ("order", "together_ns", "version"),
    [
        pytest.param(*OLDER_ONES, "2.15.3", id="older ones, 2.15.3"),
        # The next test shows it as well.
        pytest.param(*AT_THE_CUT, "2.9.10", id="at the cut, 2.9.10", marks=pytest.mark.exhaustive),
        pytest.param(*AT_THE_CUT, "2.15.3", id="at the cut, 2.15.3", marks=pytest.mark.exhaustive),
        pytest.param(*OLDER_ONES, "2.9.10", id="older ones, 2.9.10", marks=pytest.mark.exhaustive),
    ],
)
async def test_what_was_repaired_is_not_copied_again(
    order: list[int],
    together_ns: int | None,
    version: str,
    servers: SharedServers,
    raw_peer: OpenPeer,
    unique_name: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = await servers.url(version)
    peer = await raw_peer(url)
    copies = await Copies.make(peer, unique_name("repaired"), target=FORGETFUL)
    await arranged(copies, url, order)
    if together_ns is not None:
        monkeypatch.setattr(entry_streams, "TOGETHER_NS", together_ns)
    async with running(settings_for(url, copies.rule())):
        await peer.store(f"{copies.name}.live".encode(), b"live")
        await copies.holds(len(order) + 1)
    await holds_exactly(copies, [*order, len(order) + 1])


async def test_what_is_missing_among_repaired_ones_is_copied(
    servers: SharedServers, raw_peer: OpenPeer, unique_name: Callable[[str], str]
) -> None:
    url = await servers.url("2.9.10")
    peer = await raw_peer(url)
    copies = await Copies.make(peer, unique_name("repaired"), target=FORGETFUL)
    end = LEAST + CHECKED_COPIES
    order = [*REPAIRED, *range(LEAST + 1, end - 3), end - 2, end - 1, end]
    await arranged(copies, url, order)
    async with running(settings_for(url, copies.rule())):
        await copies.holds(end)
        await peer.store(f"{copies.name}.live".encode(), b"live")
        await copies.holds(end + 1)
    await holds_exactly(copies, [*order, end - 3, end + 1])
