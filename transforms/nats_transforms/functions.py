"""The mapping functions: from the bytes of a token (or of several, concatenated) to the bytes of the result.

Positions and lengths count bytes. Cutting functions leave the token unchanged unless 0 < n < its length. Their results
contain dots, so one destination token may become several.
"""

import random
import re
from collections.abc import Callable

from nats_transforms.destination import DestinationPart, Kind
from nats_transforms.subject import DOT

_FNV_OFFSET = 2166136261
_FNV_PRIME = 16777619
_MASK = 2**32 - 1

# One UTF-8 character, or one byte that is not part of a character.
_CHARACTER = re.compile(
    rb"[\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]"
    rb"|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xed[\x80-\x9f][\x80-\xbf]"
    rb"|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2}"
    rb"|.",
    re.DOTALL,
)


def fnv1a_32(key: bytes) -> int:
    """Return the FNV-1a hash of `key` in 32 bits."""
    value = _FNV_OFFSET
    for byte in key:
        value = (value ^ byte) * _FNV_PRIME & _MASK
    return value


def modulus_of(part: DestinationPart) -> int:
    """Return the modulus as partition uses it: the 32-bit number read without its sign."""
    return part.number & _MASK


def bind(part: DestinationPart) -> Callable[[bytes], bytes]:
    """Return the function of `part`, which takes the token (for partition: the concatenated tokens)."""
    if part.kind is Kind.PARTITION:
        return _partition(modulus_of(part))
    if part.kind is Kind.SPLIT:
        return _split(part.delimiter)
    if part.number <= 0:
        return _unchanged
    return _CUTS[part.kind](part.number)


def bind_random(part: DestinationPart) -> Callable[[], bytes]:
    """Return the random function of `part`: uniform from 0 up to its limit's absolute value, exclusive."""
    limit = abs(part.number)
    if limit <= 1:
        return lambda: b"0"
    draw = random.Random().randrange
    return lambda: b"%d" % draw(limit)


def _unchanged(token: bytes) -> bytes:
    return token


def _partition(modulus: int) -> Callable[[bytes], bytes]:
    if modulus == 0:  # the result of 2.12 and newer; older servers crash here
        return lambda key: b"0"

    def partition(key: bytes) -> bytes:
        value = _FNV_OFFSET
        for byte in key:
            value = (value ^ byte) * _FNV_PRIME & _MASK
        return b"%d" % (value % modulus)

    return partition


def _split(delimiter: bytes) -> Callable[[bytes], bytes]:
    if not delimiter:
        return lambda token: DOT.join(_CHARACTER.findall(token))

    twice = delimiter + delimiter

    def split(token: bytes) -> bytes:
        if delimiter not in token:
            return token
        joined = DOT.join(filter(None, token.split(delimiter)))
        # The server forgets the dot after an empty first piece only, so a second empty piece leaves one in
        # front.
        return DOT + joined if joined and token.startswith(twice) else joined

    return split


def _split_from_left(length: int) -> Callable[[bytes], bytes]:
    def cut(token: bytes) -> bytes:
        return token[:length] + DOT + token[length:] if length < len(token) else token

    return cut


def _split_from_right(length: int) -> Callable[[bytes], bytes]:
    def cut(token: bytes) -> bytes:
        return token[:-length] + DOT + token[-length:] if length < len(token) else token

    return cut


def _slice_from_left(length: int) -> Callable[[bytes], bytes]:
    def cut(token: bytes) -> bytes:
        return DOT.join([token[at : at + length] for at in range(0, len(token), length)])

    return cut


def _slice_from_right(length: int) -> Callable[[bytes], bytes]:
    def cut(token: bytes) -> bytes:
        first = len(token) % length
        pieces = [token[at : at + length] for at in range(first, len(token), length)]
        return DOT.join([token[:first], *pieces] if first else pieces)

    return cut


def _left(length: int) -> Callable[[bytes], bytes]:
    return lambda token: token[:length]


def _right(length: int) -> Callable[[bytes], bytes]:
    return lambda token: token[-length:]


_CUTS: dict[Kind, Callable[[int], Callable[[bytes], bytes]]] = {
    Kind.SPLIT_FROM_LEFT: _split_from_left,
    Kind.SPLIT_FROM_RIGHT: _split_from_right,
    Kind.SLICE_FROM_LEFT: _slice_from_left,
    Kind.SLICE_FROM_RIGHT: _slice_from_right,
    Kind.LEFT: _left,
    Kind.RIGHT: _right,
}
