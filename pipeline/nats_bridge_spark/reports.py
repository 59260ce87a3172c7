"""Reports of results: what terminals and JSON share."""

from dataclasses import asdict
from typing import Any


def as_json(result: Any) -> dict[str, Any]:
    """Return a result, which is a dataclass with `seconds`, as plain data."""
    return {**asdict(result), "seconds": round(result.seconds, 3)}


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1,000 messages`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def more(*counts: tuple[int, str]) -> str:
    """Return counts that are not 0, each after a comma."""
    return "".join(f", {number:,} {what}" for number, what in counts if number)
