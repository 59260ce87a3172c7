"""The change of a stream that a rule needs. The change is printed, never made."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nats_bridge.bridge.client.jetstream_api import Json


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
        """The name of the file with the body."""
        # Old servers take names with slashes.
        plain = re.sub(r"[^\w-]", "_", self.stream)
        return f"{plain}.{'update' if self.how == 'update' else 'create'}.json"

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
        """The steps, one line each: commands of `nats`, and remarks that begin with `#`.

        Args:
            folder: where the file with the body is.
        """
        lines = [f"# stream {self.stream}: {note}" for note in self.notes]
        if self.how == "recreate":
            lines.append(
                f"# its {self.wrong_messages} messages are copies that it made otherwise than was meant; they go"
            )
            lines.append(self._removal)
        lines.append(self._request("UPDATE" if self.how == "update" else "CREATE", folder))
        if self.how == "update" and self.wrong_messages:
            # A purge would not do: a stream remembers when it last got a message, and copying begins there.
            lines += [
                f"# its {self.wrong_messages} messages were copied otherwise than was meant, and the rule resumes"
                " after them; to have all copied again:",
                f"#   {self._removal}",
                f"#   {self._request('CREATE', folder)}",
            ]
        return lines

    @property
    def _removal(self) -> str:
        return f"nats stream rm {shlex.quote(self.stream)}"

    def _request(self, verb: str, folder: Path) -> str:
        subject = shlex.quote(f"$JS.API.STREAM.{verb}.{self.stream}")
        return f"nats request {subject} < {shlex.quote(str(folder / self.file_name))}"
