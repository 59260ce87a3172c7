"""What the sidecar tells over HTTP: probes, state, metrics, and a page for people. And the little it can be told."""

from __future__ import annotations

from bridge.http.listener import Listener

__all__ = ["Listener"]
