"""`python -m bridge`: the command `nats-bridge`, where its script is not on the path."""

from __future__ import annotations

from bridge.cli import main

main()
