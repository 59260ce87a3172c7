"""The parts of the sidecar that jobs may use: connections, reading a stream, copies and their publisher.

`nats_bridge.bridge.replication.rules` has what it needs to check a rule as a start of the sidecar does. A test limits
`pipeline` to these two, to errors, to settings, and to what all commands share.
"""

from __future__ import annotations

from nats_bridge.bridge.client.connection import Connection, open_connection
from nats_bridge.bridge.client.jetstream_api import NOT_ENABLED, STREAM_NOT_FOUND, JetStreamApi, Json
from nats_bridge.bridge.client.operations import publication
from nats_bridge.bridge.client.permission_violations import refused_publication
from nats_bridge.bridge.client.pub_ack import PubAck
from nats_bridge.bridge.client.stream_identity import KnownStream
from nats_bridge.bridge.client.tasks import end_tasks
from nats_bridge.bridge.client.wire import Delivered
from nats_bridge.bridge.consuming.ack_reply import AckReply
from nats_bridge.bridge.consuming.lag import Standpoint
from nats_bridge.bridge.consuming.replay import Replay, filter_members
from nats_bridge.bridge.kinds.copying.counters import CopyCounters
from nats_bridge.bridge.kinds.copying.encoder import OUR_ID, CopyEncoder, Operation
from nats_bridge.bridge.kinds.copying.entry import CopyEntry
from nats_bridge.bridge.kinds.copying.entry_plan import EntryPlan
from nats_bridge.bridge.kinds.copying.entry_streams import EntryStreams
from nats_bridge.bridge.kinds.copying.gap_filler import GapFiller
from nats_bridge.bridge.kinds.copying.last_sequence_probe import last_sequence_behind
from nats_bridge.bridge.kinds.copying.message_ids import without_earlier
from nats_bridge.bridge.kinds.copying.publisher import Publisher
from nats_bridge.bridge.kinds.copying.round import EntryContext, Round
from nats_bridge.bridge.kinds.copying.round_life import RoundLife
from nats_bridge.bridge.kinds.copying.source import Reading
from nats_bridge.bridge.kinds.copying.tail_reader import pieces_back, read_piece
from nats_bridge.bridge.kinds.copying.target import Target
from nats_bridge.bridge.kinds.copying.window import LEAST, Window
from nats_bridge.bridge.observability.logs import configure_logs
from nats_bridge.bridge.observability.printable import printable
from nats_bridge.bridge.observability.rule_metrics import RuleMetrics
from nats_bridge.bridge.rules.loops.subject_patterns import Pattern
from nats_bridge.bridge.settings.connect_options import connect_options
