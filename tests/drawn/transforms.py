"""Random sources, destinations and subjects: odd spellings, numbers, delimiters and literals among good ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

_LITERALS = ("foo", "a", "b-c", "$x", "*x", ">x", "é", "{{}}", "日本", "$", "$$", "x{{wildcard(1)}}", "A", "x>")
_SPACED = ("a b", "x\ty", " ", "x ", "x\x0cy", "x\ny")
_PIECES = (
    "a", "b", "ab", "-", "--", "@", "_", "é", "日", "$", "*", ">", "0", "Z", "_-", "q" * 11, "xyz", "~", "\U0001f600",
)  # fmt: skip
_DELIMITERS = ("-", "-", "--", "@", "é", "ab", "", " ", "_-", "日", "a", "x\t", "{", ")", "'-'", "*")
_ODD_NUMBERS = (
    "0", "-1", "+2", "02", "x", "1.5", "", " 2 ", "\t2", "1_0", "0x1", "1e3", "2147483647", "2147483648", "-2147483648",
    "-2147483649", "4294967296", "4294967298", "-4294967297", "9223372036854775807", "99999999999999999999", "é",
)  # fmt: skip
_CUTS = ("split", "splitFromLeft", "splitFromRight", "sliceFromLeft", "sliceFromRight", "left", "right")
_OF_ACCOUNTS = ("account-hash", "account-hash-import", "account-hash-leaf-remote", "account-hashes")
_DOLLARS = ("$1", "$1", "$2", "$3", "$0", "$-1", "$01", "$+1", "$1a", "$9", "$1_0", "$99999999999999999999")
_INVALID = ("", "*", ">", "a..b")


@dataclass(frozen=True, slots=True)
class DrawnTransform:
    """A source and a destination as texts."""

    source: str
    destination: str


def draw_transform(random: Random, *, head: str = "s", out: str = "d") -> DrawnTransform:
    """A transform whose source begins with ``head`` and whose destination begins with ``out``, most of the time."""
    source = _source_tokens(random)
    has_rest = random.random() < 0.35
    destination = draw_destination(random, source.count("*"))
    if has_rest:
        source.append(">")
    if has_rest != (random.random() < 0.04):
        destination.append(">")
    if random.random() < 0.03:
        tokens = source if random.random() < 0.5 else destination
        tokens.insert(random.randrange(len(tokens) + 1), random.choice(_INVALID))
    chance = random.random()
    if chance < 0.03:
        return DrawnTransform(random.choice(("", ">", "*.>")), ".".join([out, *destination[:-1], ">"]))
    if chance < 0.05:
        return DrawnTransform(".".join([head, *source]), random.choice(("", out, ">", "$1", "x y")))
    # With a wildcard first, the functions see the subject's first token.
    first = "*" if random.random() < 0.06 else head
    return DrawnTransform(".".join([first, *source]), ".".join([out, *destination]))


def draw_destination(random: Random, wildcards: int) -> list[str]:
    """The tokens of a destination after its first one."""
    tokens = [_destination_token(random, wildcards) for _ in range(random.choice((1, 1, 2, 2, 3)))]
    if random.random() < 0.4:
        # Version 2.9 wants all wildcards used.
        tokens += [f"${number}" for number in range(1, wildcards + 1)]
    return tokens


def draw_filter(random: Random, *, head: str = "s") -> str:
    """A filter that selects some of the subjects that begin with ``head``."""
    tokens = _source_tokens(random)
    if random.random() < 0.4:
        tokens.append(">")
    return ".".join([head, *tokens])


def draw_subject(random: Random, pattern: str, *, head: str = "s") -> bytes:
    """A subject that mostly matches the pattern and always begins with ``head``."""
    tokens = _fitting(random, pattern)
    chance = random.random()
    if tokens and chance < 0.1:
        tokens[random.randrange(len(tokens))] = _word(random)
    elif chance < 0.14:
        tokens.append(_word(random))
    elif chance < 0.17:
        tokens = tokens[:-1]
    return b".".join([head.encode(), *(tokens or [b"x"])])


def fitting_subject(random: Random, pattern: str, *, head: str = "s") -> bytes:
    """A subject that matches the pattern if any that begins with ``head`` does; plain words for wildcards."""
    tokens = [b"w%d" % random.randrange(10) if token == b"*" else token for token in _literal_tokens(pattern)]
    if pattern.endswith(">"):
        tokens.append(b"r%d" % random.randrange(10))
    return b".".join([head.encode(), *(tokens or [b"x"])])


def _literal_tokens(pattern: str) -> list[bytes]:
    """The tokens of a pattern after the first one; those that no publisher can send are replaced."""
    tokens = [token for token in pattern.split(".")[1:] if token not in ("", ">")]
    return ["".join("_" if character in " \t\r\n" else character for character in token).encode() for token in tokens]


def _fitting(random: Random, pattern: str) -> list[bytes]:
    # A token such as `*x` is a wildcard for some versions and a literal for others.
    tokens = [
        _word(random) if token == b"*" or (token[:1] == b"*" and random.random() < 0.5) else token
        for token in _literal_tokens(pattern)
    ]
    if pattern.endswith(">"):
        tokens += [_word(random) for _ in range(random.choice((1, 1, 2, 3)))]
    return tokens


def _word(random: Random) -> bytes:
    chance = random.random()
    if chance < 0.03:
        return random.choice((b"*", b">"))
    word = "".join(random.choice(_PIECES) for _ in range(random.choice((1, 1, 2, 3, 4, 6, 9)))).encode()
    if chance < 0.07:
        at = random.randrange(len(word) + 1)
        return word[:at] + random.choice((b"\xff", b"\xe9", b"\xe6\x97", b"\x80")) + word[at:]
    return word


def _source_tokens(random: Random) -> list[str]:
    tokens = [_source_token(random) for _ in range(random.choice((0, 1, 1, 2, 2, 3)))]
    if random.random() < 0.8:
        tokens.append("*")
    random.shuffle(tokens)
    return tokens


def _source_token(random: Random) -> str:
    if random.random() < 0.6:
        return "*"
    return random.choice(_SPACED) if random.random() < 0.02 else random.choice(_LITERALS)


def _destination_token(random: Random, wildcards: int) -> str:
    chance = random.random()
    if chance < 0.68:
        return _function(random, wildcards)
    if chance < 0.82:
        return random.choice(_DOLLARS)
    return random.choice(_SPACED) if chance < 0.84 else random.choice(_LITERALS)


def _function(random: Random, wildcards: int) -> str:
    chance = random.random()
    if chance < 0.15:
        name, arguments = "wildcard", [_index(random, wildcards)]
    elif chance < 0.4:
        name = "partition"
        arguments = [_number(random, 1, 200)] + [
            _index(random, wildcards) for _ in range(random.choice((0, 1, 1, 1, 2, 2, 3)))
        ]
    elif chance < 0.58:
        name, arguments = "split", [_index(random, wildcards), random.choice(_DELIMITERS)]
    elif chance < 0.96:
        name, arguments = random.choice(_CUTS[1:]), [_index(random, wildcards), _number(random, 1, 9)]
    elif chance < 0.98:
        name, arguments = random.choice(_OF_ACCOUNTS), [random.choice(("", "", " ", "1"))]
    else:
        name, arguments = "random", [random.choice(("0", "1", "-1", "x", "", "2147483648"))]
    if random.random() < 0.04:
        arguments = arguments[:-1] if random.random() < 0.5 else [*arguments, "1"]
    return _form(random) % (_spelled(random, name), _joined(random, arguments))


def _spelled(random: Random, name: str) -> str:
    if random.random() < 0.86:
        return name
    odd = (
        name[0].upper() + name[1:], name.lower(), name.upper(), name + "s", name.replace("F", "f"), name[:-1],
        "split_from_left",
    )  # fmt: skip
    return random.choice(odd)


def _form(random: Random) -> str:
    if random.random() < 0.86:
        return "{{%s(%s)}}"
    return random.choice(
        ("{{ %s (%s) }}", "{{%s( %s )}}", "{{x%s(%s)}}", "{{%s(%s)}}x", "{%s(%s)}", "{{{%s(%s)}}}", "{{\t%s(%s)}}",
         "{{x{{%s(%s)}}", "{{%s(%s)}", "{{%s%s}}", "{{foo}}{{%s(%s)}}")
    )  # fmt: skip


def _joined(random: Random, arguments: Sequence[str]) -> str:
    comma = "," if random.random() < 0.85 else random.choice((", ", " , ", ",\t", ",,", ";"))
    return comma.join(arguments)


def _index(random: Random, wildcards: int) -> str:
    if wildcards and random.random() < 0.9:
        return str(random.randrange(1, wildcards + 1))
    return random.choice(("0", "-1", str(wildcards + 1), " 1", "1 ", "+1", "01", "x", "", "9", "1"))


def _number(random: Random, low: int, high: int) -> str:
    return str(random.randint(low, high)) if random.random() < 0.8 else random.choice(_ODD_NUMBERS)
