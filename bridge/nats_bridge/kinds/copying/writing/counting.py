"""Copies into a counter stream (`allow_msg_counter`, 2.12): each copy adds the growth of its counter in the source.

Theory of operation. A message of a counter stream contains the counter's total. A server that copies it adds the
difference to the total that it last added from that subject of that source. So nothing is added twice, and messages
that vanished from the source are made up for. The server keeps those totals in `Nats-Counter-Sources`, which clients
cannot set. So each copy of the bridge has them in `Nats-Bridge-Counter-Sources`, in the same form. Before copies are
written, the newest copies on their subjects are read: their totals are what was added, regardless of earlier answers.
Later ones need not be read again as long as the target has removed nothing.

Totals that a target's limits have removed are unknown. Then a message adds its own increment.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nats_bridge.client.jetstream_api import JetStreamApi, Json
from nats_bridge.client.operations import parts_of, publication
from nats_bridge.consuming.replay import Replay
from nats_bridge.consuming.stream_range import messages
from nats_bridge.errors import RuleRefusedError
from nats_bridge.kinds.copying.counters import CopyCounters
from nats_bridge.kinds.copying.encoder import Operation
from nats_bridge.kinds.copying.target import INCREMENT, Target, renamed
from nats_transforms import header_block

if TYPE_CHECKING:
    from nats_bridge.kinds.copying.entry import EntryPlan

_THEIRS, _OURS = b"Nats-Counter-Sources", b"Nats-Bridge-Counter-Sources"
_VALUE = re.compile(rb"(?<=\nNats-Incr:)[^\r]*")
_AT_ONCE = 64  # pending requests
_LONGEST = 4000  # digits of a total that are read

Totals = dict[str, int]
"""The total last added for each subject of the source."""


@dataclass(slots=True)
class _Counter:
    """A counter of the target, with one source's share.

    Attributes:
        totals: by subject of the source.
        whole: whether a missing subject was certainly never added.
    """

    totals: Totals = field(default_factory=dict)
    whole: bool = True


class Counting:
    """Makes additions of copies, for one entry.

    Args:
        api: the API of the connection that holds the target.
    """

    def __init__(self, plan: EntryPlan, api: JetStreamApi, counters: CopyCounters) -> None:
        self._plan = plan
        self._api = api
        self._counters = counters
        self._source = plan.sourcing.source.decode("utf-8", "replace")
        self._known: dict[bytes, Totals] = {}
        self._shown: set[bytes] = set()  # those of `_known` that were read from the target
        self._removed_since_created = 0
        self._made: dict[bytes, _Counter] = {}
        self._forgets = False

    def renew(self, target: Target, info: Json, *, resumes: bool) -> None:
        """Drop, for a new round, the totals that may be wrong by now.

        Args:
            info: the target's `STREAM.INFO`.
            resumes: whether the target is the stream of the round before, and has lost nothing that it had confirmed.
        """
        if not resumes:
            self._known.clear()
        self._shown.clear()
        self._removed_since_created = _removed_since_created(info)
        self._forgets = target.forgets and self._removed_since_created > 0

    async def additions(
        self, operations: list[Operation], subjects: Mapping[bytes, bytes], limit: int
    ) -> list[Operation]:
        """Return the operations of additions for copies.

        Everything must be settled before, and before `keep` or `forget`.

        Args:
            operations: the copies as they would be stored elsewhere, in order.
            subjects: the subjects of the messages in the source, by the names of the operations.
            limit: the maximum bytes of a message in the target.

        Raises:
            ApiError: a server refuses, or does not answer.
            RuleRefusedError: a message cannot be written.
        """
        taken_apart = [(name, *parts_of(data)) for name, data in operations]
        wanted = list(dict.fromkeys(subject for _, subject, _, _ in taken_apart))
        removed = _removed_since_created(await self._api.stream_info(self._plan.stream))
        if removed != self._removed_since_created:
            self._removed_since_created = removed
            self._shown.clear()
        self._made = {subject: self._counter_of(self._known[subject]) for subject in wanted if subject in self._shown}
        hidden = [subject for subject in wanted if subject not in self._shown]
        for start in range(0, len(hidden), _AT_ONCE):
            some = hidden[start : start + _AT_ONCE]
            self._made |= zip(some, await asyncio.gather(*map(self._counter, some)), strict=True)
        return [
            (name, self._addition(name, subject, block, payload, subjects[name], limit))
            for name, subject, block, payload in taken_apart
        ]

    def keep(self) -> None:
        """Commit the last additions: they are stored."""
        self._known |= {subject: counter.totals for subject, counter in self._made.items()}
        self._shown |= self._made.keys()

    def forget(self) -> None:
        """Forget the last additions, which may not be stored: read the counters from the target again."""
        for subject in self._made:
            self._known.pop(subject, None)
            self._shown.discard(subject)

    def _addition(self, name: bytes, subject: bytes, block: bytes, payload: bytes, counted: bytes, limit: int) -> bytes:
        total, own = _total(payload), _number(header_block.read(block, INCREMENT[:-1]))
        for header in (_THEIRS, _OURS):
            block = header_block.remove(block, header)
        if total is None or own is None:
            # This is not a counter's message. The stream refuses it, as it would refuse it from a server, which then
            # stalls.
            return publication(subject, b"", renamed(block, (INCREMENT,)), payload)
        counter, key = self._made[subject], counted.decode("utf-8", "replace")
        if key in counter.totals or counter.whole:
            increment = total - counter.totals.get(key, 0)
        else:
            increment = own
            self._counters.assumed_increments += total != own
        counter.totals[key] = total
        reported = {self._source: {each: str(value) for each, value in counter.totals.items()}}
        line = json.dumps(reported, separators=(",", ":"), sort_keys=True).encode()
        block = header_block.append(_VALUE.sub(b" %d" % increment, block, count=1), [(_OURS, line)])
        if len(block) > limit:
            raise RuleRefusedError(
                f"rule '{self._plan.rule}': message {name.decode()} of stream '{self._plan.source.name}' has"
                f" {len(block)} bytes with its headers, more than the {limit} that the target takes"
            )
        return publication(subject, b"", block, b"")

    async def _counter(self, subject: bytes) -> _Counter:
        """Read the source's share of the target's counter of this subject."""
        stream = self._plan.stream
        try:
            text = subject.decode()
        except UnicodeDecodeError:
            raise RuleRefusedError(
                f"rule '{self._plan.rule}': the counter {subject!r} is not UTF-8: stream '{stream}' cannot be asked"
                " for it; exclude it"
            ) from None
        newest = await self._api.last_message(stream, text)
        if newest is None:
            return _Counter()
        totals = self._totals_in(newest.header_block)
        if totals is None:
            totals = self._known.get(subject)
        if totals is None:
            totals = await self._earlier(text, newest.sequence)
        if totals is None:
            totals = _totals(newest.header_block, _THEIRS, self._source)
        return self._counter_of(totals or {})

    def _counter_of(self, totals: Totals) -> _Counter:
        return _Counter(dict(totals), not self._forgets)

    async def _earlier(self, subject: str, last: int) -> Totals | None:
        """Return the totals in the newest copy of the entry, when other clients have written after it."""
        found = None
        replay = Replay(self._api, self._plan.stream, (subject,), headers_only=True)
        async for _, _, block, _ in messages(replay, 1, last):
            if _OURS in block:
                found = self._totals_in(block) or found
        return found

    def _totals_in(self, block: bytes) -> Totals | None:
        if self._plan.sourcing.own_record(block) is None:
            return None
        return _totals(block, _OURS, self._source) or _totals(block, _THEIRS, self._source)


def turns(operations: list[Operation], id_line: bytes) -> Iterator[list[Operation]]:
    """Copies in as few pieces as may be made into additions together, in order.

    The target may have received a publisher's message id from another client. Then it adds nothing, and the next
    message of that counter must make up for it. So such a message is its counter's last in a piece.

    Args:
        id_line: the header line of the entry's ids, as `copy_id.line_template` returns it.
    """
    identified = id_line.partition(b"%b")[0]
    piece: list[Operation] = []
    closed: set[bytes] = set()
    for operation in operations:
        subject = operation[1].split(b" ", 2)[1]
        if subject in closed:
            yield piece
            piece, closed = [], set()
        piece.append(operation)
        if identified not in operation[1]:
            closed.add(subject)
    if piece:
        yield piece


def _removed_since_created(info: Json) -> int:
    return int(info["state"]["last_seq"]) - int(info["state"]["messages"])


def _total(payload: bytes) -> int | None:
    try:
        value = json.loads(payload)["val"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return _number(value.encode()) if isinstance(value, str) else None


def _totals(block: bytes, header: bytes, source: str) -> Totals | None:
    value = header_block.read(block, header)
    if value is None:
        return None
    try:
        reported = json.loads(value)[source].items()
        return {str(subject): int(total) for subject, total in reported}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _number(text: bytes | None) -> int | None:
    # Servers read whole numbers of any size.
    return int(text) if text and len(text) <= _LONGEST and re.fullmatch(rb"[+-]?[0-9]+", text) else None
