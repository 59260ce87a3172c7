"""Rules of kind watch, as the configuration has them."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from nats_bridge.settings.base import Flag, StreamPattern
from nats_bridge.settings.rules import Rule, RuleName


class WatchRule(Rule):
    """Watch native mirrors and sources, and report stalled ones."""

    misplaced: ClassVar[Mapping[str, str]] = {
        "from": "set the connection to watch with 'connection'",
        "to": "set the connection to watch with 'connection'",
        "stream": "write streams: [NAME]",
        "dialect": "a watch rule transforms nothing; remove it",
    }

    name: RuleName
    kind: Literal["watch"] = Field(description="watch native mirrors and sources for stalls")
    connection: str = Field(default="default", description="connection to watch")
    watched_streams: tuple[StreamPattern, ...] = Field(
        default=("*",),
        alias="streams",
        min_length=1,
        description="streams to watch; `*` stands for any characters",
    )
    stalled_after: float = Field(
        default=20.0,
        ge=0.1,
        le=86_400,
        description="seconds without progress until a copy counts as stalled, if messages are missing",
    )
    on_stall: Literal["warn", "step_down"] = Field(
        default="warn",
        description="step_down: also ask the copying stream's leader to step down once, if another leader can help",
    )
    interval: float = Field(default=3.0, ge=0.1, le=86_400, description="seconds between comparisons")
    max_requests: float = Field(default=50.0, ge=1, le=10_000, description="maximum number of requests per second")
    unready_on_stall: Flag = Field(default=False, description="not ready while a copy is stalled")

    @property
    def dialect(self) -> None:
        """The dialect that it asks for: none, it transforms nothing."""

    @property
    def streams(self) -> tuple[tuple[str, str], ...]:
        """The streams that the rule names: each with its connection."""
        return tuple((self.connection, name) for name in self.watched_streams if "*" not in name)

    @property
    def about(self) -> str:
        """Name the streams that the rule works on, for a person."""
        return ", ".join(self.watched_streams)

    @property
    def connections(self) -> tuple[str, ...]:
        """The names of the connections that the rule uses."""
        return (self.connection,)


RULES = (WatchRule,)
"""The models of this package's kinds."""
