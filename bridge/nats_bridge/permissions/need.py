"""One permission that a user needs, with the reason, and the subjects that needs consist of."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Way: TypeAlias = Literal["publish", "subscribe"]

ANY_STREAM = "*"


@dataclass(frozen=True, slots=True)
class Need:
    """A permission that something needs.

    Attributes:
        connection: whose user needs it.
        way: to publish, or to subscribe.
        subject: the subject, which may have wildcards; for a subscription optionally a space and a queue group.
        why: its purpose, in a few words.
        without: the consequence of not having it; empty if it is required.
        rule: the rule that needs it, which `granting` adds; empty for the sidecar itself.
        computed: whether messages decide the exact subject, within this one.
    """

    connection: str
    way: Way
    subject: str
    why: str
    without: str = ""
    rule: str = ""
    computed: bool = False


def write(connection: str, subject: str, why: str, *, without: str = "", computed: bool = False) -> Need:
    """Return a need to publish."""
    return Need(connection, "publish", subject, why, without, computed=computed)


def listen(connection: str, subject: str, why: str, *, without: str = "") -> Need:
    """Return a need to subscribe."""
    return Need(connection, "subscribe", subject, why, without)


def api_subject(request: str, *tokens: str) -> str:
    """Return the subject of a request to the JetStream API, such as `api_subject("STREAM.INFO", "ORDERS")`."""
    return ".".join(("$JS.API", request, *tokens))


def flow_control(stream: str) -> str:
    """Return the subject on which flow control of deliveries is answered."""
    return f"$JS.FC.{stream}.>"


def stream_created(connection: str, stream: str) -> Need:
    """Receive the creation of a stream that a rule reads or waits for."""
    return listen(
        connection,
        f"$JS.EVENT.ADVISORY.STREAM.CREATED.{stream}",
        f"receives the creation of stream {stream}",
        without="that is seen seconds later, and not at all if the stream is deleted before",
    )


def stream_events(connection: str, *, without: str) -> list[Need]:
    """Receive changes of the account's streams."""
    return [
        listen(
            connection,
            f"$JS.EVENT.ADVISORY.STREAM.{what}.*",
            f"receives that a stream is {what.lower()}",
            without=without,
        )
        for what in ("CREATED", "UPDATED", "DELETED")
    ]
