"""Publishes what a stream must refuse, to learn what was stored before it.

`Nats-Expected-Last-Sequence` with a number that no stream reaches makes the stream answer `wrong last sequence: N`
(10071) behind everything that this connection sent before, and store nothing. N counts what a cluster has agreed on,
so it is no smaller than what any of our earlier copies got. (2.9.10, 2.10.27 and 2.15.1; one server and three.)

A counter stream with replicas does not look so far: it says that the increment is missing (10169; 2.12.15, 2.14.9,
2.15.1). Behind that, what was sent before is stored as soon as the cluster agrees, so its end is read until it
stays. What comes later still is sent again then, and not stored again because of its message id.

A server that finds a stream's file damaged drops what is behind the damage, and answers with the number of before until
it stores the next message (2.15.1). So an answer that the stream does not show, twice, is not its end.
"""

from __future__ import annotations

from collections.abc import Callable

from nats_bridge.client import nats_py
from nats_bridge.client.connection import Connection
from nats_bridge.client.pub_ack import INCREMENT_MISSING, PubAck
from nats_bridge.client.waiting import ANSWER_OF_LEADER, LEADER_AWAY
from nats_bridge.errors import ApiError, RuleRefusedError

_BEYOND = {"Nats-Expected-Last-Sequence": str(2**63 - 1)}
_MOST_CHECKS = 50


async def last_sequence_behind(
    connection: Connection, stream: str, subject: bytes, waits: Callable[[str], None] = lambda _: None
) -> int:
    """The stream's last sequence, behind everything that was sent on this connection before.

    Args:
        connection: the connection of the target.
        stream: its name.
        subject: one that it stores.
        waits: called with what keeps it waiting, in words, each time that the subject has no responders.

    Raises:
        RuleRefusedError: another stream answers, or the stream refuses every message.
        ApiError: it does not exist any more.
    """
    unseen = -1  # an answer that the stream did not show
    while True:
        await connection.connected()
        try:
            # Written past nats-py's buffer are the copies: they are before this one already.
            answer = await connection.client.request(subject.decode(), b"", timeout=ANSWER_OF_LEADER, headers=_BEYOND)
        except nats_py.errors.NoRespondersError:
            # No responders: between two leaders, or permanently.
            await connection.api.stream_info(stream)
            waits(
                f"stream '{stream}' to answer on its subject '{subject.decode()}', which has no responders"
                " (has it a leader, or does a mapping of the account lead its subjects away?)"
            )
        except (nats_py.errors.Error, OSError):
            pass
        else:
            pub_ack = PubAck.parse(b"", answer.data)
            if pub_ack.stream and pub_ack.stream != stream:
                raise RuleRefusedError(
                    f"subject '{subject.decode()}' is stored by stream '{pub_ack.stream}', not by '{stream}'"
                )
            if pub_ack.last_sequence is not None:
                shown, unreplicated = await _shown(connection, stream, pub_ack.last_sequence)
                if shown >= pub_ack.last_sequence or (unreplicated and shown >= 0 and pub_ack.last_sequence == unseen):
                    return shown
                unseen = pub_ack.last_sequence
                waits(f"stream '{stream}' to hold the message {unseen} that it has named as its last, and not {shown}")
                continue
            if pub_ack.err_code == INCREMENT_MISSING:
                return await _standing(connection, stream)
            if pub_ack.kind == "refused":
                raise RuleRefusedError(
                    f"stream '{stream}' takes no messages: {pub_ack.description} ({pub_ack.err_code})"
                )
        await LEADER_AWAY.pause()


async def _standing(connection: Connection, stream: str) -> int:
    """The last sequence that a stream shows twice in a row."""
    before = -1
    while True:
        last = int((await connection.api.stream_info(stream))["state"]["last_seq"])
        if last == before:
            return last
        before = last
        await LEADER_AWAY.pause()


async def _shown(connection: Connection, stream: str, last: int) -> tuple[int, bool]:
    """Wait until the stream shows what it has agreed on: in a cluster, that can be a moment later.

    Returns:
        Its last sequence, -1 if it does not say it; and whether it has one replica, which has nothing to agree on.
    """
    shown, unreplicated = -1, False
    for _ in range(_MOST_CHECKS):
        try:
            info = await connection.api.stream_info(stream)
        except ApiError as error:
            if not error.retriable:
                raise
            shown = -1
        else:
            shown, unreplicated = int(info["state"]["last_seq"]), int(info["config"].get("num_replicas", 1)) == 1
        if shown >= last or unreplicated:
            break
        await LEADER_AWAY.pause()
    return shown, unreplicated
