"""Pages, comments, docstrings and messages use the words of the field: none of docs/words.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.unit.docs.pages import GENERATED_FROM_RUNS, PAGES, ROOT, sentences

WORDS = tomllib.loads((ROOT / "docs" / "words.toml").read_text("utf-8"))
PACKAGES = (
    "bridge",
    "transforms",
    "pipeline",
    "pyspark_jetstream",
    "conformance",
    "native_servers",
    "marked_yaml",
    "chaos",
    "benchmarks",
    "docs",
)
_LINE_BREAK = r'(?:[\s#]|"\s*f?")+'


def _files() -> Iterator[Path]:
    generated = {ROOT / page for page in GENERATED_FROM_RUNS}
    yield ROOT / "CONTRIBUTING.md"
    # The reference is made from the code.
    yield from (page for page in PAGES if page not in generated and page.parent.name != "reference")
    for folder in ("config", "dashboards", "k8s", "charts"):
        yield from sorted(path for path in (ROOT / folder).rglob("*") if path.is_file())
    for package in PACKAGES:
        yield from sorted(path for path in (ROOT / package).rglob("*") if path.suffix in {".py", ".js", ".html"})


def _pattern(idiom: str) -> re.Pattern[str]:
    return re.compile(idiom.replace(" ", _LINE_BREAK), re.IGNORECASE)


def _places(texts: dict[Path, str], *, pages: bool) -> Iterator[str]:
    for word in WORDS["words"]:
        if word.get("pages", False) != pages:
            continue
        pattern = _pattern(word["idiom"])
        for path, text in texts.items():
            for found in pattern.finditer(text):
                line = text.count("\n", 0, found.start()) + 1
                shown = " ".join(found[0].split())
                yield f"{path.relative_to(ROOT)}:{line}: '{shown}': say {word['say']}"


def test_no_listed_idiom_is_used() -> None:
    texts = {path: path.read_text("utf-8") for path in _files()}
    assert len(texts) > 500
    in_sentences = {path: sentences(path) for path in texts if path.suffix == ".md"}
    made_from_code = ROOT / "config" / "schema.json"
    in_sentences |= {
        path: text for path, text in texts.items() if path.suffix in {".yaml", ".json"} and path != made_from_code
    }
    places = [*_places(texts, pages=False), *_places(in_sentences, pages=True)]
    assert not places, "\n".join(places)


def test_an_idiom_is_found_across_lines() -> None:
    found = _pattern("what becomes of").search
    assert found("# What becomes\n    # of it")
    assert found('"what becomes"\n    f" of {name}"')
    assert not found("what becomes visible of it")
