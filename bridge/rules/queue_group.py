"""The queue group by which the replicas of a sidecar share what a rule subscribes to."""

from __future__ import annotations

__all__ = ["queue_group"]


def queue_group(rule: str) -> str:
    """The queue group of a rule's subscription, the same in all replicas."""
    return f"nats-bridge_{rule}"
