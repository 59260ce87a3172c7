"""The whole configuration, as frozen models. Reading it from files is `bridge.settings.loading`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from bridge.settings.base import DurableName, Part
from bridge.settings.connections import Connection
from bridge.settings.rules import Rule
from bridge.settings.telemetry import Telemetry

__all__ = ["DEFAULT_DIALECT", "NATIVE_DIALECT", "Http", "Log", "Settings"]

DEFAULT_DIALECT = "2.15"
NATIVE_DIALECT = "native"
"""The dialect of whatever server the stream's connection reaches."""


class Http(Part):
    """The bridge's own HTTP server: health, metrics and a page for people."""

    listen: str = Field(default="127.0.0.1:8222", description="host:port, or an empty text to turn it off")

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port to listen on, or None when HTTP is off. An empty host means all interfaces."""
        if not self.listen:
            return None
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)

    @field_validator("listen")
    @classmethod
    def _listen(cls, value: str) -> str:
        host, colon, port = value.rpartition(":")
        good = colon and port.isascii() and port.isdigit() and int(port) <= 65535
        if value and (not good or any(c.isspace() for c in value) or (":" in host and host[0] + host[-1] != "[]")):
            raise PydanticCustomError(
                "listen",
                '\'{value}\' is not host:port; write "127.0.0.1:8222", ":8222" (any interface) or "" (none)',
                {"value": value},
            )
        return value


class Log(Part):
    """How the sidecar logs, on standard error."""

    format: Literal["auto", "json", "console"] = Field(
        default="auto", description="json, console, or auto: console at a terminal, json elsewhere"
    )
    level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="the least that is logged")


class Settings(Part):
    """The configuration of a sidecar."""

    name: DurableName = Field(
        default="nats-bridge", description="the sidecar's name; part of the names of its durable consumers"
    )
    connections: dict[str, Connection] = Field(
        default_factory=lambda: {"default": Connection(servers=("nats://127.0.0.1:4222",))},
        description="named connections; rules refer to them with `from` and `to`",
    )
    http: Http = Field(default=Http(), description="the bridge's own HTTP server")
    dialect: str = Field(
        default=DEFAULT_DIALECT,
        description='server version to behave like, such as "2.15" or "2.10.27", or "native"',
    )
    log: Log = Field(default=Log(), description="logging")
    telemetry: Telemetry = Field(default=Telemetry(), description="traces")
    rules: tuple[Rule, ...] = Field(default=(), description="what to do")

    def dialect_of(self, rule: Rule) -> str:
        """The rule's dialect, or the configuration's; may be `native`."""
        return rule.dialect or self.dialect
