"""Decides where a durable republish rule resumes.

The problem: the position of a durable consumer has no time, so it does not show whether the stream has given its
sequences to other messages since.

The idea: compare it with a position that has a time. The lease has one, and so has the consumer after a clean stop.
A consumer also names the message after which a process began to read, which is its position until the next message.
After a kill, the position in the lease is a little behind the consumer's. If the stream no longer holds the message of
that time, the rule resumes after the last one that it still holds.

```text
position of the consumer   500
kept with its time         498, 10:00:00
the stream holds           another message as 498, and 480 as the last one until 10:00:00: resume after 480
                           498 as it was: resume after 500
```

If the server has restarted, the consumer can be ahead of the rule (`RuleConsumer.may_be_ahead`). Its position proves
nothing then to a rule that promises at_least_once. Such a rule resumes after the kept message, here 498, although the
stream has lost nothing.

After a clean stop without a lease, a rule that promises at_most_once also resumes after the kept message. The
consumer counts sent messages as done, and those after it did not arrive.

A rule without its consumer begins at its `start`. Only with `new` it resumes after the kept message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from nats_bridge.client.settled_stream import settled_stream
from nats_bridge.client.stream_identity import MessageStamp
from nats_bridge.consuming.lost_end import intact_until
from nats_bridge.consuming.replay import Replay
from nats_bridge.consuming.rule_consumer import RuleConsumer
from nats_bridge.rules.leadership.term import Term

if TYPE_CHECKING:
    from nats_bridge.kinds.republish.model import RepublishRule

_log = structlog.get_logger("bridge.rule")


def begins_at_end(rule: RepublishRule) -> bool:
    """Return whether a rule begins at the end of its stream if it has no position, and keeps one."""
    return rule.durable and rule.start.policy == "new"


async def resume_position(consumer: RuleConsumer, replay: Replay, rule: RepublishRule, term: Term) -> int | None:
    """Return the stream sequence after which a rule resumes; None if it has no position.

    If the rule resumes before the consumer's position, the consumer is moved back.

    Args:
        consumer: the rule's.
        replay: how the stream is read.
        term: the term in which the rule runs, whose lease can have a position.
    """
    position, kept = await consumer.position(), _kept(consumer, rule, term)
    about = {"stream": rule.stream, "consumer": consumer.plan.durable_name}
    if position is None and (kept is None or not begins_at_end(rule)):
        return None
    repeats = rule.delivery == "at_least_once"
    begun, is_doubtful = consumer.begun, consumer.is_beyond or (repeats and consumer.may_be_ahead)
    if begun is not None and begun.sequence != position and not (repeats and is_doubtful):
        begun = None  # the rule has read on since
    after = await lost_after(replay, [each for each in (kept, begun) if each is not None])
    # After a stop of at_most_once, later messages were sent, but did not arrive.
    trusts_kept = position is None or (is_doubtful if repeats else kept == consumer.done)
    if after is None and kept is not None and trusts_kept:
        after = kept.sequence
    if after is None and is_doubtful:
        _log.warning("rule.position_unproven", rule=rule.name, **about, after=position)
    if after is None or (position is not None and after >= position):
        return position
    if position is not None:
        await consumer.move_back(after)
    _log.warning("rule.position_restored", rule=rule.name, **about, position=position, after=after)
    return after


def _kept(consumer: RuleConsumer, rule: RepublishRule, term: Term) -> MessageStamp | None:
    """Return the position that has a time: of the lease, or of the last clean stop without one."""
    kept = term.kept
    if kept is None:
        return consumer.done
    return MessageStamp(kept.sequence, kept.time_ns) if kept.stream == rule.stream else None


async def lost_after(replay: Replay, known: list[MessageStamp]) -> int | None:
    """Return the sequence after which the stream has lost one of the known messages; None if it lost none."""
    if not known:
        return None
    last = int((await settled_stream(replay.api, replay.stream, max(known).sequence))["state"]["last_seq"])
    found = [await intact_until(replay, each.sequence, each.time_ns, last) for each in known]
    return min((after for after in found if after is not None), default=None)
