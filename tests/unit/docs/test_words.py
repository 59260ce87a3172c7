"""Pages, comments, docstrings, messages, names and tests use the words of the field: none of docs/words.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.unit.docs.pages import PAGES, ROOT, without_inline_code

WORDS = tomllib.loads((ROOT / "docs" / "words.toml").read_text("utf-8"))
PACKAGES = ("bridge", "transforms", "pipeline", "conformance", "benchmarks", "docs", "tests")
_CODE = {".py", ".js", ".html", ".css", ".yaml", ".toml"}
# Answers of servers, and the licences of others.
_NOT_OURS = {ROOT / "docs" / "words.toml", Path(__file__).resolve()}
_DATA = (ROOT / "tests" / "data", ROOT / "tests" / "k8s" / "schemas")
_LINE_BREAK = r'(?:[\s#]|"\s*f?")+'


def _files() -> Iterator[Path]:
    yield from (ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "Makefile", "Dockerfile"))
    yield from PAGES
    for folder in ("config", "k8s", ".ci", ".github"):
        yield from sorted(path for path in (ROOT / folder).rglob("*") if path.is_file() and path.suffix != ".pyc")
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*")):
            if path.suffix in _CODE and path not in _NOT_OURS and not any(path.is_relative_to(data) for data in _DATA):
                yield path


def _text(path: Path) -> str:
    text = without_inline_code(path) if path.suffix == ".md" else path.read_text("utf-8")
    return text.replace("_", " ").lower()


def _pattern(idiom: str) -> re.Pattern[str]:
    return re.compile(idiom.replace(" ", _LINE_BREAK).lower())


def test_no_listed_idiom_is_used() -> None:
    texts = {str(path.relative_to(ROOT)): _text(path) for path in _files()}
    assert len(texts) > 1000
    words = [(_pattern(word["idiom"]), word["say"], tuple(word.get("own", ()))) for word in WORDS["words"]]
    # One pass, which looks at beginnings of words only: each idiom on its own takes ten times as long.
    idiom = re.compile(r"\b(?:" + "|".join(f"(?:{pattern.pattern})" for pattern, _, _ in words) + ")")
    found = []
    for path, text in texts.items():
        for place in idiom.finditer(text):
            line = text.count("\n", 0, place.start()) + 1
            for pattern, say, own in words:
                if pattern.match(text, place.start()) and not path.startswith(own):
                    found.append(f"{path}:{line}: '{' '.join(place[0].split())}': say {say}")
    assert not found, "\n".join(found)


def test_an_idiom_is_found_across_lines() -> None:
    found = _pattern("what becomes of").search
    assert found("# what becomes\n    # of it")
    assert found('"what becomes"\n    f" of {name}"')
    assert not found("what becomes visible of it")
