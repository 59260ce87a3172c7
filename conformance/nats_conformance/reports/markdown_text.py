"""Texts inside of Markdown: code spans and table rows that no text can break out of."""

from __future__ import annotations

import re


def code(text: str) -> str:
    """Return a code span that is also valid in tables; empty for an empty text."""
    if not text:
        return ""
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}".replace("|", "\\|").replace("\n", " ")


def plain(text: str) -> str:
    """Return a text that means nothing in Markdown and stays in its line."""
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", text).replace("\n", " ")


def row(*cells: str) -> str:
    """Return a row of a table."""
    return f"| {' | '.join(cell.replace(chr(10), ' ') for cell in cells)} |\n"


def shortened(text: str, longest: int) -> str:
    """Return the text, or its beginning and its end with an ellipsis between them."""
    if len(text) <= longest:
        return text
    end = longest // 4
    return f"{text[: longest - end - 1]}…{text[-end:]}"
