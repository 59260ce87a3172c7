"""The identity of a subject of test in histories and reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from nats_transforms.dialect import NEWEST, Dialect, server_dialect
from nats_transforms.tested_versions import Version

Kind: TypeAlias = Literal["native", "engine", "bridge", "library", "history"]

KINDS: Final[tuple[Kind, ...]] = ("native", "engine", "bridge")
"""The kinds of test subjects for a server's version."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A subject of test.

    Attributes:
        kind: a native server, the engine, the bridge, a library behind the JSON-lines protocol, or a history that was
            compared with another one (`nats-bridge diff`), which has no version.
        dialect: the full version whose behaviour is expected, such as `2.10.27`.
        name: the name of a library or history; empty for others.
        server: the version of the server that the bridge connects to.
        command: the command that repeats the comparison of a history; empty for others.
    """

    kind: Kind
    dialect: str
    name: str = ""
    server: str = ""
    command: str = ""

    @property
    def version(self) -> Version:
        """The dialect as three numbers; those of the newest one for a minor line without a dialect."""
        return self.behaviour.version

    @property
    def behaviour(self) -> Dialect:
        """The flags of the dialect; those of the newest one for a history, and for a minor line without a dialect."""
        return NEWEST if self.kind == "history" else server_dialect(self.dialect)

    @property
    def server_behaviour(self) -> Dialect:
        """The flags of the server that the subject runs on, or that it is."""
        return server_dialect(self.server or self.dialect)

    @property
    def is_outside(self) -> bool:
        """Whether it reproduces a server's behaviour from outside, so that known divergences are possible."""
        return self.kind == "bridge"

    @property
    def label(self) -> str:
        """Unique within a run, short enough for the head of a column."""
        match self.kind:
            case "bridge" if self.server != self.dialect:
                return f"bridge {self.dialect} on {self.server}"
            case "library":
                return f"{self.name} {self.dialect}"
            case "history":
                return self.name
            case _:
                return f"{self.kind} {self.dialect}"

    def as_json(self) -> dict[str, Any]:
        """Return the identity as plain values."""
        found = {
            "kind": self.kind,
            "dialect": self.dialect,
            "name": self.name,
            "server": self.server,
            "command": self.command,
        }
        return {name: value for name, value in found.items() if value or name == "dialect"}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Identity:
        """Return the identity from the result of `as_json`. Raise KeyError or TypeError for other values."""
        return cls(**value)
