"""Inverts a transform: exchanges source and destination, if the transform lost no information."""

from nats_transforms.destination import DestinationPart, Kind, parse_token
from nats_transforms.dialect import Dialect
from nats_transforms.errors import TransformError
from nats_transforms.subject import ANY, DOT, REST, is_wild, text_of, tokens


def reversed_texts(pattern: bytes, parts: tuple[DestinationPart, ...], dialect: Dialect) -> tuple[bytes, bytes]:
    """Source and destination of the reverse transform.

    Raises:
        TransformError: code `not_reversible`, with the token that prevents it.
    """
    number_of: dict[int, int] = {}
    source: list[bytes] = []
    for part in parts:
        if part.kind is Kind.WILDCARD:
            if part.indexes[0] <= 0 or part.positions[0] in number_of:
                raise _refuse(f"{text_of(part.text)} does not stand for one wildcard once")
            number_of[part.positions[0]] = len(number_of) + 1
            source.append(ANY)
        elif part.kind in (Kind.LITERAL, Kind.REST):
            source.append(part.text)
        else:
            raise _refuse(f"{text_of(part.text)} cannot be undone")
    destination: list[bytes] = []
    for position, token in enumerate(tokens(pattern)):
        if token == ANY:
            if position not in number_of:
                raise _refuse(f"the wildcard at token {position + 1} of the source is not used")
            destination.append(b"$%d" % number_of[position])
        elif is_wild(token, by_first_byte=dialect.first_byte_is_wildcard) or (
            token != REST and not _is_literal(token, dialect)
        ):
            raise _refuse(f"token {text_of(token)} of the source cannot be written in a destination")
        else:
            destination.append(token)
    if not parts:
        raise _refuse("the destination is empty")
    return DOT.join(source), DOT.join(destination)


def _is_literal(token: bytes, dialect: Dialect) -> bool:
    try:
        return parse_token(token, dialect).kind is Kind.LITERAL
    except TransformError:
        return False


def _refuse(why: str) -> TransformError:
    return TransformError("not_reversible", f"transform cannot be reversed: {why}")
