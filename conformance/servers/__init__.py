"""Native servers of chosen versions: getting one, running one or a cluster, and what is at hand.

Nothing else in the project cares where a server came from.
"""

from conformance.servers.cache import ServerCache
from conformance.servers.errors import (
    InvalidVersionError,
    PortTakenError,
    ServerNotFoundError,
    ServersError,
    ServerStartError,
)
from conformance.servers.fetching import FoundServer, available, fetch, resolve
from conformance.servers.native_cluster import NativeCluster
from conformance.servers.native_server import NativeServer, free_port
from conformance.servers.shared_servers import SharedServers
from conformance.servers.versions import TWIN_VERSIONS

__all__ = [
    "TWIN_VERSIONS",
    "FoundServer",
    "InvalidVersionError",
    "NativeCluster",
    "NativeServer",
    "PortTakenError",
    "ServerCache",
    "ServerNotFoundError",
    "ServerStartError",
    "ServersError",
    "SharedServers",
    "available",
    "fetch",
    "free_port",
    "resolve",
]
