"""Copying between streams: sources, mirrors and buckets, each message stored exactly once.

One entry of a rule goes one way: the origin's consumer (`bridge.intake`) → `copy_loop` (a batch becomes operations) →
`publisher` (pipelined, every answer of the target looked at). Where an entry goes on after a restart stands in the
target itself: `target_tail` reads the newest copies, `position` compares them with the origin.
"""
