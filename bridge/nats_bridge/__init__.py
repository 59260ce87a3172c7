"""NATS bridge: its packages, which are folders of the repository linked here, so that only this name is installed."""
