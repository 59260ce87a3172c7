"""Hand-written pages keep to docs/style.md: no page gets worse than its limits in style.json."""

import pytest

from tests.unit.docs.pages import ROOT, prose
from tests.unit.docs.style import WRITTEN, hits, problems, read_limits

ADVICE = """
Rewrite these sentences as docs/style.md shows. A new page of reference without "you" gets a limit by hand, in
tests/unit/docs/style.json. `python -m tests.unit.docs.style --write` lowers the limits of pages that got better."""


def test_no_page_gets_worse() -> None:
    assert len(WRITTEN) > 30
    limits = read_limits()
    wrong = []
    for page in WRITTEN:
        name = str(page.relative_to(ROOT))
        wrong += problems(name, prose(page), limits.get(name, {}))
    assert not wrong, "\n".join(wrong) + "\n" + ADVICE


def test_limits_are_for_pages_that_exist() -> None:
    gone = read_limits().keys() - {str(page.relative_to(ROOT)) for page in WRITTEN}
    assert not gone, f"remove from tests/unit/docs/style.json: {sorted(gone)}"


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ("P1", "What the target rejects follows the setting."),
        ("P2", "New are its sequence and its id."),
        ("P3", "The output is no terminal."),
        ("P4", "Of more new messages it skips some."),
        ("P5", "Where a deployment is to wait, set this."),
        ("P6", "At most so many\na second."),
        ("P7", "It overwrites a file that is there."),
        ("P8", "It has a consumer of its own."),
        ("P9", "The id by which it is stored."),
        ("P10", "The log says so."),
        ("P13", "It works there, too."),
        ("P14", "Each arm runs once."),
        ("P15", "It keeps messages for us."),
        ("P16", "The value is a text."),
        ("P17", "It was found with seed j1."),
        ("P18", "It tries again since."),
    ],
)
def test_a_rule_finds_its_example(rule: str, sentence: str) -> None:
    assert [name.split()[0] for name, _, _ in hits(sentence)] == [rule]


@pytest.mark.parametrize(
    "sentence",
    [
        "There is no limit, and it is no longer needed.",
        "What happens when a server stops?",
        "Is there a stream? Where is it?",
        "Run it as long as you like, so long as the server answers.",
        "The `of its own` of a file is a string.",
        "## Where the position is stored, and why",
    ],
)
def test_plain_english_is_accepted(sentence: str) -> None:
    assert list(hits(sentence)) == []


def test_a_worse_page_fails_with_its_lines() -> None:
    text = "You run it.\n\nThe output is no terminal.\n"
    assert problems("a.md", text, {}) == ["a.md:3: P3 is not a: 'is no terminal' (1 in the page, at most 0)"]
    assert problems("a.md", text, {"P3 is not a": 1}) == []


def test_rates_are_limits_per_thousand_words() -> None:
    assert problems("a.md", "You see. " * 10 + "word; what " * 3, {"what": 100, "semicolons": 100}) == []
    assert problems("a.md", "word; " * 200, {}) == [
        "a.md: semicolons 200 times in 200 words, at most 3.0 per 1,000",
        "a.md: 'you' 0 times in 200 words, at least 8.0 per 1,000",
    ]
