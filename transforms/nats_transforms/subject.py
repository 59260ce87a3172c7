"""Subjects as the server sees them: tokens, validity, matching, subsets and collisions, all on bytes.

Theory of operation. A subject is a sequence of tokens joined by dots. `*` and `>` are wildcards only if they are an
entire token. The server has several checks that differ in what they examine. Until 2.14.10 and 2.15.3 its comparisons
examined only the *first byte* of a token, so the source `foo.*x` of a transform accepted `foo.zzz`. Callers that
reproduce such a server pass `by_first_byte`, which they read from `Dialect.first_byte_is_wildcard`. Subscriptions and
consumer filters (`matches`) match the same token literally on every version.
"""

import re
from collections.abc import Callable, Iterable, Mapping

DOT = b"."
ANY = b"*"
REST = b">"

# Tokens that no literal subject has. A frozen set, so that `UNMATCHABLE.isdisjoint(tokens)` checks them all at once.
UNMATCHABLE = frozenset((b"", ANY, REST))
WHITE_SPACE = b" \t\r\n\f"


def bytes_of(text: str) -> bytes:
    """Return the bytes of a subject given as a string, in which surrogates stand for bytes that are not UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def text_of(raw: bytes) -> str:
    """Return a subject's bytes as a string, with escapes for bytes that are not UTF-8."""
    return raw.decode("utf-8", "backslashreplace")


def one_line(text: str) -> str:
    """Text for a screen: line ends and control characters are escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def text_member(members: Mapping[str, object], name: str, place: str = "") -> bytes:
    """Return a string member of a configuration as bytes; empty if it is missing.

    Raises:
        TypeError: the member is not a string.
    """
    value = members.get(name) or b""
    if isinstance(value, str):
        return bytes_of(value)
    if isinstance(value, bytes):
        return value
    raise TypeError(f"{place}{name} must be a text, not {value!r}")


def tokens(subject: bytes) -> list[bytes]:
    """Return the tokens of a subject. An empty subject has one empty token."""
    return subject.split(DOT)


def is_valid_pattern(subject: bytes) -> bool:
    """Return whether a transform accepts the text as source or destination: no empty token, nothing after `>`.

    White space is not checked here (native: `foo. ` is a valid transform source).
    """
    parts = subject.split(DOT)
    return b"" not in parts and REST not in parts[:-1]


def is_valid_filter(subject: bytes) -> bool:
    """Return whether a subscription, a stream or a consumer may have this subject: a pattern without white space."""
    return is_valid_pattern(subject) and not _has_white_space(subject)


def is_valid_publish(subject: bytes) -> bool:
    """Return whether a client may publish on this subject: a filter without wildcards."""
    return is_valid_literal(subject) and not _has_white_space(subject)


def is_valid_literal(subject: bytes) -> bool:
    """Return whether a transform can match this subject: no token is empty, `*` or `>`."""
    return UNMATCHABLE.isdisjoint(subject.split(DOT))


def matches(subject: bytes, pattern: bytes) -> bool:
    """Return whether a subscription or consumer filter `pattern` receives a message published on `subject`.

    Only entire tokens `*` and `>` are wildcards. A subject published as `foo.*` is matched like any other.
    """
    if pattern == REST:
        return True
    have = subject.split(DOT)
    want = pattern.split(DOT)
    for position, token in enumerate(want):
        if token == REST:
            return len(have) > position
        if position >= len(have) or token not in (ANY, have[position]):
            return False
    return len(have) == len(want)


def matcher(patterns: Iterable[bytes]) -> Callable[[bytes], object] | None:
    """Compile several patterns into one function that tells whether any of them matches.

    Returns:
        The function; None without patterns.
    """
    alternatives = [_expression(pattern) for pattern in patterns]
    return re.compile(b"|".join(alternatives), re.DOTALL).fullmatch if alternatives else None


def _expression(pattern: bytes) -> bytes:
    parts = []
    for token in pattern.split(DOT):
        if token == REST:
            parts.append(b".*")
            break
        parts.append(b"[^.]*" if token == ANY else re.escape(token))
    return rb"\.".join(parts)


def is_wild(token: bytes, *, by_first_byte: bool = False) -> bool:
    """Return whether a pattern's token covers any token; with `by_first_byte`, also if it merely begins with `*`."""
    return token == ANY or (by_first_byte and token.startswith(ANY))


def is_subset(a: bytes, b: bytes, *, by_first_byte: bool = False) -> bool:
    """Return whether `b` covers everything that `a` stands for, by the server's rules.

    A `*` of `b` covers any token except `>`. With `by_first_byte`, so does a longer token that begins with `*`, but it
    does not cover `*`. Only a `>` of `b` covers a `>` in `a`.
    """
    have = a.split(DOT)
    want = b.split(DOT)
    for position, token in enumerate(want):
        if position >= len(have) or not token:
            return False
        if token == REST:
            return True
        mine = have[position]
        if mine in (b"", REST):
            return False
        if mine == ANY:
            if token != ANY:
                return False
        elif token != mine and not is_wild(token, by_first_byte=by_first_byte):
            return False
    return len(have) == len(want)


def collide(a: bytes, b: bytes, *, by_first_byte: bool = False) -> bool:
    """Return whether some subject may be covered by both, as the server decides it.

    With `by_first_byte`, a token such as `*x` or `>x` may be equal to any other.
    """
    if a == b:
        return True
    left, right = a.split(DOT), b.split(DOT)
    rest_left, rest_right = REST in left, REST in right
    literal_left = not rest_left and ANY not in left
    literal_right = not rest_right and ANY not in right
    if literal_left and literal_right:
        return False
    if literal_left:
        return is_subset(a, b, by_first_byte=by_first_byte)
    if literal_right:
        return is_subset(b, a, by_first_byte=by_first_byte)
    if len(left) != len(right):
        shorter_has_rest = rest_left if len(left) < len(right) else rest_right
        if not shorter_has_rest:
            return False
    return all(_may_be_equal(one, other, by_first_byte) for one, other in zip(left, right, strict=False))


def _may_be_equal(one: bytes, other: bytes, by_first_byte: bool) -> bool:
    if not one or not other:
        return False
    length = 1 if by_first_byte else None
    return one == other or one[:length] in (ANY, REST) or other[:length] in (ANY, REST)


def _has_white_space(subject: bytes) -> bool:
    # Deleting is the only search for a set of bytes that `bytes` does at C speed.
    return len(subject.translate(None, WHITE_SPACE)) != len(subject)
