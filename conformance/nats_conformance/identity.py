"""The identity of a subject of test in histories and reports."""

from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, Self, TypeAlias

from nats_transforms.dialect import Dialect, server_dialect
from nats_transforms.tested_versions import Version

Kind: TypeAlias = Literal["native", "engine", "bridge", "library"]

KINDS: Final[tuple[Kind, ...]] = ("native", "engine", "bridge")
"""The kinds of test subjects for a server's version."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A subject of test.

    Attributes:
        kind: a native server, the engine, the bridge, or a library behind the JSON-lines protocol.
        dialect: the full version whose behaviour is expected, such as `2.10.27`.
        name: the name of a library; empty for others.
        server: the version of the server that the bridge connects to.
    """

    kind: Kind
    dialect: str
    name: str = ""
    server: str = ""

    @property
    def version(self) -> Version:
        """The dialect as three numbers; those of the newest one for a minor line without a dialect."""
        return self.behaviour.version

    @property
    def behaviour(self) -> Dialect:
        """The flags of the dialect; those of the newest one for a minor line without a dialect."""
        return server_dialect(self.dialect)

    @property
    def server_behaviour(self) -> Dialect:
        """The flags of the server that the subject runs on, or that it is."""
        return server_dialect(self.server or self.dialect)

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
        """Return the identity as plain values."""
        return {name: value for name, value in asdict(self).items() if value or name == "dialect"}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Return the identity from the result of `as_json`. Raise KeyError or TypeError for other values."""
        return cls(**value)
