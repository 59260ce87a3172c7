"""A condition on a message's header, by which the sidecar selects messages; no server has it."""

from __future__ import annotations

from dataclasses import dataclass, field

from nats_bridge.transforms.header_block import read


@dataclass(frozen=True, slots=True)
class HeaderCondition:
    """Holds for messages with a header of exactly this name whose last value is this one.

    Attributes:
        name: the header's name; case counts, as for servers.
        value: without the white space around it.
    """

    name: bytes
    value: bytes
    _line: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_line", b"\n%b:" % self.name)

    def holds(self, block: bytes) -> bool:
        """Whether it holds for a message with this header block."""
        return self._line in block and read(block, self.name) == self.value
