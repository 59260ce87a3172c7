"""Imports nats-py without its optional parts (aiohttp, `nats.js`), which load on first use.

nats-py imports aiohttp for WebSockets alone. That takes longer than nats-py and the bridge together, because aiohttp
reads the system's certificate authorities, twice. Its own JetStream client, `nats.js`, takes most of the rest; the
bridge has `jetstream_api`. Both are loaded late (`nats_bridge.late_imports`), and work as usual.

The bridge imports nats-py only from here, because an earlier import elsewhere would load both parts.
"""

from __future__ import annotations

from nats_bridge.late_imports import late

__all__ = ["Client", "TcpTransport", "errors"]

with late("aiohttp", "nats.js"):
    from nats import errors
    from nats.aio.client import Client
    from nats.aio.transport import TcpTransport
