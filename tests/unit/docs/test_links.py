"""Links and names of files in the documentation lead somewhere, on GitHub as on the site."""

from __future__ import annotations

import re

import pytest

from tests.unit.docs.pages import PAGES, ROOT, Piece, anchors, codes, links

LINKS = [link for link in links() if not re.match(r"[a-z]+:", link.text)]
FILES = [
    code
    for code in codes()
    if re.fullmatch(
        r"(?:bridge|transforms|conformance|pipeline|chaos|benchmarks|tests|docs|config|k8s|dashboards)/\S+", code.text
    )
    and not re.search(r"[*…<{\[]|\s", code.text)
]


@pytest.mark.parametrize("link", LINKS, ids=lambda link: f"{link.place}-{link.text}")
def test_a_link_leads_to_a_file_and_a_heading(link: Piece) -> None:
    target, _, anchor = link.text.partition("#")
    path = (link.page.parent / target).resolve() if target else link.page
    assert path.exists(), f"{link.place}: {link.text}: no such file"
    assert path.is_relative_to(ROOT)
    if anchor:
        assert anchor in anchors(path), f"{link.place}: {link.text}: no such heading; there are {sorted(anchors(path))}"


@pytest.mark.parametrize("code", FILES, ids=lambda code: f"{code.place}-{code.text}")
def test_a_file_that_is_named_exists(code: Piece) -> None:
    path = ROOT / code.text.partition("::")[0]
    named = path.exists() or path.with_suffix(".py").exists()
    assert named, f"{code.place}: {code.text}: no such file"


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
