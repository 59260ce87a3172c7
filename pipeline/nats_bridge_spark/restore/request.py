"""The request for a restore, and its result."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from nats_bridge.settings import Connection
from nats_bridge_spark.errors import OptionError
from nats_transforms.sourcing import Sourcing

Consumers = Literal["resume", "as-saved", "none"]
"""How durable consumers are restored: after their acknowledged messages, as they were configured, or not at all."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The transforms that change subjects during a restore.

    Attributes:
        subjects: the subjects of the restored stream; none for those of the captured one.
    """

    sourcing: Sourcing
    subjects: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """The request, as the command line gives it.

    Attributes:
        directory: a capture, or a directory of captures; a path, or an address that Spark supports.
        streams: the captured streams to restore; none for all.
        name: the name of the restored stream; None for the captured one's.
        end: the last sequence, or a time (RFC 3339) at or after which no message was stored; None for all.
        selection: the transforms that change subjects; None without any.
        hold: whether to leave the streams closed, for a later run that continues.
        patience: seconds for which the server may be down, or refuse to store.

    Raises:
        OptionError: two of them exclude each other.
    """

    connection: Connection = field(repr=False)
    directory: str
    streams: tuple[str, ...] = ()
    name: str | None = None
    end: int | str | None = None
    selection: Selection | None = None
    without: tuple[str, ...] = ()
    consumers: Consumers = "resume"
    hold: bool = False
    patience: float = 60.0

    def __post_init__(self) -> None:
        if self.hold and self.consumers == "as-saved":
            raise OptionError("--hold: makes no consumers; leave out --consumers")


@dataclass(slots=True)
class Summary:
    """The result for one stream.

    Attributes:
        changed: messages whose headers could not be given back as they were.
        orphans: chunks of an object store that no longer belonged to an object; they were removed again.
        state: `restored`, `held` (not open yet), or `there` (by an earlier run).
    """

    captured: str
    stream: str
    messages: int = 0
    first: int = 1
    last: int = 0
    unselected: int = 0
    changed: int = 0
    orphans: int = 0
    consumers: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    state: Literal["restored", "held", "there"] = "restored"
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as plain data."""
        return {**asdict(self), "seconds": round(self.seconds, 3)}

    def lines(self) -> list[str]:
        """Return the summary as lines of text."""
        name = self.captured if self.captured == self.stream else f"{self.captured} → {self.stream}"
        if self.state == "there":
            return [f"{name}: restored by an earlier run, up to {self.last}"]
        what = f"{self.messages:,} message{'' if self.messages == 1 else 's'}"
        what += f" ({self.first} to {self.last})" if self.messages else ""
        more = [
            (self.unselected, "not selected"),
            (self.changed, "with fewer or renamed headers"),
            (self.orphans, "chunks of replaced or deleted objects removed again"),
        ]
        rest = "".join(f", {count:,} {said}" for count, said in more if count)
        made = f"; consumers: {', '.join(self.consumers)}" if self.consumers else ""
        held = "; held: run it again without --hold to open it" if self.state == "held" else ""
        lines = [f"{name}: {what} restored{rest}{made}{held}; {self.seconds:.1f} s"]
        if self.left_out:
            lines.append(f"  not restored: {', '.join(self.left_out)}")
        return lines
