"""A plan for moving consumers to the copy of their stream: `nats-bridge failover`.

`account` reads or loads the state of the source's servers; `copied_stream` finds the copies; `filters` converts a
consumer's filters for the copy; `positions` finds where it begins there; `way_back` returns new messages of the copy;
`plan` combines these.
"""
