"""Hands a rule over to the server at exactly the next message, and takes it back.

A kind of rule decides in its module `handoff` and returns a `Handoff`: the body of the `STREAM.UPDATE` and the steps,
or the problems. For copies the question is where the server would begin. In `kinds.copying`, `handoff_position` finds
the position of the bridge, `native_search` repeats the server's own search in the target, and `spelling` finds other
words for the same entry, for targets in which that search would find an older copy. Only `jobs.rule_handoff` changes a
server.
"""
