"""Copying between streams: sources, mirrors and buckets, each message stored exactly once.

One entry of a rule goes one way: the source's consumer (`nats_bridge.consuming.ordered_reader`) → `encoder`, which
makes operations of a batch → `writing`, whose `publisher` sends them, pipelined, and checks every answer of the target.
`target` has the properties of that stream. The target itself shows where an entry resumes after a restart: `position`
reads its newest copies and compares them with the source.

`position` and `writing` do not import each other. A `round` combines them. They share one fact: the number of copies
that `position` checks depends on the maximum size of `writing.in_flight.Window`.
"""
