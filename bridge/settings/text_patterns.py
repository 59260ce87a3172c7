"""Regular expressions for the JSON schema, so that editors see at once what the checks would say; ECMA's dialect.

They let pass whatever the checks let pass, and more: a check knows what is wrong, a pattern only that something is.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

from pydantic import Field

__all__ = ["ADVISORIES", "LISTEN", "PUBLISHABLE", "SERVER_URL", "SUBJECT", "WITHOUT_SPACE", "Subject", "pattern"]

SUBJECT: Final = r"^$|^(?!(.*\.)?>\.)[^\s.]+(\.[^\s.]+)*$"
"""Tokens between dots, wildcards included, `>` only as the last; or nothing."""

PUBLISHABLE: Final = r"^(?!(.*\.)?[*>](\.|$))[^\s.]+(\.[^\s.]+)*$"
"""Tokens between dots, none of them a wildcard."""

WITHOUT_SPACE: Final = r"^\S+$"
"""A destination, whose functions may hold nearly anything."""

ADVISORIES: Final = r"^\$JS\.EVENT\.ADVISORY\."
"""The subjects of JetStream's advisories."""

SERVER_URL: Final = r"^((nats|tls)://)?(\[[0-9A-Fa-f:.]+\]|[^\s/@:\[\]?#]+)(:[0-9]{1,5})?/?$"
"""A server's address, without user and password."""

LISTEN: Final = r"^$|^(\[[^\]\s]+\]|[^:\s]*):[0-9]{1,5}$"
"""host:port, or nothing."""


def pattern(text: str) -> dict[str, Any]:
    """What a field tells the schema, and only the schema."""
    return {"pattern": text}


Subject: TypeAlias = Annotated[str, Field(json_schema_extra=pattern(SUBJECT))]
"""A subject that may hold wildcards; the checks look at it, this tells editors."""
