"""The permissions of a redrive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nats_bridge.bridge.jobs.redrive.journal import JOURNAL
from nats_bridge.bridge.permissions.need import ANY_STREAM, Need, api_subject, listen, write
from nats_bridge.bridge.permissions.reading import replays

__all__ = ["redrive_needs"]


def redrive_needs(
    stream: str,
    letters: str,
    target: str,
    inboxes: Mapping[str, str],
    *,
    delete: bool,
    source: str = "",
    subject: str = "",
) -> Iterator[Need]:
    """The needs of `nats-bridge redrive STREAM`.

    Args:
        stream: the dead letters' stream.
        letters: the connection that holds it.
        target: the connection of the streams that take the messages.
        inboxes: for each of the two, under what it gets its answers.
        delete: whether letters are deleted.
        source: the stream that held the messages; empty for any.
        subject: the messages' subject, perhaps with wildcards; empty for any.
    """
    held = source or ANY_STREAM
    yield write(letters, api_subject("STREAM.INFO", stream), "state of the dead letters' stream")
    yield from replays(letters, stream, rule="")
    yield write(letters, api_subject("STREAM.MSG.GET", stream), "reads the dead letters")
    if delete:
        yield write(letters, api_subject("STREAM.MSG.DELETE", stream), "deletes dead letters that were put back")
    for request in ("STREAM.INFO", "STREAM.CREATE", "STREAM.MSG.GET"):
        yield write(letters, api_subject(request, JOURNAL), "keeps what was put back")
    yield from replays(letters, JOURNAL, rule="")
    yield write(letters, f"{JOURNAL}.{stream}.*", "keeps what was put back")
    yield write(target, api_subject("STREAM.LIST"), "finds the streams that take the messages")
    yield write(target, api_subject("STREAM.INFO", held), "how far they are")
    yield write(target, api_subject("STREAM.MSG.GET", held), "reads messages that their dead letters do not hold")
    yield from replays(target, held, rule="")
    yield write(target, subject or ">", "puts the messages back" + ("" if subject else "; --subject allows less"))
    for connection, prefix in inboxes.items():
        yield listen(connection, f"{prefix}.>", "answers and deliveries")
