"""Links and names of files in the documentation lead somewhere, on GitHub as on the site."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from tests.unit.docs.pages import PAGES, ROOT, anchors, codes, links

_anchors = cache(anchors)

LINKS = [link for link in links() if not re.match(r"[a-z]+:", link.text)]
FILES = [
    code
    for code in codes()
    if re.fullmatch(
        r"(?:bridge|transforms|conformance|pipeline|benchmarks|tests|docs|config|k8s|dashboards)/\S+", code.text
    )
    and not re.search(r"[*…<{\[]|\s", code.text)
]


def _fault(page: Path, link: str) -> str:
    target, _, anchor = link.partition("#")
    path = (page.parent / target).resolve() if target else page
    if not path.exists():
        return "no such file"
    if not path.is_relative_to(ROOT):
        return "outside the repository"
    if anchor and anchor not in _anchors(path):
        return f"no such heading; there are {sorted(_anchors(path))}"
    return ""


def test_a_link_leads_to_a_file_and_a_heading() -> None:
    assert len(LINKS) > 200
    faults = [(link, _fault(link.page, link.text)) for link in LINKS]
    wrong = [f"{link.place}: {link.text}: {fault}" for link, fault in faults if fault]
    assert not wrong, "\n".join(wrong)


def test_a_file_that_is_named_exists() -> None:
    assert len(FILES) > 60
    missing = []
    for code in FILES:
        path = ROOT / code.text.partition("::")[0]
        if not path.exists() and not path.with_suffix(".py").exists():
            missing.append(f"{code.place}: {code.text}: no such file")
    assert not missing, "\n".join(missing)


def test_every_page_is_in_the_contents() -> None:
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    contents = {
        re.sub(r"^.+ <(.+)>$", r"\1", entry)
        for tree in re.findall(r"^```\{toctree\}\n(.*?)^```", index, re.MULTILINE | re.DOTALL)
        for entry in tree.splitlines()
        if entry and not entry.startswith(":")
    }
    pages = {
        str(page.relative_to(ROOT / "docs").with_suffix("")) for page in PAGES if page.is_relative_to(ROOT / "docs")
    }
    assert contents == pages - {"index"}
