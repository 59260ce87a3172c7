"""Problems of a configuration: their places, values and suggestions as text, with the quoted line."""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from nats_bridge.marked_yaml import LINE_BREAK, Mark, Path
from nats_transforms.subject import one_line

_MAX_SHOWN: Final = 60

_OTHER_WORDS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "url": ("servers",),
        "urls": ("servers",),
        "server": ("servers",),
        "source": ("src", "sources"),
        "destination": ("dest",),
        "subject": ("src",),
        "timeout": ("connect_timeout",),
        "insecure_skip_verify": ("insecure",),
        "ca_file": ("ca",),
        "cert_file": ("cert",),
        "key_file": ("key",),
        "tls_first": ("handshake_first",),
        "kv": ("kv_sources",),
        "ingress": ("subject_transform",),
        "transform": ("subject_transform",),
        "dead_letters": ("advisories",),
        "dlq": ("advisories",),
        "stream": ("bucket", "name"),
        "name": ("bucket",),
        "filter": ("filter_subject",),
        "transforms": ("subject_transforms", "key_transforms"),
        "subject_transforms": ("key_transforms",),
    }
)
"""Words of other programs for the same thing. The first that is valid in this place is suggested."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem in a configuration.

    Attributes:
        path: the way to it from the top.
        message: the value and a correct alternative, without the place.
        at_key: whether the key is wrong (its place is shown) rather than the value.
        suggests: for an unknown key, the known key that was probably meant.
        missing: the key that the mapping at `path` lacks.
        is_unreadable: whether it is a file that cannot be read here, and may exist where the sidecar runs.
        err_code: the number of a server's own error, if a server would refuse the value.
        rule: the name of the rule that it is about; empty for others, and for a rule without a name.
    """

    path: Path
    message: str
    at_key: bool = False
    suggests: str | None = None
    missing: str | None = None
    is_unreadable: bool = False
    err_code: int = 0
    rule: str = ""

    def within(self, around: Path) -> str:
        """Return the problem with the way to it from the part at `around`."""
        way = path_text(self.path[len(around) :])
        return f"{way}: {self.message}" if way else self.message


def path_text(path: Path) -> str:
    """Format a path as `rules[0].republish.dest`, with quotes around keys that are not plain words."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            plain = part.replace("_", "").replace("-", "").isalnum()
            text += ("." if text else "") + (part if plain else f"'{part}'")
    return text


def did_you_mean(word: str, known: Iterable[str], *, otherwise: str = "known") -> str:
    """Return `did you mean 'x'?` for a word close to a known one, or else the list of known words after `otherwise`."""
    choices = list(known)
    if suggested := closest(word, choices):
        return f"did you mean '{suggested}'?"
    return f"{otherwise}: {', '.join(choices)}" if choices else "nothing is allowed here"


def closest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that was probably meant, or None."""
    lowered = {choice.lower(): choice for choice in known}
    for other in _OTHER_WORDS.get(word.lower(), ()):
        if other in lowered.values():
            return other
    close = difflib.get_close_matches(word.lower(), lowered, n=1, cutoff=0.6)
    if not close:  # two letters swapped in a short word
        close = [low for low in lowered if sorted(low) == sorted(word.lower())]
    return lowered[close[0]] if close else None


def is_close(word: str, known: Iterable[str]) -> bool:
    """Return whether `word` is almost certainly a misspelling of a known one."""
    return bool(difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=0.75))


def shown(value: Any) -> str:
    """Return a value in quotes, cut if it is long."""
    text = value if isinstance(value, str) else repr(value)
    cut = text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"
    return f"'{cut}'" if isinstance(value, str) else cut


def described(value: Any) -> str:
    """Return a value with its type, in YAML's terms."""
    match value:
        case None:
            return "nothing"
        case bool():
            return f"{str(value).lower()} (a boolean)"
        case int() | float():
            return f"{value!s} (a number)"
        case str():
            return f"{shown(value)} (a string)"
        case dict():
            return "a mapping"
        case _:
            return "a list"


_WIDTH: Final = 110  # characters of a line that are shown
_BEFORE: Final = 60  # the part of these before the place, if the line is longer
_SECRET: Final = re.compile(r"pass|token|seed|secret|nkey|jwt|creds|credential|auth|-----|://[^/\s]*@", re.IGNORECASE)
_ABOVE: Final = 3  # lines above that may have the key of a multi-line string


def quoted(text: str, mark: Mark) -> str:
    """Return the line at `mark` and a line that points to it; empty if there is nothing to show, or it may be a secret.

    Args:
        text: the whole file.
    """
    lines = LINE_BREAK.split(text)
    if not 1 <= mark.line <= len(lines) or not lines[mark.line - 1].strip():
        return ""
    if any(_SECRET.search(line) for line in lines[max(0, mark.line - 1 - _ABOVE) : mark.line]):
        return ""
    line, place = lines[mark.line - 1], mark.column - 1
    cut = max(0, place - _BEFORE) if len(line) > _WIDTH else 0
    shown = one_line(line[cut : cut + _WIDTH])
    return f"    {shown}\n    {' ' * len(one_line(line[cut:place]))}^"
