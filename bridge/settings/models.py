"""The whole configuration, as frozen models. Reading it from files is `bridge.settings.loading`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from nats_bridge.bridge.settings.base import DurableName, Part
from nats_bridge.bridge.settings.connections import Connection
from nats_bridge.bridge.settings.http import Http
from nats_bridge.bridge.settings.leadership import LeadershipField
from nats_bridge.bridge.settings.reload import Reload
from nats_bridge.bridge.settings.rules import Rule
from nats_bridge.bridge.settings.telemetry import Telemetry

__all__ = ["DEFAULT_DIALECT", "NATIVE_DIALECT", "Http", "Log", "Settings"]

DEFAULT_DIALECT = "2.15"
NATIVE_DIALECT = "native"
"""The dialect of whatever server the stream's connection reaches."""


class Log(Part):
    """How the sidecar logs, on standard error."""

    format: Literal["auto", "json", "console"] = Field(
        default="auto", description="json, console, or auto: console at a terminal, json elsewhere"
    )
    level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="the least that is logged")


class Settings(Part):
    """The configuration of a sidecar."""

    # Defaults that are models are constructed: calling the model would build its validator as this module is imported.

    name: DurableName = Field(
        default="nats-bridge", description="the sidecar's name; part of the names of its durable consumers"
    )
    connections: dict[str, Connection] = Field(
        default_factory=lambda: {"default": Connection(servers=("nats://127.0.0.1:4222",))},
        description="named connections; rules refer to them with `from` and `to`",
    )
    http: Http = Field(default=Http.model_construct(), description="the bridge's own HTTP server")
    dialect: str = Field(
        default=DEFAULT_DIALECT,
        description='server version to behave like, such as "2.15" or "2.10.27", or "native"',
    )
    log: Log = Field(default=Log.model_construct(), description="logging")
    leadership: LeadershipField = Field(
        default=None, description="leases, for several replicas of this sidecar; left out: it is the only one"
    )
    reload: Reload = Field(default=Reload.model_construct(), description="reading the configuration again")
    telemetry: Telemetry = Field(default=Telemetry.model_construct(), description="traces")
    rules: tuple[Rule, ...] = Field(default=(), description="what to do")

    def dialect_of(self, rule: Rule) -> str:
        """The rule's dialect, or the configuration's; may be `native`."""
        return rule.dialect or self.dialect
