"""Runs the command `nats-bridge` as `python -m nats_bridge`, for environments whose `PATH` lacks the script."""

from nats_bridge.cli import main

main()
