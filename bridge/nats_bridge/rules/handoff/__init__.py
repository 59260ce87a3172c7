"""Hands a rule over to the server at exactly the next message, and takes it back.

A kind of rule decides in its module `handoff` and answers with a `Handoff`: the body of the `STREAM.UPDATE`, the steps,
or the problems. For copies the question is where the server would begin: in `kinds.copying`, `handoff_position` finds
how far the bridge got, `native_search` what the server's own search in the target would find, and `spelling` has other
words for the same entry, for targets in which that search would find something older. Only `jobs.rule_handoff` changes
a server.
"""
