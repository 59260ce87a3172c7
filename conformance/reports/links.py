"""Where a reader can look something up: the clause of a case, a known divergence."""

from __future__ import annotations

import re

__all__ = ["DIVERGENCES", "clause_link", "document_of"]

DIVERGENCES = "../docs/known-divergences.md"
"""The page that explains the ids of known divergences, as seen from a folder of reports beside ``docs``."""

_ADR = "https://github.com/nats-io/nats-architecture-and-design/blob/main/adr/ADR-{}.md"


def document_of(clause: str) -> str:
    """The document of a clause: ``ADR-28`` of ``ADR-28, RePublish Headers``."""
    return clause.partition(",")[0].strip()


def clause_link(clause: str) -> str:
    """The public address of a clause, at its heading where it names one; empty for what has no document."""
    document, _, section = clause.partition(",")
    number = re.fullmatch(r"ADR-([0-9]+)", document.strip())
    if number is None:
        return ""
    anchor = re.sub(r"[^\w -]", "", section.strip().lower()).replace(" ", "-")
    return _ADR.format(number[1]) + (f"#{anchor}" if anchor else "")
