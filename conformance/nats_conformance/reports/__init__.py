"""Reports: renderings of a judged run. Each can be generated again from the history."""

import json
from pathlib import Path

from nats_conformance.reports.html import page
from nats_conformance.reports.json_report import as_report, badge
from nats_conformance.reports.judgement import Cell, Judged, judged
from nats_conformance.reports.junit import junit
from nats_conformance.reports.links import divergences_link
from nats_conformance.reports.markdown import markdown

__all__ = ["Cell", "Judged", "judged", "write_reports"]


def write_reports(result: Judged, folder: Path) -> list[Path]:
    """Write the reports into a folder, which is created if it does not exist, and return the files.

    They are `report.json`, `junit.xml`, `report.md`, `badge.json` for services that draw badges, and finally
    `index.html`. Raises OSError if the folder cannot be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    divergences = divergences_link(folder)
    contents = {
        "report.json": json.dumps(as_report(result), indent=1).encode(),
        "junit.xml": junit(result),
        "report.md": markdown(result, divergences).encode("utf-8", "backslashreplace"),
        "badge.json": json.dumps(badge(result.counts(), is_passed=result.passed)).encode(),
        "index.html": page(result, divergences).encode("utf-8", "backslashreplace"),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in contents]
