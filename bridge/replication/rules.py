"""Helps a job that does a rule's work: checks it as the sidecar does, and keeps other processes away."""

from __future__ import annotations

from nats_bridge.bridge.client.connection_pool import close_connections, open_connections
from nats_bridge.bridge.consuming.rule_consumer import TAKEOVER, consumer_owner
from nats_bridge.bridge.kinds.copying.filter_choice import consumer_filters
from nats_bridge.bridge.kinds.copying.handoff import copying_consumer
from nats_bridge.bridge.kinds.copying.resuming import Resuming
from nats_bridge.bridge.kinds.copying.run import CopyRun
from nats_bridge.bridge.kinds.copying.target_subjects import compiled_entry, destinations
from nats_bridge.bridge.kinds.registry import kind_of
from nats_bridge.bridge.kinds.republish.check import compile_rule
from nats_bridge.bridge.permissions import Need, permissions_of
from nats_bridge.bridge.permissions.need import api_subject, write
from nats_bridge.bridge.permissions.reading import replays
from nats_bridge.bridge.rules.context import RuleContext
from nats_bridge.bridge.rules.leadership.leases import open_leases
