"""nats-py as the bridge imports it: without what only other programs need of it, until they do.

nats-py imports aiohttp for WebSockets alone, and that takes longer than nats-py and the bridge together: aiohttp reads
the system's certificate authorities, twice, before there is any connection. Its own JetStream client, `nats.js`, takes
most of the rest; the bridge has `jetstream_api`. Both are loaded late (`nats_bridge.late_imports`), and work.

The rest of the bridge imports nats-py from here; an earlier import elsewhere would have loaded both.
"""

from __future__ import annotations

from nats_bridge.late_imports import late

__all__ = ["Client", "TcpTransport", "errors"]

with late("aiohttp", "nats.js"):
    from nats import errors
    from nats.aio.client import Client
    from nats.aio.transport import TcpTransport
