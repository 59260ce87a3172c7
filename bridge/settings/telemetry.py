"""The section `telemetry`: where traces go. Exporters are configured by OpenTelemetry's own variables."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from nats_bridge.bridge.settings.base import Part

__all__ = ["Telemetry"]


class Telemetry(Part):
    """What the sidecar exports beside metrics, which are always at `/metrics`."""

    trace: Literal["passthrough", "link", "continue"] = Field(
        default="passthrough",
        description="messages always keep their traceparent; link: a span per batch, linked to the messages' traces;"
        " continue: a span per message of a sampled trace, in that trace",
    )
