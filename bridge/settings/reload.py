"""When a changed configuration file is taken."""

from __future__ import annotations

from pydantic import Field

from nats_bridge.bridge.settings.base import Flag, Part

__all__ = ["Reload"]


class Reload(Part):
    """When the configuration is read again while the sidecar runs."""

    watch: Flag = Field(
        default=True, description="reload a changed file automatically; SIGHUP and POST /-/reload reload it in any case"
    )
