"""Links to the clause of a case, and to a known divergence."""

import os
import re
from pathlib import Path

_ADR = "https://github.com/nats-io/nats-architecture-and-design/blob/main/adr/ADR-{}.md"


def document_of(clause: str) -> str:
    """Return the document of a clause: `ADR-28` of `ADR-28, RePublish Headers`."""
    return clause.partition(",")[0].strip()


def clause_link(clause: str) -> str:
    """Return the public address of a clause, with the anchor of its heading if it has one; empty without a document."""
    document, _, section = clause.partition(",")
    number = re.fullmatch(r"ADR-([0-9]+)", document.strip())
    if number is None:
        return ""
    # Text in brackets names an older edition, "RePublish Headers (2022-07)", whose heading may no longer exist.
    edition = section.rstrip().endswith(")")
    anchor = "" if edition else re.sub(r"[^\w -]", "", section.strip().lower()).replace(" ", "-")
    return _ADR.format(number[1]) + (f"#{anchor}" if anchor else "")


def divergences_link(folder: Path) -> str:
    """Return the page that explains the ids of known divergences, as seen from a folder of reports.

    Empty if the folder is outside the project's tree, so that no path of a machine gets into a report.
    """
    page = Path("docs/known-divergences.md").resolve()
    folder = folder.resolve()
    if not page.is_file() or not folder.is_relative_to(page.parents[1]):
        return ""
    return Path(os.path.relpath(page, folder)).as_posix()
