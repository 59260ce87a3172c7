"""Publishes a message that a stream must refuse, to learn its last sequence.

`Nats-Expected-Last-Sequence` with an unreachable number makes the stream store nothing and answer `wrong last sequence:
N` (10071), after everything that this connection sent before. N counts messages that a cluster has agreed on, so it is
at least the sequence of any earlier copy. (2.9.10, 2.10.27 and 2.15.1; one server and three.)

A counter stream with replicas answers earlier, that the increment is missing (10169; 2.12.15, 2.14.9, 2.15.1). Messages
sent before are stored as soon as the cluster agrees, so its end is read until it stays the same. A message stored later
than that is sent again, but not stored twice because of its message id.

A server that finds a stream's file damaged drops the messages after the damage, and answers with the old number until
it stores the next message (2.15.1). So if the stream twice does not show the answered sequence, the answer is not its
end.
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
    """Return the stream's last sequence, after everything that was sent on this connection before.

    Args:
        connection: the connection of the target.
        stream: its name.
        subject: one that it stores.
        waits: called with the reason for waiting, as a sentence, each time that the subject has no responders.

    Raises:
        RuleRefusedError: another stream answers, or the stream refuses every message.
        ApiError: the stream no longer exists.
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
    """Return the last sequence that a stream shows twice in a row."""
    before = -1
    while True:
        last = int((await connection.api.stream_info(stream))["state"]["last_seq"])
        if last == before:
            return last
        before = last
        await LEADER_AWAY.pause()


async def _shown(connection: Connection, stream: str, last: int) -> tuple[int, bool]:
    """Wait until the stream shows the sequence that it has agreed on, which can take a moment in a cluster.

    Returns:
        The last sequence (-1 if unknown), and whether the stream has one replica, so it needs no agreement.
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
