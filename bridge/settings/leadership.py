"""How replicas of a sidecar agree on which of them works on a rule."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from nats_bridge.bridge.settings.base import BucketName, Flag, Part

__all__ = ["LeadershipField", "LeadershipSettings"]


class LeadershipSettings(Part):
    """Leases of rules in a key-value bucket; without this section, the sidecar assumes that it is the only instance."""

    connection: str = Field(default="default", description="connection on which the bucket is")
    bucket: BucketName = Field(default="NATS_BRIDGE", description="the key-value bucket that holds the leases")
    ttl: float = Field(
        default=3.0,
        ge=0.5,
        le=600,
        description="seconds without a renewal after which another replica takes over",
    )
    create: Flag = Field(default=True, description="make the bucket if it is not there")
    share: Flag = Field(
        default=False,
        description="spread the rules evenly over the replicas, instead of leaving all to the one that started first",
    )
    replicas: Literal[1, 3, 5] | None = Field(
        default=None,
        description="servers of a cluster that hold the bucket; left out: three, or one where there are not as many",
    )


def _written(value: Any) -> Any:
    if value is None:
        # An empty key is a mistake; only an absent one means no leadership.
        raise PydanticCustomError("leadership", "is empty; write leadership: {} for what it is by default")
    return value


LeadershipField = Annotated[LeadershipSettings | None, BeforeValidator(_written)]
"""The section, if it is there at all."""
