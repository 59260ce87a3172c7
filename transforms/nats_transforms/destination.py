"""Parses a transform's destination into tokens, with the server's checks and error texts.

Theory of operation. A destination is first cut at its dots, so no argument of a function can contain a dot. Each token
is then classified as a whole: a literal, a `$n` wildcard, or a function in double braces. The server searches the
braces for each known function in a fixed order and without anchors, so `{{x{{wildcard(1)}}` is a wildcard. The patterns
below describe the same language.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from nats_transforms.dialect import Dialect
from nats_transforms.errors import TransformError
from nats_transforms.subject import ANY, DOT, REST, WHITE_SPACE, text_of

INT32_MAX = 2**31 - 1
INT32_MIN = -(2**31)
INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)


class Kind(Enum):
    """The kind of a destination token; the value is the function's name."""

    LITERAL = "literal"
    REST = ">"
    WILDCARD = "wildcard"
    PARTITION = "partition"
    SPLIT_FROM_LEFT = "splitFromLeft"
    SPLIT_FROM_RIGHT = "splitFromRight"
    SLICE_FROM_LEFT = "sliceFromLeft"
    SLICE_FROM_RIGHT = "sliceFromRight"
    RIGHT = "right"
    LEFT = "left"
    SPLIT = "split"
    RANDOM = "random"


CUTTING = frozenset(
    (Kind.SPLIT, Kind.SPLIT_FROM_LEFT, Kind.SPLIT_FROM_RIGHT, Kind.SLICE_FROM_LEFT, Kind.SLICE_FROM_RIGHT)
)
"""Functions that may give several tokens."""

KEEPING_WHOLE = frozenset((Kind.LITERAL, Kind.REST, Kind.WILDCARD, Kind.PARTITION, Kind.RANDOM))
"""Tokens that are never empty or a wildcard for a subject that has no such tokens. Not left and right: `*a` to `*`."""


@dataclass(frozen=True, slots=True)
class DestinationPart:
    """One token of a destination; in a compiled transform, bound to its source.

    `indexes` are the wildcard numbers as written (including 0 and negative ones), `number` is the length, position,
    limit or modulus, already reduced to 32 bits as in the server, and `delimiter` is that of split. In a bound token,
    `positions` are positions (from 0) in the *subject* of the tokens it is computed from, in the order of the
    arguments; for `>`, the position from which the subject is copied.
    """

    text: bytes
    kind: Kind
    indexes: tuple[int, ...] = ()
    number: int = 0
    delimiter: bytes = b""
    positions: tuple[int, ...] = ()

    @property
    def is_function(self) -> bool:
        """Whether the token is computed from the subject (or at random)."""
        return self.kind not in (Kind.LITERAL, Kind.REST)

    @property
    def shape(self) -> bytes:
        """A literal token unchanged, `*` for any one token, or `>` for one or more, also in the middle."""
        if self.kind is Kind.LITERAL:
            return self.text
        return REST if self.kind is Kind.REST or self.kind in CUTTING else ANY


def parse_token(text: bytes, dialect: Dialect) -> DestinationPart:
    """Classify one token of a destination.

    Raises:
        TransformError: a function that the dialect does not support, or wrong arguments, in the server's words.
    """
    if len(text) > 1 and text.startswith(b"$"):
        number = _integer(text[1:])
        if number is None:
            return DestinationPart(text, Kind.LITERAL)
        return DestinationPart(text, Kind.WILDCARD, (number,))
    if not _is_braced(text):
        return DestinationPart(text, Kind.REST if text == REST else Kind.LITERAL)
    _refuse_account_functions(text, dialect)
    for kind, pattern, known, parse in _FUNCTIONS:
        found = pattern.search(text)
        if found is not None and known(dialect):
            return parse(text, kind, _COMMA.split(found[1]), dialect)
    raise _error("unknown_function", text)


def check_mapping_destination(destination: bytes, dialect: Dialect) -> None:
    """Check a mapping destination as the server does before it builds the transform.

    Account mappings (all versions), `sources[].subject_transforms` (2.10) and all stream transforms except republish
    (from 2.11 on) are checked with it. It checks names but not arguments, and refuses white space outside functions and
    anything after `>`.

    Raises:
        TransformError: with the server's reason, `invalid mapping destination: …`.
    """
    if not destination and dialect.empty_destination_is_no_transform:
        return
    after_rest = False
    for token in destination.split(DOT):
        if not token or after_rest:
            raise _bad_mapping(token, dialect)
        if _is_braced(token):
            _refuse_account_functions(token, dialect)
            if not any(pattern.search(token) for _, pattern in _mapping_names(dialect)):
                raise _error("unknown_function", token)
        elif token == REST:
            after_rest = True
        elif any(space in token for space in WHITE_SPACE):
            raise _bad_mapping(None, dialect)


def index_out_of_range(token: DestinationPart, index: int | None) -> TransformError:
    """Return the error for a wildcard number above the number of `*`; None if the source takes no numbers."""
    return _error("index_out_of_range", token.text, "" if index is None else f": [{index}]")


def unused_wildcards(destination: bytes) -> TransformError:
    """Return the error for a destination that does not use all wildcards of its source."""
    return _error("unused_wildcards", destination)


# -------------------------------------------------------------------------------------------------- arguments

# White space as Go's regular expressions have it: no vertical tab.
_COMMA = re.compile(rb",[\t\n\f\r ]*")
_DECIMAL = re.compile(rb"[+-]?[0-9]+")

_TEXTS = {
    "unknown_function": "unknown function",
    "not_enough_arguments": "not enough arguments passed to the function",
    "too_many_arguments": "too many arguments passed to the function",
    "invalid_argument": "function argument is invalid or in the wrong format",
    "index_out_of_range": "wildcard index out of range",
    "unused_wildcards": "not using all of the token wildcard(s)",
    "unavailable_function": "function is not available in this context",
}


def _error(code: str, token: bytes, suffix: str = "") -> TransformError:
    return TransformError(code, f"invalid mapping destination: {_TEXTS[code]} in {text_of(token)}{suffix}")


def _bad_mapping(token: bytes | None, dialect: Dialect) -> TransformError:
    unnamed = token is None or (not token and dialect.mapping_check_leaves_out_empty_token)
    where = "" if unnamed else f" in {text_of(token or b'')}"
    if dialect.mapping_check_says_invalid_transform:
        return TransformError("invalid_transform", f"invalid mapping destination: invalid transform{where}")
    return TransformError("invalid_subject", f"invalid mapping destination: invalid subject{where}")


def _integer(text: bytes) -> int | None:
    """Parse a decimal number with an optional sign in 64 bits, like the server. Return None for anything else."""
    if _DECIMAL.fullmatch(text) is None or len(text.lstrip(b"+-").lstrip(b"0")) > 19:
        return None
    number = int(text)
    return number if INT64_MIN <= number <= INT64_MAX else None


def _argument(token: bytes, text: bytes) -> int:
    number = _integer(text.strip(b" "))
    if number is None:
        raise _error("invalid_argument", token)
    return number


def _wrap_int32(number: int) -> int:
    return (number - INT32_MIN) % 2**32 + INT32_MIN


def _wildcard(token: bytes, kind: Kind, arguments: list[bytes], dialect: Dialect) -> DestinationPart:
    if arguments == [b""]:
        raise _error("not_enough_arguments", token)
    if len(arguments) > 1:
        raise _error("too_many_arguments", token)
    return DestinationPart(token, kind, (_argument(token, arguments[0]),))


def _partition(token: bytes, kind: Kind, arguments: list[bytes], dialect: Dialect) -> DestinationPart:
    if len(arguments) < 2 and not dialect.partition_of_subject:
        raise _error("not_enough_arguments", token)
    modulus = _argument(token, arguments[0])
    if modulus > INT32_MAX and dialect.partition_of_subject:
        raise _error("invalid_argument", token)
    indexes = tuple(_argument(token, text) for text in arguments[1:])
    return DestinationPart(token, kind, indexes, _wrap_int32(modulus))


def _index_and_length(token: bytes, kind: Kind, arguments: list[bytes], dialect: Dialect) -> DestinationPart:
    index = _index_of_two(token, arguments)
    length = _argument(token, arguments[1])
    if dialect.int32_arguments_checked and not INT32_MIN <= length <= INT32_MAX:
        raise _error("invalid_argument", token)
    return DestinationPart(token, kind, (index,), _wrap_int32(length))


def _split(token: bytes, kind: Kind, arguments: list[bytes], dialect: Dialect) -> DestinationPart:
    index = _index_of_two(token, arguments)
    if b" " in arguments[1]:
        raise _error("invalid_argument", token)
    return DestinationPart(token, kind, (index,), delimiter=arguments[1])


def _index_of_two(token: bytes, arguments: list[bytes]) -> int:
    if len(arguments) < 2:
        raise _error("not_enough_arguments", token)
    if len(arguments) > 2:
        raise _error("too_many_arguments", token)
    return _argument(token, arguments[0])


def _random(token: bytes, kind: Kind, arguments: list[bytes], dialect: Dialect) -> DestinationPart:
    if len(arguments) != 1:
        raise _error("not_enough_arguments", token)  # the server's words for two arguments as well
    limit = _argument(token, arguments[0])
    if limit > INT32_MAX:
        raise _error("invalid_argument", token)
    return DestinationPart(token, kind, (), _wrap_int32(limit))


# ------------------------------------------------------------------------------------------------------ names


def _is_braced(token: bytes) -> bool:
    return len(token) > 4 and token.startswith(b"{{") and token.endswith(b"}}")


def _always(_: Dialect) -> bool:
    return True


def _name(*words: str, joint: str = "") -> re.Pattern[bytes]:
    # The first letter of every word may be either case, all others are lower case.
    name = joint.join(f"[{word[0]}{word[0].upper()}]{word[1:]}" for word in words)
    return re.compile(rf"\{{\{{[\t\n\f\r ]*{name}[\t\n\f\r ]*\((.*)\)[\t\n\f\r ]*\}}\}}".encode())


_Parser = Callable[[bytes, Kind, list[bytes], Dialect], DestinationPart]

# In the order in which the server searches a token for them.
_FUNCTIONS: tuple[tuple[Kind, re.Pattern[bytes], Callable[[Dialect], bool], _Parser], ...] = (
    (Kind.WILDCARD, _name("wildcard"), _always, _wildcard),
    (Kind.PARTITION, _name("partition"), _always, _partition),
    (Kind.SPLIT_FROM_LEFT, _name("split", "from", "left"), _always, _index_and_length),
    (Kind.SPLIT_FROM_RIGHT, _name("split", "from", "right"), _always, _index_and_length),
    (Kind.SLICE_FROM_LEFT, _name("slice", "from", "left"), _always, _index_and_length),
    (Kind.SLICE_FROM_RIGHT, _name("slice", "from", "right"), _always, _index_and_length),
    (Kind.RIGHT, _name("right"), lambda d: d.left_and_right, _index_and_length),
    (Kind.LEFT, _name("left"), lambda d: d.left_and_right, _index_and_length),
    (Kind.SPLIT, _name("split"), _always, _split),
    (Kind.RANDOM, _name("random"), lambda d: d.random_function, _random),
)


# Names of accounts as hashes. A server resolves them in mappings, imports and permissions of an account; in a stream
# they have no value.
_ACCOUNT_FUNCTIONS = tuple(
    _name(*words, joint="-")
    for words in (("account", "hash", "import"), ("account", "hash", "leaf", "remote"), ("account", "hash"))
)


def _refuse_account_functions(token: bytes, dialect: Dialect) -> None:
    if dialect.account_functions and any(pattern.search(token) for pattern in _ACCOUNT_FUNCTIONS):
        raise _error("unavailable_function", token)


def _mapping_names(dialect: Dialect) -> list[tuple[Kind, re.Pattern[bytes]]]:
    unknown = {Kind.LEFT, Kind.RIGHT} if not dialect.mapping_check_knows_left_and_right else set()
    return [(kind, pattern) for kind, pattern, known, _ in _FUNCTIONS if known(dialect) and kind not in unknown]
