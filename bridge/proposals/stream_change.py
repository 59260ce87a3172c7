"""What must become of a stream before a rule can run. It is told, never done."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bridge.jetstream_api import Json

__all__ = ["StreamChange"]


@dataclass(frozen=True, slots=True)
class StreamChange:
    """A change of a stream.

    Attributes:
        stream: its name.
        how: whether it has to be created, can be updated, or has to be deleted and created again.
        body: the configuration to send.
        notes: what is different then, a line each.
        wrong_messages: how many messages it holds that the server copied in another way than was meant.
    """

    stream: str
    how: Literal["create", "update", "recreate"]
    body: Json
    notes: tuple[str, ...] = ()
    wrong_messages: int = 0

    @property
    def file_name(self) -> str:
        """What a file with the body is called."""
        return f"{self.stream}.{'update' if self.how == 'update' else 'create'}.json"

    @property
    def summary(self) -> str:
        """The change in a sentence, without its beginning and its end."""
        how = {
            "create": "has to be created",
            "update": "has to be changed",
            "recreate": "has to be deleted and created again",
        }[self.how]
        return f"stream {self.stream} {how}: {'; '.join(self.notes)}"

    def steps(self, folder: Path) -> list[str]:
        """What to do, one line each: commands of the `nats` command line, and remarks that begin with `#`.

        Args:
            folder: where the file with the body is.
        """
        lines = [f"# stream {self.stream}: {note}" for note in self.notes]
        if self.how == "recreate":
            lines.append(
                f"# its {self.wrong_messages} messages are copies that it made otherwise than was meant; they go"
            )
            lines.append(f"nats stream rm {self.stream}")
        verb = "UPDATE" if self.how == "update" else "CREATE"
        lines.append(f"nats request '$JS.API.STREAM.{verb}.{self.stream}' < {folder / self.file_name}")
        if self.how == "update" and self.wrong_messages:
            # A purge would not do: a stream remembers when it last got a message, and copying begins there.
            lines += [
                f"# its {self.wrong_messages} messages were copied otherwise than was meant, and the rule goes on"
                " behind them; to have all copied anew:",
                f"#   nats stream rm {self.stream}",
                f"#   nats request '$JS.API.STREAM.CREATE.{self.stream}' < {folder / self.file_name}",
            ]
        return lines
