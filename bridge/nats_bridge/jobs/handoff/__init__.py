"""Hands a rule over to the server at exactly the next message, and takes it back.

`handoff` decides per kind of rule and answers with a `Handoff`: the body of the `STREAM.UPDATE`, the steps, or the
problems. For copies the question is where the server would begin: `entry_position` finds how far the bridge got,
`native_search` what the server's own search in the target would find, and `spelling` has other words for the same
entry, for targets in which that search would find something older. Nothing here changes a server but `carry_out`.
"""
