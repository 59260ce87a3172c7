"""Rules of kind native_copy, as `registry` offers them."""

from __future__ import annotations

from collections.abc import Iterator

from nats_bridge.bridge.kinds.kind import Incoming, Input, Meanings, Outcome, RuleKind
from nats_bridge.bridge.kinds.native_copy.check import compile_rule
from nats_bridge.bridge.kinds.native_copy.counters import NativeCopyCounters
from nats_bridge.bridge.kinds.native_copy.permissions import native_copy_needs
from nats_bridge.bridge.kinds.native_copy.run import NativeCopyRun
from nats_bridge.bridge.settings import NativeCopyRule
from nats_bridge.bridge.settings.connect_options import connect_options
from nats_bridge.transforms.dialect import Dialect
from nats_bridge.transforms.header_block import remove
from nats_bridge.transforms.sourcing import Copied


def _makes(rule: NativeCopyRule, dialect: Dialect, incoming: Incoming) -> Iterator[Outcome]:
    sourcing, message = compile_rule(rule, dialect), incoming.message
    destination = sourcing.destination(message.subject)
    if destination is not None:
        block = message.header_block
        for name in rule.remove_headers:
            block = remove(block, name.encode())
        yield Copied(destination, block, message.payload)
    elif outcome := sourcing.unselected(message):
        yield outcome


KIND = RuleKind(
    operation="serve",
    counters=NativeCopyCounters,
    meanings=Meanings(
        sent="delivered",
        dropped={"unselected": "unselected"},
        facts={"headers_removed": "headers_stripped", "reconnects": "resumed"},
    ),
    run=lambda rule, settings, connections, context: NativeCopyRun(
        rule,
        connections[rule.source_connection],
        connect_options(settings.connections[rule.leaf_connection], rule.leaf_connection),
        context,
    ),
    needs=native_copy_needs,
    moves=lambda *_: iter(()),  # what copies is the server's own mirror or source
    inputs=lambda rule: (Input(rule.source_connection, rule.stream),),
    makes=_makes,
    refuses_handoff=lambda rule: (
        "the server copies natively already: to do without the sidecar, give its source the rule's subject_transforms,"
        " the source's own external and opt_start_seq, or restore its mirror from a backup with these"
    ),
    no_history="the server that copies reads the history itself",
    reads_stream=True,
)
