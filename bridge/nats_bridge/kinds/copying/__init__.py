"""Copying between streams: sources, mirrors and buckets, each message stored exactly once.

One entry of a rule goes one way: the source's consumer (`nats_bridge.consuming.ordered_reader`) → `encoder` (a batch
becomes operations) → `publisher` (pipelined, every answer of the target is checked). The target itself shows where an
entry resumes after a restart: `tail_reader` reads the newest copies, `resume_point` compares them with the source.
"""
