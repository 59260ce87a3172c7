"""Finds in hand-written pages the constructions that docs/style.md rules out, and keeps a limit per page.

`style.json` has a page's limits if they are worse than the targets: hits per rule, and rates per 1,000 words. A page
that is not in it has no hits and meets the targets. `python -m tests.unit.docs.style --write` lowers the limits to the
present figures and never raises one; delete the file first to write all of it again.
"""

import json
import math
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from docs.reference.pages import FOLDER
from docs.reference.pages import PAGES as REFERENCE
from tests.unit.docs.pages import CODE, ROOT, prose

LIMITS: Final = Path(__file__).with_name("style.json")
_GENERATED: Final = {(FOLDER / name).resolve() for name in REFERENCE} | {
    ROOT / "docs" / "changelog.md",
}
WRITTEN: Final = tuple(
    page
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
    if page not in _GENERATED
)

# A capital letter stands for the beginning of a sentence; headings may begin so.
RULES: Final[Mapping[str, re.Pattern[str]]] = {
    name: re.compile(pattern.replace(" ", r"\s+"))
    for name, pattern in {
        "P1 name the thing": r"(?<!#\s)\bWhat (?!happens|to )[^?|\n]*(?:\n(?!\n)[^?|\n]*)*?[.;]",
        "P2 subject first": (
            r"\b(?:Left out|Compared|Copied|Missing|New|Refused|Trusted|Excluded|Counted|Ignored|Needed|Tested|Measured"
            r"|Meant)(?:, too,)? (?:is|are|was|were)\b"
        ),
        "P3 is not a": r"(?<![Tt]here\s)\b(?:is|are|was|were) no (?!longer\b|more\b|such\b)\w+",
        "P4 subject first": r"(?<!#\s)\bOf (?!course\b)[a-z`]",
        "P5 if or when": r"(?<!#\s)\bWhere (?!is |are |do |does |can |to )[^?|.]*,",
        "P6 this many": r"\bso (?:many|long|much)\b(?! (?:that|as)\b)",
        "P7 exists": r"\b(?:that|which) (?:is|are) there\b|\b(?:is|are) there\b(?! (?:a|an|any|no|more)\b)",
        "P8 repeat the noun": r"\bof (?:ours|yours|its own|their own|one's own)\b|\b(?:that|those) of\b",
        "P9 two sentences": r"\b(?:by|of|in|to|from|with|for|on|at|behind) which\b",
        "P10 a precise verb": (
            r"\b(?:log|file|table|stream|server|sidecar|rule|bridge|program|process|command|configuration|entry|target"
            r"|source|page) (?:says|knows|speaks)\b"
        ),
        "P13 no comma before too": r", (?:too|as well)\b",
        "P14 a common word": r"\b(?:torn|lanes?|witness(?:es)?|planted|arms?|born)\b",
        "P15 the sidecar": r"\b(?:[Ww]e|us|[Oo]urs?)\b",
        "P16 string, integer": r"\ba text\b|\b[Ww]hole numbers?\b",
        "P17 no lab notes": r"\bseeds? [a-z]\d\b|\bslow hour\b|\bthe (?:round|run) before\b",
        "P18 present perfect": r"\bsince[.;,]|\bany ?more\b|\bis no \w+ (?:still|yet)\b",
    }.items()
}
RATES: Final[Mapping[str, tuple[re.Pattern[str], float]]] = {
    "what": (re.compile(r"\bwhat\b", re.IGNORECASE), 2.0),
    "semicolons": (re.compile(";"), 3.0),
    "you": (re.compile(r"\b(?:you|your|yours|yourself)\b", re.IGNORECASE), 8.0),
}
"""Per 1,000 words: the most of the first two, the least of the last."""
_LEAST: Final = "you"
_ADDRESS: Final = re.compile(r"\]\([^)\s]+\)")
_TABLE: Final = re.compile(r"^\|.*$", re.MULTILINE)


def hits(text: str) -> Iterator[tuple[str, int, str]]:
    """Rule, line and words of each construction in the prose of a page."""
    plain = _ADDRESS.sub("]", CODE.sub(_as_a_word, text))
    for rule, pattern in RULES.items():
        for found in pattern.finditer(plain):
            yield rule, plain.count("\n", 0, found.start()) + 1, " ".join(found[0].split())[:60]


def rates(text: str) -> tuple[int, dict[str, int]]:
    """The words of a page without tables and code, and how often each of `RATES` occurs in them."""
    plain = _TABLE.sub("", _ADDRESS.sub("]", CODE.sub(_as_a_blank, text)))
    return len(re.findall(r"[A-Za-z][\w'-]*", plain)), {
        name: len(pattern.findall(plain)) for name, (pattern, _) in RATES.items()
    }


def problems(page: str, text: str, limits: Mapping[str, float]) -> list[str]:
    """A line for each hit and rate beyond the limits of a page; `text` is its prose."""
    found = list(hits(text))
    wrong = []
    for rule in RULES:
        own = [(line, words) for name, line, words in found if name == rule]
        if len(own) > (limit := limits.get(rule, 0)):
            many = f"{len(own)} in the page, at most {limit}"
            wrong += [f"{page}:{line}: {rule}: '{words}' ({many})" for line, words in own]
    words, counts = rates(text)
    for name, (_, target) in RATES.items():
        limit = limits.get(name, target)
        if name == _LEAST and counts[name] < math.floor(limit * words / 1000):
            wrong.append(f"{page}: '{name}' {counts[name]} times in {words} words, at least {limit} per 1,000")
        elif name != _LEAST and counts[name] > math.ceil(limit * words / 1000):
            wrong.append(f"{page}: {name} {counts[name]} times in {words} words, at most {limit} per 1,000")
    return wrong


def limits_for(text: str) -> dict[str, float]:
    """The limits that a page meets exactly, if they are worse than the targets."""
    found = [rule for rule, _, _ in hits(text)]
    limits: dict[str, float] = {rule: found.count(rule) for rule in RULES if rule in found}
    words, counts = rates(text)
    for name, (_, target) in RATES.items():
        rate = counts[name] * 1000 / max(words, 1)
        if name == _LEAST and counts[name] < math.floor(target * words / 1000):
            limits[name] = math.floor(rate * 10) / 10
        elif name != _LEAST and counts[name] > math.ceil(target * words / 1000):
            limits[name] = math.ceil(rate * 10) / 10
    return limits


def read_limits() -> dict[str, dict[str, float]]:
    """The limits of the pages that have some."""
    limits: dict[str, dict[str, float]] = json.loads(LIMITS.read_text("utf-8"))
    return limits


def present_limits() -> dict[str, dict[str, float]]:
    """The limits that the pages meet as they are."""
    now = {str(page.relative_to(ROOT)): limits_for(prose(page)) for page in WRITTEN}
    return {page: limits for page, limits in now.items() if limits}


def _lower(old: Mapping[str, Mapping[str, float]], now: Mapping[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    lowered: dict[str, dict[str, float]] = {}
    for page, limits in now.items():
        for name, value in limits.items():
            if (before := old.get(page, {}).get(name)) is not None:
                best = max if name == _LEAST else min
                lowered.setdefault(page, {})[name] = best(before, value)
    return lowered


def _as_a_word(found: re.Match[str]) -> str:
    return "Code" + "\n" * found[0].count("\n")


def _as_a_blank(found: re.Match[str]) -> str:
    return " " + "\n" * found[0].count("\n")


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python -m tests.unit.docs.style --write")
    written = _lower(read_limits(), present_limits()) if LIMITS.exists() else present_limits()
    LIMITS.write_text(json.dumps(written, indent=1, sort_keys=True) + "\n", "utf-8")
