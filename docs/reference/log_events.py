"""The table of log events in the page about logs."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from docs.reference.markdown import code, table
from nats_bridge.bridge.observability.log_events import EVENTS

__all__ = ["page"]

_PAGE: Final = Path(__file__).parents[1] / "logs.md"
_BEGIN, _END = "<!-- events: begin -->\n", "<!-- events: end -->"


def page() -> str:
    """The page with the table of today's events between its two marks."""
    before, _, rest = _PAGE.read_text("utf-8").partition(_BEGIN)
    _, _, after = rest.partition(_END)
    rows = [
        (f"`{name}`{'' if event.always else ' ¹'}", event.level, event.meaning, ", ".join(map(code, event.fields)))
        for name, event in EVENTS.items()
    ]
    return f"{before}{_BEGIN}{table(('event', 'level', 'meaning', 'fields'), rows)}{_END}{after}"
