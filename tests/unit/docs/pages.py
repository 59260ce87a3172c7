"""The README and the pages of docs/, taken apart: blocks of code, pieces of code in sentences, headings, links."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_LINK = re.compile(r"\]\(([^()\s]+(?:\([^()]*\)[^()\s]*)?)\)|^\[[^\]]+\]: (\S+)$", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Piece:
    """Something in a page.

    Attributes:
        page: the page's path.
        line: where it begins.
        text: what it says.
        language: of a block of code; empty where none is said.
    """

    page: Path
    line: int
    text: str
    language: str = ""

    @property
    def place(self) -> str:
        """Where it is, for messages and for the names of tests."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(*languages: str) -> Iterator[Piece]:
    """The blocks of code of some languages, or of all."""
    for page in PAGES:
        text = page.read_text("utf-8")
        for fence in _FENCE.finditer(text):
            if not languages or fence["language"] in languages:
                plain = re.sub(rf"^{fence['indent']}", "", fence["text"], flags=re.MULTILINE)
                yield Piece(page, _line(text, fence.start("text")), plain, fence["language"])


def codes() -> Iterator[Piece]:
    """The pieces of code within sentences."""
    for page in PAGES:
        text = prose(page)
        for code in CODE.finditer(text):
            yield Piece(page, _line(text, code.start()), " ".join(code[1].split()))


def links() -> Iterator[Piece]:
    """The targets of links."""
    for page in PAGES:
        text = CODE.sub(_blank, prose(page))
        for link in _LINK.finditer(text):
            yield Piece(page, _line(text, link.start()), link[1] or link[2])


def anchors(page: Path) -> set[str]:
    """What a link to a heading of a page may say, as GitHub and the site make it."""
    found: set[str] = set()
    for heading in _HEADING.finditer(prose(page)):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", shown.strip().lower()).replace(" ", "-")
        # Headings of the same words are numbered.
        found.add(slug if slug not in found else f"{slug}-{sum(one.startswith(slug) for one in found)}")
    return found


def prose(page: Path) -> str:
    """A page without blocks of code and comments; lines stay where they are."""
    return _FENCE.sub(_blank, _COMMENT.sub(_blank, page.read_text("utf-8")))


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0])


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1
