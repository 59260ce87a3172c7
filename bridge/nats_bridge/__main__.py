"""`python -m nats_bridge`: the command `nats-bridge`, where its script is not on the path."""

from __future__ import annotations

from nats_bridge.cli import main

main()
