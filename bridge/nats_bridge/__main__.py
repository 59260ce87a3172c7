"""Runs the command `nats-bridge` as `python -m nats_bridge`, for environments whose `PATH` lacks the script."""

from __future__ import annotations

from nats_bridge.cli import main

main()
