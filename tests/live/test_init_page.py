"""The sessions that docs/init.md shows are what the command prints."""

from __future__ import annotations

from docs.record_init import PAGE, record_ignored, record_questions, with_transcripts


async def test_the_page_shows_what_the_command_prints() -> None:
    page = PAGE.read_text("utf-8")
    recorded = {"questions": await record_questions(), "ignored": await record_ignored()}
    assert with_transcripts(page, recorded) == page, "record it again: python -m docs.record_init --write"
    assert all("\n".join(lines) in page for lines in recorded.values())
