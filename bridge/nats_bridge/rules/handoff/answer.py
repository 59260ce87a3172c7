"""The result of a handoff: the update's body and the steps, or the reason against it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from nats_bridge.client.jetstream_api import Json
from nats_bridge.settings import Settings


@dataclass(frozen=True, slots=True)
class Wish:
    """The options of a handoff.

    Attributes:
        back: from the server to the bridge.
        after: for each source, the last copied sequence, if the target does not show it.
        apply: send the update.
    """

    back: bool = False
    after: Mapping[str, int] = field(default_factory=dict)
    apply: bool = False


OTHERWISE: Final = "Or by hand:"
"""Among the steps: those after it replace those before it."""

NO_SERVER_SELECTS: Final = (
    "servers cannot select messages by a header and would copy the others too: keep this rule on the bridge"
)
"""The reason why a rule with `where` cannot be handed over."""


@dataclass(frozen=True, slots=True)
class Handoff:
    """The answer to a handoff request.

    Attributes:
        update: the body of the `STREAM.UPDATE` request, a whole stream configuration; None without one.
        steps: what to do and what happens then, in order; `OTHERWISE` between two ways.
        problems: the obstacles, each with a remedy; empty if it can be handed over.
    """

    update: Json | None
    steps: tuple[str, ...]
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the handoff is possible."""
        return not self.problems and self.update is not None

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "ok": self.ok,
            "update": self.update if self.ok else None,
            "steps": list(self.steps) if self.ok else [],
            "problems": list(self.problems),
        }


def stop(settings: Settings) -> str:
    """Return the beginning of a step that stops the sidecar, with every replica of it."""
    if settings.leadership is None:
        return "Stop the sidecar (SIGTERM)"
    return "Stop all replicas of the sidecar (SIGTERM, or scale to 0)"


def refused(*problems: str) -> Handoff:
    """Return a refused handoff."""
    return Handoff(None, (), problems)
