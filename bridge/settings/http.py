"""The section `http`: where the sidecar listens, and whom it answers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from nats_bridge.bridge.settings.base import Part
from nats_bridge.bridge.settings.text_patterns import LISTEN, pattern

__all__ = ["Http"]


class Http(Part):
    """The bridge's own HTTP server: health, metrics and a page for people."""

    listen: str = Field(
        default="127.0.0.1:8222",
        description="host:port, or an empty text to turn it off",
        json_schema_extra=pattern(LISTEN),
    )
    hosts: tuple[str, ...] = Field(
        default=(),
        description="host names under which it is asked, beside addresses and names that nobody outside can own",
    )
    changes_from: Literal["loopback", "anywhere", "nowhere"] = Field(
        default="loopback", description="who may POST /-/reload and /-/drain: this machine (or pod), anybody, nobody"
    )
    wedged_after: float = Field(
        default=60.0,
        ge=1,
        description="seconds without progress, with messages in flight and nothing to wait for, until /livez fails",
    )

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
