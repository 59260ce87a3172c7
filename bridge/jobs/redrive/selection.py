"""Selects dead letters. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from nats_bridge.bridge.jobs.redrive.letter import Letter
from nats_bridge.transforms.subject import matches

__all__ = ["Selection"]


@dataclass(frozen=True, slots=True)
class Selection:
    """Filters; what is empty selects all.

    Attributes:
        stream: the stream that held the message.
        consumer: who gave it up.
        subject: the message's subject, perhaps with wildcards.
        reason: a part of the reason; case does not matter.
        from_ns, to_ns: letters stored at or after the first, and before the second, nanoseconds since 1970.
        most: how many at most; 0 for all.
    """

    stream: str = ""
    consumer: str = ""
    subject: str = ""
    reason: str = ""
    from_ns: int = 0
    to_ns: int = 0
    most: int = 0

    def selects(self, letter: Letter) -> bool:
        """Whether a letter is meant, whatever their number."""
        return (
            self.stream in ("", letter.stream)
            and self.consumer in ("", letter.consumer)
            and (not self.subject or matches(letter.subject, self.subject.encode()))
            and self.reason.lower() in letter.reason.lower()
            and letter.time_ns >= self.from_ns
            and (not self.to_ns or letter.time_ns < self.to_ns)
        )
