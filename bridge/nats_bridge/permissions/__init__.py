"""Derives the permissions that a configuration's users need, and nothing more.

Every kind of rule lists its needs. `granting` adds those of the sidecar itself, merges them into one list for each
connection, and prints it.
"""

from nats_bridge.permissions.granting import (
    ConnectionGrants,
    Grant,
    as_nsc,
    as_text,
    grants_of,
    permissions_of,
)
from nats_bridge.permissions.need import Need, Way
from nats_bridge.permissions.stream_facts import StreamFacts

__all__ = [
    "ConnectionGrants",
    "Grant",
    "Need",
    "StreamFacts",
    "Way",
    "as_nsc",
    "as_text",
    "grants_of",
    "permissions_of",
]
