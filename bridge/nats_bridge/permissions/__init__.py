"""Derives the permissions that a configuration's users need, and nothing more.

Every kind of rule lists its needs. `granting` adds those of the sidecar itself, merges them into one list for each
connection, and prints it.
"""

from nats_bridge.permissions.granting import permissions_of
from nats_bridge.permissions.need import Need

__all__ = ["Need", "permissions_of"]
