"""Why a rule leaves a message out: because of its subject, or of a header, which servers cannot filter by."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from nats_transforms.header_block import read
from nats_transforms.subject import matches, text_of


@dataclass(frozen=True, slots=True)
class HeaderCondition:
    """Holds for messages with a header of exactly this name whose last value is this one.

    Attributes:
        name: the header's name, which is case-sensitive, as in servers.
        value: without the white space around it.
    """

    name: bytes
    value: bytes
    _line: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_line", b"\n%b:" % self.name)

    def holds(self, block: bytes) -> bool:
        """Return whether the condition is true for a message with this header block."""
        return self._line in block and read(block, self.name) == self.value


@dataclass(frozen=True, slots=True)
class Unselected:
    """Why a rule makes nothing of a message.

    Attributes:
        reason: in words, without anything from the message itself but its subject.
    """

    reason: str


def unmatched(subject: bytes, patterns: Sequence[bytes]) -> Unselected:
    """Return the result for a subject that none of the rule's patterns matches."""
    return Unselected(f"'{text_of(subject)}' does not match {' or '.join(map(text_of, patterns))}")


def left_out(
    subject: bytes, block: bytes, exclude: Sequence[bytes], where: HeaderCondition | None
) -> Unselected | None:
    """Return the result for a message that `exclude` or `where` leaves out; None for others.

    Args:
        subject: the message's.
        block: its header block.
        exclude: patterns of subjects.
        where: the condition, or None.
    """
    for pattern in exclude:
        if matches(subject, pattern):
            return Unselected(f"exclude: {text_of(pattern)}")
    if where is not None and not where.holds(block):
        return Unselected(f"where: its header {text_of(where.name)} is not '{text_of(where.value)}'")
    return None
