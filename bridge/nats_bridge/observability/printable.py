"""Makes foreign text safe on one line of a screen: no control characters, no second line."""


def printable(text: str) -> str:
    """Return the text without line ends, control characters and runs of blanks."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
