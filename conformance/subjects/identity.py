"""Who is tested, as histories and reports name it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from transforms.dialect import Version, dialect

__all__ = ["Identity", "Kind"]

Kind: TypeAlias = Literal["native", "engine", "bridge", "library"]


@dataclass(frozen=True, slots=True)
class Identity:
    """A subject of test.

    Attributes:
        kind: a native server, our engine, our bridge, or somebody's library behind the JSON-lines protocol.
        dialect: the full version whose behaviour is expected, such as ``2.10.27``.
        name: what a library calls itself; empty for the others.
        server: the version of the server that the bridge stands in front of.
    """

    kind: Kind
    dialect: str
    name: str = ""
    server: str = ""

    @property
    def version(self) -> Version:
        """The dialect as three numbers."""
        return dialect(self.dialect).version

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
            case _:
                return f"{self.kind} {self.dialect}"

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        found = {"kind": self.kind, "dialect": self.dialect, "name": self.name, "server": self.server}
        return {name: value for name, value in found.items() if value}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Identity:
        """The identity that ``as_json`` made this of; raises KeyError or TypeError."""
        return cls(**value)
