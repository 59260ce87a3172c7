"""Messages as texts, for facts."""

from collections.abc import Iterable

from nats_conformance.catalogue.case import Message
from nats_conformance.observation import Stored
from nats_conformance.raw_client import Collected

_IDENTITY_FIELDS = 6


def messages_of(found: Collected | Iterable[Stored | Message]) -> list[Message]:
    """Return the messages of a subscription, or of a stream."""
    if isinstance(found, Collected):
        return list(found.messages)
    return [each.message if isinstance(each, Stored) else each for each in found]


def payloads_of(found: Collected | Iterable[Stored | Message]) -> list[str]:
    """Return the payloads, in order."""
    return [each.payload.decode() for each in messages_of(found)]


def subjects_of(found: Collected | Iterable[Stored | Message]) -> list[str]:
    """Return the subjects, in order."""
    return [each.subject.decode() for each in messages_of(found)]


def lines_of(message: Message) -> list[str]:
    """Return the header lines after the status line."""
    return message.header_block.decode().split("\r\n")[1:-2]


def headers_named(message: Message) -> list[str]:
    """Return the names of the header lines, in order."""
    return [line.partition(":")[0] for line in lines_of(message)]


def header_of(message: Message, name: str) -> str | None:
    """Return the value of the last line of this name, which is the server's if the publisher set one as well."""
    values = [line.partition(":")[2].strip(" ") for line in lines_of(message) if line.startswith(f"{name}:")]
    return values[-1] if values else None


def numbers_of(message: Message) -> dict[str, str | None]:
    """Return the sequence that a republished message names, and the last one before it."""
    return {
        "sequence": header_of(message, "Nats-Sequence"),
        "last_sequence": header_of(message, "Nats-Last-Sequence"),
    }


def record_of(message: Message) -> str | None:
    """Return `Nats-Stream-Source`, with `<identity>` in place of the source's random identity."""
    record = header_of(message, "Nats-Stream-Source")
    fields = record.split(" ") if record else []
    if len(fields) == _IDENTITY_FIELDS:
        fields[-1] = "<identity>"
    return " ".join(fields) if fields else None
