"""Gets native servers of chosen versions, and runs a single one or a cluster.

No other package depends on where a server comes from.
"""

from nats_conformance.native_servers.cache import ServerCache
from nats_conformance.native_servers.errors import (
    InvalidVersionError,
    PortTakenError,
    ServerNotFoundError,
    ServersError,
    ServerStartError,
)
from nats_conformance.native_servers.fetching import FoundServer, available, fetch, resolve
from nats_conformance.native_servers.native_cluster import NativeCluster
from nats_conformance.native_servers.native_server import NativeServer, free_port

__all__ = [
    "FoundServer",
    "InvalidVersionError",
    "NativeCluster",
    "NativeServer",
    "PortTakenError",
    "ServerCache",
    "ServerNotFoundError",
    "ServerStartError",
    "ServersError",
    "available",
    "fetch",
    "free_port",
    "resolve",
]
