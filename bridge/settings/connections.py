"""Connections as the configuration writes them: where the servers are, and which files hold the secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, field_validator
from pydantic_core import PydanticCustomError

from nats_bridge.bridge.settings.base import Flag, Part
from nats_bridge.bridge.settings.server_urls import check_server_url
from nats_bridge.bridge.settings.text_patterns import PUBLISHABLE, SERVER_URL, pattern

__all__ = ["PATH_FIELDS", "Connection", "Tls"]

PATH_FIELDS = frozenset({"creds", "nkey_seed_file", "token_file", "password_file", "ca", "cert", "key"})
"""Fields of `Connection` and `Tls` that hold a file's path; relative to the configuration file."""


def _listed(value: Any) -> Any:
    """A single text is taken as nats' own tools take it: servers with commas between them."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",")]
    return value


def _server_url(value: str) -> str:
    reason = check_server_url(value)
    if reason:
        raise PydanticCustomError("server_url", "{reason}", {"reason": reason})
    return value


_ServerUrl = Annotated[str, AfterValidator(_server_url), Field(json_schema_extra=pattern(SERVER_URL))]


class Tls(Part):
    """How a connection is encrypted and whom it trusts."""

    ca: Path | None = Field(default=None, description="PEM file with the certificate authorities to trust")
    cert: Path | None = Field(default=None, description="PEM file with the client's certificate; needs `key`")
    key: Path | None = Field(
        default=None, description="PEM file with the key of the client's certificate; needs `cert`"
    )
    handshake_first: Flag = Field(
        default=False, description="TLS before the server's INFO, as `handshake_first` on the server"
    )
    hostname: str | None = Field(default=None, description="the name to expect in the server's certificate")
    insecure: Flag = Field(default=False, description="do not verify the server's certificate (tests only)")


class Connection(Part):
    """One account on one NATS system. Secrets are given as paths of files, never as values."""

    servers: Annotated[
        tuple[_ServerUrl, ...], BeforeValidator(_listed, json_schema_input_type=str | list[_ServerUrl])
    ] = Field(
        default=(),
        description="URLs of the system's servers, such as nats://127.0.0.1:4222 or tls://example.com:4222",
        examples=[["nats://127.0.0.1:4222"]],
    )
    context: str | None = Field(
        default=None,
        min_length=1,
        description="name of a context of the `nats` command line to take everything from",
    )
    creds: Path | None = Field(default=None, description="credentials file (user JWT and seed)")
    nkey_seed_file: Path | None = Field(default=None, description="file with an NKey seed")
    token_file: Path | None = Field(default=None, description="file with a token")
    user: str | None = Field(default=None, min_length=1, description="user name; needs `password_file`")
    password_file: Path | None = Field(default=None, description="file with the password of `user`")
    tls: Tls | None = Field(
        default=None, description="TLS; not needed for tls:// URLs with a publicly trusted certificate"
    )
    inbox_prefix: str = Field(
        default="_INBOX",
        description="prefix of the inboxes the bridge subscribes to",
        json_schema_extra=pattern(PUBLISHABLE),
    )
    connect_timeout: float = Field(default=5.0, gt=0, le=600, description="seconds to wait for one server to answer")

    @field_validator("inbox_prefix")
    @classmethod
    def _inbox_prefix(cls, value: str) -> str:
        # A wildcard or an empty token would make the client subscribe to what belongs to others.
        tokens = value.split(".")
        if not all(tokens) or any(token in {"*", ">"} for token in tokens) or any(c.isspace() for c in value):
            raise PydanticCustomError(
                "inbox_prefix",
                "'{value}' cannot be put in front of inboxes; write a subject such as '_INBOX_bridge'",
                {"value": value},
            )
        return value
