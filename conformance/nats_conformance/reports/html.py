"""Renders a self-contained HTML page: matrix, filters, and a view of every cell.

The page is built from the files in `page`; its script renders `page_data`.
"""

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from nats_conformance.reports.judgement import Judged
from nats_conformance.reports.page_data import page_data


def page(judged: Judged, divergences: str = "", site: Mapping[str, Any] | None = None) -> str:
    """Return the page, with the data that `page_data` makes of the arguments. It loads nothing from the network."""
    folder = files("nats_conformance.reports") / "page"
    style, script, body = ((folder / name).read_text("utf-8") for name in ("page.css", "page.js", "page.html"))
    data = json.dumps(page_data(judged, divergences, site), separators=(",", ":"))
    # Within a script element "</script>" and "<!--" have a meaning, also within JSON.
    replaced = {"@@style@@": style, "@@script@@": script, "@@data@@": data.replace("<", "\\u003c")}
    for mark, content in replaced.items():
        before, found, after = body.partition(mark)
        assert found, f"page.html has no place for {mark}"
        body = before + content + after
    return body
