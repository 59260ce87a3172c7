"""Pieces of Markdown that the pages of the reference are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def code(text: str) -> str:
    """A piece of code within a sentence."""
    return f"`{text}`"


def cell(text: str) -> str:
    """A text that may stand in a table: one line, no bars."""
    return " ".join(text.split()).replace("|", "\\|")


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: frozenset[int] = frozenset()) -> str:
    """A table, with the line that ends it.

    Args:
        head: the columns' names.
        rows: their cells.
        numbers: the columns that hold numbers, counted from 0.
    """
    rule = "".join("---:|" if column in numbers else "---|" for column in range(len(head)))
    lines = [f"| {' | '.join(head)} |", f"|{rule}"]
    lines += [f"| {' | '.join(cell(text) for text in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def items(rows: Iterable[tuple[str, str]]) -> str:
    """A list of terms with their meanings, with the line that ends it."""
    return "".join(f"- {term}: {' '.join(meaning.split())}\n" for term, meaning in rows)


def fenced(language: str, text: str) -> str:
    """A block of code, with the line that ends it."""
    return f"```{language}\n{text.rstrip()}\n```\n"
