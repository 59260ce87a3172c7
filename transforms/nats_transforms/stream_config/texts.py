"""Subjects and names in a configuration: JSON text on one side, the engine's bytes on the other."""

from nats_transforms import subject
from nats_transforms.dialect import Dialect

_NOT_IN_NAMES = frozenset(" \t\r\n\f.*>")


def encoded(text: str) -> bytes:
    """Return the bytes of a subject. Surrogates are kept as they came."""
    return text.encode("utf-8", "surrogatepass")


def is_valid_subject(text: str) -> bool:
    """Return whether a stream may have this subject."""
    return subject.is_valid_filter(encoded(text))


def is_publish_subject(text: str) -> bool:
    """Return whether a client may publish on this subject."""
    return subject.is_valid_publish(encoded(text))


def collide(one: str, other: str, dialect: Dialect) -> bool:
    """Return whether some subject may be covered by both, as the server decides it."""
    return subject.collide(encoded(one), encoded(other), by_first_byte=dialect.first_byte_is_wildcard)


def is_subset(one: str, other: str, dialect: Dialect) -> bool:
    """Return whether `other` covers all of `one`, by the server's rules."""
    return subject.is_subset(encoded(one), encoded(other), by_first_byte=dialect.first_byte_is_wildcard)


def is_valid_name(name: str, dialect: Dialect) -> bool:
    """Return whether a stream may have this name."""
    forbidden = _NOT_IN_NAMES | set("\\/") if dialect.asset_names_refuse_slashes else _NOT_IN_NAMES
    return bool(name) and forbidden.isdisjoint(name)
