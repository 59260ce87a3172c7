"""The change of a stream that a rule needs. The change is printed, never made."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
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
    def summary(self) -> str:
        """The change in a sentence, without its beginning and its end."""
        how = {
            "create": "has to be created",
            "update": "has to be changed",
            "recreate": "has to be deleted and created again",
        }[self.how]
        return f"stream {self.stream} {how}: {'; '.join(self.notes)}"

    @property
    def steps(self) -> list[str]:
        """The steps, one line each: commands of `nats`, and remarks that begin with `#`."""
        lines = [f"# stream {self.stream}: {note}" for note in self.notes]
        if self.wrong_messages:
            lines.append(f"# its {self.wrong_messages} messages were copied otherwise than was meant")
        if self.how == "recreate":
            lines.append(f"nats stream rm {shlex.quote(self.stream)}")
        verb = "UPDATE" if self.how == "update" else "CREATE"
        subject, body = f"$JS.API.STREAM.{verb}.{self.stream}", json.dumps(self.body)
        lines.append(f"nats request {shlex.quote(subject)} {shlex.quote(body)}")
        if self.how == "update" and self.wrong_messages:
            # A purge would not do: a stream remembers when it last got a message, and copying begins there.
            lines.append("# the rule resumes after them; to have all copied again, delete the stream, and CREATE it")
        return lines
