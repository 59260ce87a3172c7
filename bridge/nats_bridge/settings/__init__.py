"""Configuration: its models, loading from YAML, environment and secret files, and options for connections.

`load(path)` gives frozen `Settings` or raises `ConfigError` with every problem, with line and column.
`nats_bridge.settings.connect_options` makes of a connection the arguments of nats-py's `connect`.
"""

from nats_bridge.settings.connections import Connection
from nats_bridge.settings.loading import load, loads
from nats_bridge.settings.models import Http, LeadershipSettings, Log, Settings
from nats_bridge.settings.rule_fields import Start
from nats_bridge.settings.rule_parts import Source
from nats_bridge.settings.rules import Rule

__all__ = ["Connection", "Http", "LeadershipSettings", "Log", "Rule", "Settings", "Source", "Start", "load", "loads"]
